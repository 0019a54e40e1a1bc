"""What runs the core: drivers, worker threads, the background event loop, and waiting. Decides nothing about the protocol."""
