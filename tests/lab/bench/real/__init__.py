"""Real models behind this package and behind what else a user could choose: `python -m tests.lab.bench.real`."""
