"""`python -m oip_asgi TARGET`: serves one target with uvicorn. Knows all of the package, and nothing else of it knows this."""
