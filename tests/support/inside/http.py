"""HTTP without a transport: its exchange and responses, and the files of the page."""

from oip_asgi._docs.page import FILES, POLICY
from oip_asgi._http import exchange as http_exchange
from oip_asgi._http.request import Head
from oip_asgi._http.response import Response
