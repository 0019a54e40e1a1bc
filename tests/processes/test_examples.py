"""Every example is run, as it is."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.processes import ROOT


def check(name: str, *interpreter: str) -> list[str]:
    """The lines that an example prints."""
    command = [sys.executable, *(interpreter or [f"examples/{name}"]), "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", ["quickstart.py", "flask_app.py"])
def test_an_example_answers_as_its_model(name: str) -> None:
    lines = check(name)
    rows = {line[:10].strip(): line[10:].split() for line in lines}
    assert rows["JSON"] == rows["binary"]
    assert sum(answer == truth for answer, truth in zip(rows["JSON"], rows["true digit"], strict=True)) >= 14
    assert lines[-1] == "The answers are the model's own."


def test_the_example_with_numbers_counts_what_it_was_sent() -> None:
    lines = check("metrics.py")
    assert [line.split()[-1] for line in lines[:5]] == ["200", "200", "200", "400", "400"]
    assert {"oip_requests_total ok 3", "oip_requests_total invalid 2", "oip_model_ready  1"} <= set(lines)


def test_the_example_of_batches_calls_its_model_for_several_requests_at_once() -> None:
    plain, batched = (line.split() for line in check("batching.py"))
    assert plain[:4] == ["digits", "256", "requests,", "256"]
    assert batched[:3] == ["digits_batched", "256", "requests,"]
    assert int(batched[3]) < 128


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("client.py", "[0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 16.0, 18.0]"),
        ("pipeline.py", "from Python  [1.0] [b'great', b'bad']"),
        ("shared_memory.py", "shared memory   doubled"),
        ("authorize.py", "Each user may do what the table says."),
        ("shared_model/start.py", "One copy of the model answers all workers."),
        ("drift_report.py", "drifted: proline"),
        ("aiohttp_adapter.py", "aiohttp answers as every host does."),
        ("reload_on_change.py", "answers came from ('1', 5000) ('2', 10000) ('2', 15000) ('1', 5000)"),
    ],
)
def test_an_example_checks_itself(name: str, last: str) -> None:
    assert check(name)[-1] == last


def test_reload_on_change_looks_by_itself_where_watchfiles_is_not_installed() -> None:
    code = "import sys, runpy; sys.modules['watchfiles'] = None; runpy.run_path('examples/reload_on_change.py', run_name='__main__')"
    assert check("", "-c", code)


def test_every_example_is_a_script_that_is_run_by_a_test_or_its_part() -> None:
    assert {path.name for path in (ROOT / "examples").glob("*.py")} == {
        "ray_serve.py",  # in matrix/check_ray, with Ray
        "stream_text.py",  # in test_stream_examples
        *("digits.py", "quickstart.py", "flask_app.py", "grpc_server.py", "grpc_mounted.py", "metrics.py", "pipeline.py"),
        *("aiohttp_adapter.py", "authorize.py", "batching.py", "client.py", "drift_report.py"),
        *("reload_on_change.py", "shared_memory.py"),
        *("frame_app.py", "client_httpx2.py", "client_requests.py", "image_codec.py"),  # in test_codec_examples
    }
