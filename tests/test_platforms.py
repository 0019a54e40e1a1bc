"""Windows and macOS: no module of the package needs what only Linux has, or what Windows lacks, to be imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

OTHERS = [
    "aiohttp",
    "django.conf",
    "fastapi",
    "flask",
    "google.protobuf",
    "grpc",
    "httpx2",
    "opentelemetry.trace",
    "pandas",
    "prometheus_client",
]
"""What modules of the package import: they have checks of their own for what a system lacks."""

SCRIPT = """
# what is loaded behind these is the package's own choice
import asyncio, multiprocessing, os, pkgutil, select, signal, socket, subprocess, sys, threading
from importlib import import_module
for name in sys.argv[1:]:
    import_module(name)
import django, msgspec, numpy, werkzeug
sys.modules.update(dict.fromkeys(("fcntl", "resource", "pwd", "grp", "termios", "uvloop", "multiprocessing.shared_memory", "_posixshmem")))
for module, names in {
    os: ("fork", "register_at_fork", "sched_getaffinity", "getuid", "geteuid", "memfd_create", "posix_fallocate", "killpg", "wait4")
    + ("pread", "preadv", "pwrite", "O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK"),
    signal: ("SIGALRM", "SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGQUIT", "setitimer", "pthread_sigmask", "sigwait"),
    select: ("epoll", "poll"),
    socket: ("AF_UNIX", "socketpair", "SO_REUSEPORT"),
}.items():
    for name in names:
        delattr(module, name)
sys.platform = "win32"
import oip_asgi
django.conf.settings.configure()
names = [module.name for module in pkgutil.walk_packages(oip_asgi.__path__, "oip_asgi.") if not module.name.endswith("__main__")]
for name in names:
    import_module(name)
server = oip_asgi.InferenceServer()
server.register("double", lambda x: x * 2)
server.start()
response = server.infer_sync("double", {"x": numpy.arange(3)})
server.stop()
print(len(names), response.outputs[0].array.tolist())
"""


@pytest.mark.ci
def test_every_module_is_imported_without_what_other_systems_lack() -> None:
    for name in OTHERS:
        pytest.importorskip(name)
    done = subprocess.run([sys.executable, "-c", SCRIPT, *OTHERS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    imported, answer = done.stdout.split(" ", 1)
    assert int(imported) > 100
    assert answer == "[0, 2, 4]\n"
