"""Settings for all tests, and what a plain `pytest` leaves out, and runs in a process for each CPU."""

from __future__ import annotations

import gc
import logging
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent
PROCESSES = ("lab", "processes")
"""The folders whose tests start real processes, which makes them slow; a plain `pytest` does not even import them, which takes seconds."""

LEFT_OUT = pytest.StashKey[Counter[str]]()

pytest.register_assert_rewrite("tests.support", "tests.table")

# a shared machine may be slow at any one example; what must be fast is measured by the benchmark
settings.register_profile("oip_asgi", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("oip_asgi")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the slow tests too, which are left out unless a file or a folder is named")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """A plain `pytest` uses all CPUs, where pytest-xdist is there; `-n 0` is one process. Slow tests have servers that want them."""
    is_plain = config.args_source is not pytest.Config.ArgsSource.ARGS and not config.getoption("--all") and not config.getoption("--pdb")
    is_first = not hasattr(config, "workerinput")
    if is_plain and is_first and config.getoption("numprocesses", 0) is None:
        # not "logical": with psutil, that is what the machine has, also where this process may use fewer
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        config.option.numprocesses, config.option.dist = cpus, "worksteal"


@pytest.fixture(autouse=True)
def usual_log_level() -> None:
    """What an application has that sets up no logging. Libraries that are imported within a test may have set another level."""
    logging.getLogger().setLevel(logging.WARNING)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are named by their argument: gzip's hold the time, and each process has to find tests of the same names."""
    return argname if isinstance(val, bytes) else None


def takes_all(config: pytest.Config) -> bool:
    return config.getoption("--all") or config.args_source is pytest.Config.ArgsSource.ARGS


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    is_left_out = collection_path.parent == TESTS and collection_path.name in PROCESSES and not takes_all(config)
    return True if is_left_out else None  # others may say no too


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.relative_to(TESTS).parts[0] in PROCESSES or item.get_closest_marker("ci"):
            item.add_marker(pytest.mark.slow)
    if takes_all(config):
        return
    left_out = [item for item in items if item.get_closest_marker("slow")]
    items[:] = [item for item in items if not item.get_closest_marker("slow")]
    config.hook.pytest_deselected(items=left_out)
    counts = Counter(item.path.relative_to(TESTS).parts[0] for item in left_out)
    config.stash[LEFT_OUT] = counts
    told: dict[str, dict[str, int]] = getattr(config, "workeroutput", {})  # what a process of pytest-xdist tells the one that prints
    told["left_out"] = dict(counts)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    left_out = getattr(node, "workeroutput", {}).get("left_out")
    if left_out is not None:  # it has not crashed
        node.config.stash[LEFT_OUT] = Counter(left_out)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from looking through ten thousand tests again and again, which takes a tenth of the time."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    left_out = config.stash.get(LEFT_OUT, None)
    if left_out is not None:
        folders = ", ".join(
            [
                *(f"{count:,} in tests/{folder}" for folder, count in sorted(left_out.items())),
                *(f"all in tests/{folder}" for folder in PROCESSES),
            ]
        )
        terminalreporter.write_line(f"left out: slow tests ({folders}); python -m pytest --all runs them too")
