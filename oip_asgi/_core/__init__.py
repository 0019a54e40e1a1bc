"""The protocol without I/O: numpy and msgspec, nothing that waits, no transport and no framework."""
