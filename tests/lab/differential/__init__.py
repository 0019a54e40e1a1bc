"""Two ways to the same answer, compared on random input: `python -m tests.lab.differential [--seconds 60]`."""
