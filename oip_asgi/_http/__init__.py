"""HTTP: routes, requests, responses and content codings. Knows no ASGI, WSGI or framework, and neither sync nor async."""
