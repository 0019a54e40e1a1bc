"""Hostile requests against real servers: `python -m tests.hostile` prints what each costs, in time and memory."""
