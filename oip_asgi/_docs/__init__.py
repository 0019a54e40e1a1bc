"""Documents for people: the OpenAPI document, and the page that shows the models. Knows no requests and no
HTTP."""
