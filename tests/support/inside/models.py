"""Models: their options, lives, slots, batches and counters."""

from oip_asgi._models import lifecycle
from oip_asgi._models.lifecycle import TRANSITIONS, Event, State
from oip_asgi._models.limiter import SLOT_TRANSITIONS, Batches, Limiter, Slot, SlotEvent, SlotState, Uses
from oip_asgi._models.model_options import CONCURRENCY, ModelKeywords, ModelOptions
from oip_asgi._models.statistics import Numbers, ResponseOutcome, Statistics
from oip_asgi._serving.engine import ServerKeywords, ServerOptions
