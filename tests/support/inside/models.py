"""Models: their options, lives, slots, batches and counters."""

from oip_asgi._models import lifecycle
from oip_asgi._models.batch_queue import Batches
from oip_asgi._models.limiter import SLOT_TRANSITIONS, Limiter, Slot, SlotEvent, SlotState, Uses
from oip_asgi._models.model_options import CONCURRENCY, ModelKeywords, ModelOptions
from oip_asgi._models.states import TRANSITIONS, Event, State
from oip_asgi._models.statistics import Numbers, ResponseOutcome, Statistics
from oip_asgi._serving.engine import ServerKeywords, ServerOptions
