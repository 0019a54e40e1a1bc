"""HTTP without a transport: its exchange and responses, the files of the page, and what a client writes and reads."""

from oip_asgi._docs.documents import FILES, POLICY, SHOWN
from oip_asgi._http import exchange as http_exchange
from oip_asgi._http.messages import Head, Response
from oip_asgi.client import _questions as client_questions
