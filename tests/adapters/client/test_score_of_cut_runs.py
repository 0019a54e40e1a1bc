"""The command that scores a file, where a run was cut before it wrote a line, and where another one writes the same file."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from oip_asgi import InferenceServer, OIPApp, TensorSpec
from tests.adapters.client.conftest import Score
from tests.support.threads import serving

ROWS = "".join(["area\n", *(f"{row}\n" for row in range(1, 21))])
SCORED = ["row,output_0", *(f"{row},{row}.0" for row in range(1, 21))]


class Waiting:
    """A model that waits until it may go on."""

    def __init__(self) -> None:
        self.has_begun, self.goes_on, self.url = threading.Event(), threading.Event(), ""

    def __call__(self, area: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        self.has_begun.set()
        self.goes_on.wait(30)
        return area


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    server, model = InferenceServer(), Waiting()
    server.register("waits", model, inputs=[TensorSpec("area", "FP64", [-1])])
    with serving(OIPApp(server, path="/v2")) as port:
        model.url = f"http://127.0.0.1:{port}/v2"
        yield model


@pytest.mark.parametrize("text", ["", '\n{"rows": "/ro'])
def test_a_run_that_was_cut_before_its_first_line_begins_again(score: Score, waiting: Waiting, tmp_path: Path, text: str) -> None:
    part = tmp_path / "s.csv.part.jsonl"
    part.write_text(text)
    waiting.goes_on.set()
    scored = score("waits", ROWS, "--resume", at=waiting.url, out="s.csv")
    assert (scored.status, scored.text.splitlines(), part.exists()) == (0, SCORED, False), scored.told


@pytest.mark.parametrize(
    ("of_first", "is_whole"), [({"scored": {"row": 1, "output_0": 1.0}}, True), ({"refused": {"row": 1, "reason": "no"}}, False)]
)
def test_a_run_goes_on_over_rows_that_are_all_refused_if_any_was_scored_before(
    score: Score, waiting: Waiting, tmp_path: Path, of_first: object, is_whole: bool
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("area\n1\nx\ny\n4\n5\n")
    begun = {"the file": str(rows), "its size": rows.stat().st_size, "its time": rows.stat().st_mtime, "the model": "waits"}
    journal = [{**begun, "--version": None, "--columns": []}, of_first]
    (tmp_path / "s.csv.part.jsonl").write_text("\n".join(map(json.dumps, journal)))
    waiting.goes_on.set()
    scored = score("waits", None, "--chunk", "2", "--resume", at=waiting.url, out="s.csv")
    assert (scored.status, "all of the first 2 rows are refused" in scored.told) == (1, not is_whole), scored.told
    assert scored.text.splitlines() == (["row,output_0", "1,1.0", "4,4.0", "5,5.0"] if is_whole else [])


def test_of_two_runs_with_one_file_the_second_is_refused(score: Score, waiting: Waiting, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(ROWS)
    run = partial(score, "waits", None, "--chunk", "5", at=waiting.url, out="s.csv")
    with ThreadPoolExecutor() as threads:
        first = threads.submit(run)
        try:
            assert waiting.has_begun.wait(30)
            second = run()
        finally:
            waiting.goes_on.set()
        assert first.result(60).status == 0
    assert (second.status, f"{tmp_path / 's.csv'}: a run has begun it: wait for its end" in second.told) == (2, True)
    assert second.text.splitlines() == SCORED


def test_a_run_that_scores_nothing_leaves_what_an_earlier_one_wrote(score: Score, waiting: Waiting, tmp_path: Path) -> None:
    waiting.goes_on.set()
    assert score("waits", ROWS, at=waiting.url, out="s.csv").status == 0
    failed = score("waits", "area\nx\n", at=waiting.url, out="s.csv")
    assert (failed.status, failed.text.splitlines()) == (1, SCORED)
    assert failed.told.startswith(
        f"0 of 1 rows are scored; refused: 1, with the reasons in {tmp_path / 's.refused.csv'}, such as: input 'area'"
    )
    stopped = score("unknown", ROWS, at=waiting.url, out="s.csv")
    assert (stopped.status, (tmp_path / "s.refused.csv").exists(), stopped.text.splitlines()) == (2, True, SCORED)


@pytest.mark.parametrize("text", ["area\n", "area\n\n"])
@pytest.mark.parametrize("out", ["s.csv", "s.jsonl", "s.parquet"])
def test_a_file_without_rows_has_an_output_without_rows(score: Score, waiting: Waiting, text: str, out: str) -> None:
    if out == "s.parquet":
        pytest.importorskip("pyarrow")
    waiting.goes_on.set()
    assert score("waits", ROWS, at=waiting.url, out=out).status == 0
    empty = score("waits", text, at=waiting.url, out=out)
    assert (empty.status, empty.told) == (0, f"0 of 0 rows are scored: {empty.out}\n")
    assert (empty.table.num_rows if out == "s.parquet" else empty.text) in (0, "")
