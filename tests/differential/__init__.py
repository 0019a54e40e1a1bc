"""Two ways to the same answer, compared on random input: `python -m tests.differential [--seconds 60]`."""
