"""Fuzzing the core, guided by coverage: `python -m tests.fuzz`. What it once found stays under `found`, as rows of a test."""
