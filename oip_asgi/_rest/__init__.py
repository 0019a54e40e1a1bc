"""REST bodies of requests and responses: JSON documents, and the bytes after them. Knows no URLs, statuses or models."""
