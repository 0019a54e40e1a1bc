"""The command that scores a file, where rows are refused: which they are, and what is written of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from starlette.responses import JSONResponse, Response

from oip_asgi import InferenceError, InferenceServer, OIPApp, TensorSpec
from oip_asgi.client.__main__ import main
from oip_asgi.specs import specs_of
from tests.support.threads import serving

METADATA = {"name": "m", "inputs": [{"name": "a", "datatype": "FP64", "shape": [-1]}]}


class Guest(TypedDict):
    age: int
    kind: Literal["adult", "child"]


def count_ages(rows: list[Guest]) -> list[float]:
    return [float(row["age"]) for row in rows]


def refuse_rows(model: str, tmp_path: Path, name: str, text: str) -> list[dict[str, Any]]:
    server, rows, out = InferenceServer(), tmp_path / name, tmp_path / "s.jsonl"
    rows.write_text(text)
    server.register("column", lambda a: a, inputs=[TensorSpec("row 0", "FP64", [-1], minimum=0.0)])
    server.register("matrix", lambda X: X, inputs=[TensorSpec("X", "FP64", [-1, 2], minimum=0.0)])  # noqa: N803
    server.register("guests", count_ages)
    server.register("small", lambda a: a, inputs=[TensorSpec("a", "UINT8", [-1])])
    sizes = pd.DataFrame({"size": pd.Categorical(["S", "M"])})
    server.register("sizes", lambda df: np.arange(len(df)), inputs=specs_of(sizes), content_type="pd")
    with serving(OIPApp(server, path="/v2")) as port:
        assert main(["score", f"http://127.0.0.1:{port}/v2", model, str(rows), "--out", str(out), "--chunk", "3"]) == 1
    return [json.loads(line) for line in out.with_suffix(".refused.jsonl").read_text().splitlines()]


def score_open(file: Path) -> int:
    """Score a file, as s.jsonl beside it, with a model that takes any columns, and returns them."""
    server = InferenceServer()
    server.register("open", lambda df: df, content_type="pd")
    with serving(OIPApp(server, path="/v2")) as port:
        return main(["score", f"http://127.0.0.1:{port}/v2", "open", str(file), "--out", str(file.with_name("s.jsonl"))])


@pytest.mark.parametrize(
    ("model", "text", "reasons"),
    [
        (
            "column",
            "row 0\n1\n2\n3\n4\n-5\nx\n",
            {5: "input 'row 0', row 0: -5.0 is out of range", 6: "input 'row 0': data[0] is 'x': expected a number"},
        ),
        (
            "small",
            "a\n7\n300\n2.5\n",
            {2: "input 'a': data: element 0 is out of range for UINT8", 3: "input 'a': data[0] is 2.5: expected an integer for UINT8"},
        ),
        ("matrix", "a,b\n1,2\n3,4\n5,6\n7,-8\n", {4: "input 'X', row 0, column 1: -8.0 is out of range"}),
        ("guests", "age,kind\n7,child\n8,row 0\n", {2: "rows[0].kind: expected 'adult' or 'child', got 'row 0'"}),
        ("sizes", "size,b\nS,1\nM,1\nS,1\nXL,1\n", {4: "column 'size', row 0: 'XL' is no category: expected 'M', 'S'"}),
    ],
)
def test_a_reason_is_about_the_row_as_it_was_sent_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str, text: str, reasons: dict[int, str]
) -> None:
    refused = refuse_rows(model, tmp_path, "rows.csv", text)
    assert [each["row"] for each in refused] == list(reasons)
    for each, reason in zip(refused, reasons.values(), strict=True):
        assert each["reason"].startswith(reason)
    assert f", such as: {refused[0]['reason']}" in capsys.readouterr().err


def test_a_reason_says_what_the_model_would_have_to_take(tmp_path: Path) -> None:
    refused = refuse_rows("small", tmp_path, "rows.jsonl", '{"a": null}\n{"a": 2}\n{"a": "; for dates, write 2"}\n')
    assert [each["reason"] for each in refused] == [
        "input 'a': data[0] is None: expected an integer for UINT8; for a missing value, the model has to declare a column, such as "
        'x: pd.Series, with pd_dtype="UInt8"',
        "input 'a': data[0] is '; for dates, write 2': expected an integer for UINT8",
    ]


@pytest.mark.parametrize(("bad", "most"), [({100}, 1 + 4 * 4), (set(range(0, 256, 2)), 1 + 4 + 16 + 64 + 256)])
def test_few_requests_find_the_refused_rows(tmp_path: Path, bad: set[int], most: int) -> None:
    asked = list[int]()

    def score(a: np.ndarray) -> np.ndarray:
        asked.append(len(a))
        if bad & {*a.tolist()}:
            raise InferenceError("a bad row", status=422)
        return a

    server, rows, out = InferenceServer(), tmp_path / "rows.csv", tmp_path / "s.csv"
    rows.write_text("\n".join(["a", *map(str, range(256))]) + "\n")
    server.register("m", score, inputs=[TensorSpec("a", "INT64", [-1])])
    with serving(OIPApp(server, path="/v2")) as port:
        assert main(["score", f"http://127.0.0.1:{port}/v2", "m", str(rows), "--out", str(out)]) == 1
    assert len(asked) <= most
    refused = pd.read_csv(tmp_path / "s.refused.csv")
    assert {*refused["a"]} == bad
    assert [*refused["row"]] == sorted(each + 1 for each in bad)
    assert len(pd.read_csv(out)) == 256 - len(bad)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_row_and_reason_are_those_of_the_command(tmp_path: Path, suffix: str) -> None:
    rows = {
        "csv": "a,row,reason,row.1\n300,seat 4,late,x\n7,seat 5,,y\n",
        "jsonl": '{"a": 300, "row": "seat 4", "reason": "late", "row.1": "x"}\n{"a": 7, "row": "seat 5"}\n',
    }
    refused = refuse_rows("small", tmp_path, f"rows.{suffix}", rows[suffix])
    reason, given = "input 'a': data: element 0 is out of range for UINT8: expected 0 to 255", "300" if suffix == "csv" else 300
    assert [list(each.items()) for each in refused] == [[("row", 1), ("reason", reason), ("a", given), ("row.1", "x")]]


def test_two_columns_of_parquet_with_one_name_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, file = pytest.importorskip("pyarrow").Table.from_arrays([[1.0], [2.0]], names=["x", "x"]), tmp_path / "rows.parquet"
    pytest.importorskip("pyarrow.parquet").write_table(table, file)
    assert score_open(file) == 2
    assert f"{file}: two of its columns have the same name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("\na\n", "a row has 1 values, and the file has 0 columns"),
        ("\n\na,b\n1,2\n", "a row has 2 values, and the file has 0 columns"),
        ("\r\na,b\r\n1,2\r\n", "a row has 2 values, and the file has 0 columns"),
        ("\ufeff\na,b\n1,2\n", "a row has 2 values, and the file has 1 columns"),
    ],
)
def test_a_blank_first_line_is_no_names(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, told: str) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(text, newline="", encoding="utf-8")
    assert score_open(file) == 2
    assert capsys.readouterr().err == f"cannot be scored: {file}: {told}\n"


@pytest.mark.parametrize("text", ["a,b\n\n1,2\n", "a,b\r\n\r\n\r\n1,2\r\n\r\n"])
def test_blank_lines_after_the_names_are_no_rows(tmp_path: Path, text: str) -> None:
    file = tmp_path / "rows.csv"
    file.write_text(text, newline="")
    assert score_open(file) == 0
    assert json.loads((tmp_path / "s.jsonl").read_text()) == {"row": 1, "a": 1, "b": 2}


def test_a_row_with_which_another_server_fails_is_refused_alone(tmp_path: Path) -> None:
    """A model that asks another server, such as one of `remote`, answers 502 in JSON: the server itself is there."""

    def ask_another(a: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        if (a < 0).any():
            raise InferenceError("the other server failed", status=502)
        return a

    server, rows, out = InferenceServer(), tmp_path / "rows.csv", tmp_path / "s.csv"
    rows.write_text("a\n1\n-2\n3\n")
    server.register("m", ask_another, inputs=[TensorSpec("a", "FP64", [-1])])
    with serving(OIPApp(server, path="/v2")) as port:
        assert main(["score", f"http://127.0.0.1:{port}/v2", "m", str(rows), "--out", str(out)]) == 1
    assert out.read_text() == "row,output_0\n1,1.0\n3,3.0\n"
    assert "the other server failed" in (tmp_path / "s.refused.csv").read_text()


def test_a_reason_is_never_empty(tmp_path: Path) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        reply = Response(status_code=400) if scope["path"].endswith("/infer") else JSONResponse(METADATA)
        await reply(scope, receive, send)

    rows, out = tmp_path / "rows.csv", tmp_path / "s.csv"
    rows.write_text("a\n1\n")
    with serving(app) as port:
        assert main(["score", f"http://127.0.0.1:{port}/v2", "m", str(rows), "--out", str(out)]) == 1
    assert "status 400" in (tmp_path / "s.refused.csv").read_text()
