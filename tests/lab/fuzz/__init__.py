"""Fuzzing the core, guided by coverage: `python -m tests.lab.fuzz`. What it once found stays under `found`, as rows of a test."""
