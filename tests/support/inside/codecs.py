"""Codecs that users cannot import, and the registry that finds a codec."""

from oip_asgi._codecs.pandas_json import PandasJSONCodec
from oip_asgi._codecs.registry import Codecs
