"""JSON text <-> documents and arrays. Knows no transport."""
