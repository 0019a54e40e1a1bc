"""Ask servers of the protocol, of any kind: this package's, Triton, MLServer, KServe, OpenVINO.

`Client` needs nothing but this package; `AsyncClient` and `remote` need the extra `client`, which is aiohttp.

>>> from oip_asgi.client import Client
>>> with Client("http://127.0.0.1:8000/v2") as client:  # doctest: +SKIP
...     response = client.infer("double", {"x": np.float32([1, 2])})
...     response["output_0"]
array([2., 4.], dtype=float32)

What a server refuses is raised as `ErrorResponse`, with its `response_status` and `text`; what is no answer
of the protocol as `InvalidResponse`; and what goes wrong on the way as `ConnectionFailed`. A request is sent
twice only if the server closed the connection before it read the first one, and redirects are not followed.
"""

from ._clients import AsyncClient, Client
from ._questions import read_specs
from ._remote import remote
from ._senders import ConnectionFailed

__all__ = ["AsyncClient", "Client", "ConnectionFailed", "read_specs", "remote"]
