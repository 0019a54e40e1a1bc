"""The protocol without I/O: numpy and msgspec, no event loop, no transport and no framework.

What waits for a model or a batch is its driver. By itself it waits for short locks, and lets other threads run.
"""
