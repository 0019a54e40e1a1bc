"""The effects that the core asks for, and what carries them out: threads, loops, waiting."""

from oip_asgi._protocol.effects import (
    Await,
    DeadlinePassed,
    Effect,
    Fed,
    QuitWithin,
    Run,
    Signal,
    Spawn,
    Stopped,
    Wait,
    Work,
)
from oip_asgi._runtime import threads
from oip_asgi._runtime.background import BackgroundLoop, Loan
from oip_asgi._runtime.drive import drive_async
from oip_asgi._runtime.drive_blocking import drive
from oip_asgi._runtime.runtime import LoopThreads, Runtime
from oip_asgi._runtime.threads import PATIENCE, WorkerThreads
from oip_asgi._runtime.waiting import ClientGone, Gone, Patrol
