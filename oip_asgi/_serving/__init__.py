"""The life of one request: admit, read, take a slot or a place in the queue, decode, check, run, encode.

Knows no HTTP, no gRPC and no JSON.
"""
