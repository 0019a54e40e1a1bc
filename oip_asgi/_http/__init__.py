"""HTTP: routes, requests and responses. Knows no ASGI, WSGI or framework, and neither sync nor async."""
