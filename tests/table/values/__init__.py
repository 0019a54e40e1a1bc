"""What a list of values becomes, for each kind of declared input, whichever way it comes in: a table, and its test."""
