"""Streams over server-sent events and gRPC: `python -m tests.lab.bench.streams`."""
