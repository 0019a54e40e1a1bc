"""The REST form of requests and responses: their JSON documents, and the bytes behind them. Knows no URLs, statuses or models."""
