"""A Django project whose async models ask its database again and again: `python -m tests.support.django_orm_site runserver`.

The database is the file that ORM_DATABASE names; with ASYNC_MIDDLEWARE, a middleware that is async is around all of it. `prepare` makes
the database, and prints the session of its one user, "ada". `ask` and `ask_async` send the requests with Django's own clients, and
`ask_in_test_case` does so within a transaction, as Django's `TestCase` does; each prints what was answered.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import django
import numpy as np
from asgiref.sync import markcoroutinefunction, sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponseBase

settings.configure(
    SECRET_KEY="tests",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    WSGI_APPLICATION=f"{__name__}.application",
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["ORM_DATABASE"]}},
    MIDDLEWARE=[
        *([f"{__name__}.AsyncMiddleware"] if "ASYNC_MIDDLEWARE" in os.environ else []),
        f"{__name__}.note_thread",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
    ],
    USE_TZ=True,
)
django.setup()

from django.contrib.auth import get_user  # noqa: E402  (Django wants its settings first)
from django.contrib.auth.models import User  # noqa: E402
from django.core.asgi import get_asgi_application  # noqa: E402
from django.core.management import call_command, execute_from_command_line  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.db import transaction  # noqa: E402
from django.test import AsyncClient, Client  # noqa: E402
from django.urls import include, path  # noqa: E402

from oip_asgi import InferenceContext, InferenceServer  # noqa: E402
from oip_asgi.django import urls  # noqa: E402

NO_INPUTS = b'{"inputs":[]}'


class AsyncMiddleware:
    """A middleware that is async, and not plain as well."""

    sync_capable = False
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Awaitable[HttpResponseBase]]) -> None:
        self._get_response = get_response
        markcoroutinefunction(self)

    async def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return await self._get_response(request)


def note_thread(get_response: Callable[[HttpRequest], HttpResponseBase]) -> Callable[[HttpRequest], HttpResponseBase]:
    """A middleware that notes the thread in which Django runs what blocks, for this request."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        request.thread = threading.get_ident()  # type: ignore[attr-defined]
        return get_response(request)

    return middleware


async def users() -> list[int]:
    return [await User.objects.acount(), await User.objects.acount(), await User.objects.acount()]


server = InferenceServer("orm", "1")
left: list[asyncio.Task[Any]] = []


@server.model("users")
async def count_users() -> Any:
    return np.array(await users())


@server.model("in_time", timeout=60)
async def count_in_time() -> Any:
    return np.array(await users())


@server.model("user")
async def name_user(context: InferenceContext) -> Any:
    request = context.transport
    # Django 4.2 has no auser
    user: Any = await (request.auser() if hasattr(request, "auser") else sync_to_async(get_user)(request))
    return [user.username, (await User.objects.aget(pk=user.pk)).username]


@server.model("streamed")
async def stream_users() -> AsyncIterator[int]:
    for _ in range(3):
        yield await User.objects.acount() + await User.objects.acount()


@server.model("batched", max_batch_size=8)
async def count_in_batches(x: np.ndarray) -> Any:
    return x + sum(await users())


@server.model("gathered")
async def gather_users() -> Any:
    return np.array(await asyncio.gather(*(User.objects.acount() for _ in range(4))))


@server.model("calls")
def call_another() -> Any:
    return server.infer_sync("users", {})["output_0"]


@server.model("threads")
async def compare_threads(context: InferenceContext) -> Any:
    found = [await sync_to_async(threading.get_ident)() for _ in range(3)]
    return np.array([each == context.transport.thread for each in found])


@server.model("leaves")
async def leave_a_task() -> Any:
    may_begin = asyncio.Event()

    async def count_later() -> list[int]:
        await may_begin.wait()
        return await users()

    left.append(asyncio.create_task(count_later()))
    asyncio.get_running_loop().call_later(0.2, may_begin.set)  # when this has been answered
    return np.array([1])


@server.model("finds")
async def find_the_task() -> Any:
    return np.array(await asyncio.wait_for(left.pop(), 20))


ASKED = [
    *(f"{name}/infer" for name in ("users", "in_time", "user", "gathered", "calls", "threads", "leaves")),
    "streamed/generate_stream",
]

urlpatterns = [path("v2", include(urls(server)))]
application = get_wsgi_application()
asgi_application = get_asgi_application()


def prepare() -> None:
    call_command("migrate", verbosity=0)
    User.objects.create_user("ada")
    print(log_in())


def log_in() -> str:
    client = Client()
    client.force_login(User.objects.get(username="ada"))
    return client.cookies["sessionid"].value


def ask() -> dict[str, Any]:
    client = Client()
    client.cookies["sessionid"] = log_in()
    answers: dict[str, Any] = {}
    for each in ASKED:
        found = client.generic("POST", f"/v2/models/{each}", NO_INPUTS, "application/json")
        answers[each] = [found.status_code, b"".join(found).decode()]
    return answers


async def ask_async() -> dict[str, Any]:
    client = AsyncClient()
    client.cookies["sessionid"] = await sync_to_async(log_in)()
    answers: dict[str, Any] = {}
    for each in ASKED:
        found: Any = await client.generic("POST", f"/v2/models/{each}", NO_INPUTS, "application/json")
        pieces = [piece async for piece in found] if found.streaming else [found.content]
        answers[each] = [found.status_code, b"".join(pieces).decode()]
    return answers


def ask_in_test_case() -> dict[str, Any]:
    """A second user is there, for this connection alone, until the transaction is rolled back."""
    with transaction.atomic():
        User.objects.create_user("grace")
        answers = ask()
        transaction.set_rollback(True)
    return answers


if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        prepare()
    elif sys.argv[1] in ("ask", "ask_in_test_case"):
        print(json.dumps({"ask": ask, "ask_in_test_case": ask_in_test_case}[sys.argv[1]]()))
    elif sys.argv[1] == "ask_async":
        print(json.dumps(asyncio.run(ask_async())))
    else:
        execute_from_command_line(sys.argv)
