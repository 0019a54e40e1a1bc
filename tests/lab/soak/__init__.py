"""A real server under more than it can do, for minutes: `python -m tests.lab.soak`."""
