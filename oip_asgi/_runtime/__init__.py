"""What requests wait with, and where user code runs: worker threads, the background event loop. Decides
nothing about the protocol."""
