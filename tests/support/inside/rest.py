"""JSON, and the bodies of REST."""

from oip_asgi._json import tensor_data as json_data
from oip_asgi._json import text as json_text
from oip_asgi._json.tensor_data import from_json, to_json
from oip_asgi._json.text import MAX_ARRAYS, MAX_DEPTH
from oip_asgi._rest import body as rest_body
