"""What the result of a model leaves as, for each way in which it is declared, whichever way it goes out: a table, and its test."""
