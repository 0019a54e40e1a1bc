"""Batches under a storm of requests, for as long as one wants: `python -m tests.lab.storm`."""
