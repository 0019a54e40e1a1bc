"""A registered model: its options, its signature, what it takes and returns, and its life. Knows no requests
on the wire."""
