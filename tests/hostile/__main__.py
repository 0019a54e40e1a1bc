"""`python -m tests.hostile`: sends every hostile request to a real server and prints a table of what each cost."""

from .rows import main

main()
