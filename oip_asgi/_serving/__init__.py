"""The life of one request: admit, read, decode, check, wait for a slot, run, encode. Knows no HTTP, no gRPC and no JSON."""
