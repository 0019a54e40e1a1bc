"""Models: their options, signatures, results, lives, slots, batches and counters."""

from oip_asgi._models import lifecycle
from oip_asgi._models.batch_queue import Batches, BatchSlot
from oip_asgi._models.bind import bind
from oip_asgi._models.binding import Binding
from oip_asgi._models.handler import Handler
from oip_asgi._models.lifecycle import Lifecycle
from oip_asgi._models.limiter import Limiter, Slot, Uses
from oip_asgi._models.loader import Loader
from oip_asgi._models.model_options import ModelKeywords, ModelOptions
from oip_asgi._models.states import TRANSITIONS, Event, State, transition
from oip_asgi._models.statistics import BUCKETS, MOST_ENTRIES, OUTCOMES, Duration, Numbers, Outcome, ResponseOutcome, Statistics, Timings
from oip_asgi._serving.server_options import ServerKeywords, ServerOptions
