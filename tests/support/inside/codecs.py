"""Codecs that users cannot import, and the registry that finds a codec."""

from oip_asgi._codecs.content_types import Codecs
from oip_asgi._codecs.plain import PandasJSONCodec
