"""Streams over server-sent events and gRPC: `python -m tests.bench.streams`."""
