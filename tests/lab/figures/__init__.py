"""The guide's figures, drawn from the names and defaults of the code: `python -m tests.lab.figures` writes them anew.

They are SVG, light and dark as the reader's system is. Knows no library that draws.
"""
