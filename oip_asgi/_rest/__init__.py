"""The REST wire format of requests and responses: their JSON documents, and the bytes behind them. Knows no URLs, statuses or models."""
