"""Hostile requests against real servers: `python -m tests.lab.hostile` prints what each costs, in time and memory."""
