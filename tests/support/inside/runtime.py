"""How requests wait, and what they wait for: threads and loops."""

from oip_asgi._io import ClientGone, DeadlinePassed, Fed, Part, QuitWithin, Signal, Stopped, Work, finish
from oip_asgi._runtime import runtime as runtime_module
from oip_asgi._runtime import threads
from oip_asgi._runtime.async_io import AsyncIO, Patrol
from oip_asgi._runtime.blocking_io import BlockingIO
from oip_asgi._runtime.runtime import Runtime
from oip_asgi._runtime.threads import PATIENCE, Alarms, WorkerThreads
from oip_asgi._runtime.waiting import BackgroundLoop, Loan
from oip_asgi._turns import yield_interpreter
