"""Extensions: classification, the cache, statistics."""

from oip_asgi._extensions import classification, model_statistics
from oip_asgi._extensions.cache import Cache
from oip_asgi._extensions.classification import classify
