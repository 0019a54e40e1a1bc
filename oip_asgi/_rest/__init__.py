"""The REST wire format: JSON documents of requests and responses, and the bytes after them. Knows no URLs,
statuses or models."""
