"""The command that scores a file: each format in and out, refused rows, a busy server, a run that was cut, and mistakes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from datetime import date, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder

from oip_asgi import InferenceError, InferenceServer, OIPApp, TensorSpec
from oip_asgi.client.__main__ import main as run
from oip_asgi.specs import specs_of
from tests.adapters.client.conftest import Score
from tests.support.threads import serving

COLUMNS = [TensorSpec("town", "BYTES", [-1], content_type="str"), TensorSpec("area", "FP64", [-1]), TensorSpec("floor", "INT64", [-1])]

DAYS = pd.DataFrame({"day": pd.to_datetime(["2024-01-31 09:30"]), "at": pd.to_datetime(["2024-01-31 09:30"]).tz_localize("Europe/Berlin")})


@dataclass
class Visit:
    name: str
    city: str | None
    plan: Literal["free"] | None
    day: date | None
    at: datetime | None


@dataclass
class DatedVisit:
    day: date


class Site:
    """Models behind a door that can be shut: what it answers is 503, or any status, while it is."""

    def __init__(self) -> None:
        self.server = server = InferenceServer()
        server.register("rent", self.rent, inputs=COLUMNS, outputs=[TensorSpec("rent", "FP64", [-1])], content_type="pd")
        matrix = [TensorSpec("X", "FP32", [-1, 2])]
        server.register("matrix", lambda X: {"sum": X.sum(1), "both": X}, inputs=matrix)  # noqa: N803
        server.register("open", lambda df: df, content_type="pd")
        server.register("plain", lambda x: x)
        server.register("pay", self.pay)
        server.register("kinds", self.name_kinds)
        server.register("flags", self.name_kinds, inputs=specs_of(pd.DataFrame({"a": [True, np.nan]}, dtype=object)))
        server.register("flag", self.name_kinds, inputs=specs_of(pd.DataFrame({"a": [True]})))
        server.register("odd", lambda df: np.arange(len(df)) if df["a"][0] == "x" else df["a"].to_list(), content_type="pd")
        server.register("days", lambda df: df.astype(str), inputs=specs_of(DAYS), content_type="pd")
        server.register("all", lambda X: X.sum(keepdims=True)[0, :1], inputs=matrix)  # noqa: N803
        server.register("sizes", lambda a: np.array(list(map(len, a))), inputs=[TensorSpec("a", "BYTES", [-1], content_type="base64")])
        server.register("times", self.multiply, content_type="pd")
        server.register("wait", self.wait)
        server.register("visits", self.visits)
        server.register("dated", self.dated)
        server.register("texts", self.texts)
        server.register("fails", self.fails)
        self._own = {model.name for model in server.models()}
        self._lock = threading.Lock()
        self._app = OIPApp(server, path="/v2")
        self.reset()

    def reset(self) -> None:
        """Open the door, and forget what a test has asked and registered."""
        self.status, self.shut_after, self.opens_again, self.asked, self.busy_for = 503, 10**9, 10**9, 0, 0
        self.sizes: list[int] = []
        for name in {model.name for model in self.server.models()} - self._own:
            self.server.unregister_sync(name)

    @staticmethod
    def rent(frame: pd.DataFrame) -> npt.NDArray[np.float64]:
        if (frame["area"] < 0).any():
            raise InferenceError("no flat is that small", status=422)
        return np.asarray(frame["area"] * 10 + frame["floor"] + frame["town"].str.len())

    @staticmethod
    def multiply(df: Any, factor: float = 10.0, power: int = 1) -> Any:
        return (df * factor) ** power

    @staticmethod
    def wait(seconds: float) -> float:
        return seconds

    @staticmethod
    def name_kinds(df: pd.DataFrame) -> list[str]:
        """The type of each value, as NaN and None leave alike."""
        return [f"{type(value).__name__} {value}" for value in df["a"]]

    @staticmethod
    def pay(
        age: Annotated[npt.NDArray[Any], TensorSpec("age", "FP32", [-1])],
        bonus: Annotated[npt.NDArray[Any] | None, TensorSpec("bonus", "FP32", [-1])] = None,
    ) -> npt.NDArray[Any]:
        return age - 1 if bonus is None else age + bonus

    @staticmethod
    def visits(rows: list[Visit]) -> list[str]:
        return list(map(str, map(astuple, rows)))

    @staticmethod
    def dated(rows: list[DatedVisit]) -> list[str]:
        return list(map(str, map(astuple, rows)))

    @staticmethod
    def texts(a: list[str]) -> list[str]:
        return a

    def fails(self, a: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        self.sizes.append(len(a))
        if (a < 0).any():
            raise ValueError
        return a

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            with self._lock:
                self.asked += scope["path"].endswith("/infer")
                is_shut = scope["path"].endswith("/infer") and self.shut_after < self.asked <= self.opens_again
                is_busy, self.busy_for = self.busy_for > 0, self.busy_for - 1
            if is_shut or is_busy:
                await send({"type": "http.response.start", "status": self.status, "headers": [(b"retry-after", b"0")]})
                await send({"type": "http.response.body", "body": b'{"error": "the door is shut"}'})
                return
        await self._app(scope, receive, send)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Site, str]]:
    site = Site()
    with serving(site) as port:
        yield site, f"http://127.0.0.1:{port}/v2"


@pytest.fixture
def site(served: tuple[Site, str]) -> Site:
    served[0].reset()
    return served[0]


@pytest.fixture
def url(served: tuple[Site, str], site: Site) -> str:
    return served[1]


@pytest.fixture
def score(score: Score, url: str) -> Score:
    return partial(score, at=url)


def stream_each(a: npt.NDArray[np.float64]) -> Iterator[npt.NDArray[np.float64]]:
    yield a


def rents(count: int = 10) -> str:
    return "\n".join(["id,town,area,floor", *(f"{row},a,{row}.0,{row % 3}" for row in range(1, count + 1))]) + "\n"


def rents_scored(count: int) -> list[str]:
    return ["row,rent", *(f"{row},{row * 10.0 + row % 3 + 1}" for row in range(1, count + 1))]


# Files in and out


def test_csv_with_refused_rows(score: Score, tmp_path: Path) -> None:
    rows = 'town,area,floor\nBonn,1.5,2\n"a, b",-1,0\nKiel,2,x\nKiel,,1\nÖ,4,-3\n'
    scored = score("rent", rows, out="scores.csv")
    assert (scored.status, scored.text) == (1, "row,rent\n1,21.0\n4,\n5,38.0\n")
    assert scored.refused == (
        "row,reason,town,area,floor\n"
        '2,no flat is that small,"a, b",-1,0\n'
        "3,input 'floor': data[0] is 'x': expected an integer for INT64,Kiel,2,x\n"
    )
    assert scored.told == (
        f"3 of 5 rows are scored: {scored.out}; refused: 2, with the reasons in {tmp_path / 'scores.refused.csv'}, "
        "such as: no flat is that small\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv", "scores.csv", "scores.refused.csv"]


def test_rows_keep_their_order_over_several_connections(score: Score, site: Site) -> None:
    assert score("rent", rents(100), "--chunk", "7", out="s.csv").text.splitlines() == rents_scored(100)
    assert site.asked == 15


def test_the_columns_of_an_array(score: Score) -> None:
    text = "the input 'X' has 2 columns, and 3 would be sent: name them, in the order of the training, by --columns"
    refused = score("matrix", "id,b,a\n7,1,2\n8,3,4.5\n", out="s.csv")
    assert (refused.status, refused.told) == (2, f"cannot be scored: {text}\n")
    scored = score("matrix", None, "--columns", "a,b", out="s.csv")
    assert (scored.status, scored.text) == (0, "row,sum,both_0,both_1\n1,3.0,2.0,1.0\n2,7.5,4.5,3.0\n")


def test_json_lines(score: Score) -> None:
    rows = [{"floor": 1, "town": "Ö", "area": 2.5}, {"town": "a", "area": "big", "floor": 1}, {"town": "b", "area": 1, "floor": 0}]
    rows.append({"floor": 2, "town": "a", "area": None})
    scored = score("rent", "\n".join(map(json.dumps, rows)), rows="rows.jsonl")
    assert scored.text == '{"row": 1, "rent": 27.0}\n{"row": 3, "rent": 11.0}\n{"row": 4, "rent": null}\n'
    refused = {
        "row": 2,
        "reason": "input 'area': data[0] is 'big': expected a number or None for FP64",
        **rows[1],
    }
    assert (scored.status, json.loads(scored.refused)) == (1, refused)


def test_parquet(score: Score, site: Site, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow.parquet")
    pd.DataFrame({"town": ["a"] * 20, "area": np.arange(20.0), "floor": np.arange(20)}).to_parquet(tmp_path / "rows.parquet")
    command = ("rent", None, "--chunk", "3", "--connections", "1")
    files: dict[str, Any] = {"rows": "rows.parquet", "out": "s.parquet"}
    site.shut_after, site.status = 3, 401
    assert score(*command, **files).status == 1
    site.shut_after = 10**9
    scored = score(*command, "--resume", **files)
    assert scored.status == 0
    assert scored.table.to_pydict() == {"row": list(range(1, 21)), "rent": [row * 11.0 + 1 for row in range(20)]}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.parquet", "s.parquet"]


def test_chunks_of_parquet(score: Score) -> None:
    pytest.importorskip("pyarrow.parquet")
    table = score("open", "t,n\n,1\nx,2.5\n", "--chunk", "1", out="s.parquet").table.to_pydict()
    assert table == {"row": [1, 2], "t": [None, "x"], "n": [1.0, 2.5]}
    for chunk in ("1", "2", "8"):  # a gap is null wherever a chunk ends
        gaps = score("open", "x,y\n,\n,\n,\n1,\n", "--chunk", chunk, out=f"{chunk}.parquet").table
        assert gaps["x"].to_pylist() == [None, None, None, 1.0]
        assert gaps["y"].null_count == 4
    misfits = score("odd", "a,b\nx,1\ny,2\n", "--chunk", "1", out="odd.parquet")
    assert (misfits.status, misfits.out.exists()) == (2, False)
    assert "odd.parquet would have a column of several types (" in misfits.told


def test_parquet_keeps_whole_numbers_beside_a_gap(score: Score, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pd.DataFrame({"x": pd.array([2**53 + 1, None, 7], "Int64")}).to_parquet(tmp_path / "rows.parquet")
    (tmp_path / "rows.jsonl").write_text(f'{{"x": {2**53 + 1}}}\n{{"x": null}}\n{{"x": 7}}\n')
    [first, *others] = score("open", None, rows="rows.parquet", out="of_parquet.jsonl").lines
    assert first == {"row": 1, "x": 2**53 + 1}
    assert [first, *others] == score("open", None, rows="rows.jsonl", out="of_json.jsonl").lines


def test_dates_and_bytes_of_parquet(score: Score, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    DAYS.reindex([0, 1]).to_parquet(tmp_path / "rows.parquet")
    assert score("days", None, rows="rows.parquet").lines == [
        {"row": 1, "day": "2024-01-31 09:30:00", "at": "2024-01-31 09:30:00+01:00"},
        {"row": 2, "day": "NaT", "at": "NaT"},
    ]
    pd.DataFrame({"a": [b"abcd", b"\xff"]}).to_parquet(tmp_path / "rows.parquet")
    assert score("sizes", None, rows="rows.parquet").values == [4, 1]
    assert score("sizes", "a\nYWJjZA==\n/w==\n", out="of_texts.jsonl").values == [4, 1]


# What is sent


@pytest.mark.parametrize(
    ("model", "rows", "values"),
    [
        ("pay", "age,bonus\n1e39,0\n1_0,0\n2,-1\n", [1.0]),  # a number that its datatype does not hold is refused
        ("open", "a\n1_0\n2\n", ["1_0", "2"]),
        ("pay", "age,bonus\n1e400,1\n-1e999,1\ninf,1\n-Infinity,1\n", ["Infinity", "-Infinity"]),
        ("open", "age\n1e400\ninf\n", ["1e400", "inf"]),  # a column of texts, as one of them is no number
        ("open", "a,b\n9007199254740994,1\n1.5,1\n", [9007199254740994.0, 1.5]),  # which floats hold
        ("open", "a,b\n9007199254740993,1\n1.5,1\n", [9007199254740993, 1.5]),
        ("open", "a,b\nx,1\n,1\n", ["x", None]),
        ("kinds", "a,b\nTrue,1\n,1\n", ["bool True", "NoneType None"]),
        ("open", "a,a\n1,2\n\n3,4\n\n", [1, 3]),  # a blank line is no row
        ("open", 'a\n1\n""\n3\n', [1.0, None, 3.0]),  # but a text without a letter is one
        ("flags", "a,b\nTrue,1\n,1\n", ["bool True", "float nan"]),
        ("flag", "a,b\nFalse,1\n1,1\n2,1\n", ["bool False", "bool True"]),
        ("flags", "a,b\nFalse,1\ntrue,1\n", ["bool False", "bool True"]),
        ("flags", "a,b\n7,1\nx,1\n", ["str 7", "str x"]),
        ("open", 't\n"a\rb"\nc\n', ["a\rb", "c"]),  # a carriage return does not end its row
    ],
)
def test_values_of_csv(score: Score, model: str, rows: str, values: list[Any]) -> None:
    assert score(model, rows).values == values


@pytest.mark.parametrize("datatype", ["BF16", "FP16", "FP64"])
def test_numbers_that_json_lacks_are_written_as_the_protocol_has_them(score: Score, site: Site, datatype: Literal["BF16", "FP16"]) -> None:
    pytest.importorskip("ml_dtypes")
    site.server.register("m", lambda x: x, inputs=[TensorSpec("x", datatype, [-1])], outputs=[TensorSpec("y", datatype, [-1])])
    assert score("m", "x\n1.5\nnan\ninf\n-inf\n").values == [1.5, None, "Infinity", "-Infinity"]


def test_values_of_json_lines(score: Score) -> None:
    rows = '{"age": 1e39}\n{"age": true}\n{"age": "2"}\n{"age": 2}\n'
    assert score("pay", rows, "--columns", "age", rows="rows.jsonl").lines == [{"row": 4, "output_0": 1.0}]
    # a column that only later lines have
    assert score("pay", '{"age": 1}\n{"age": 2, "bonus": 5}\n', rows="rows.jsonl").values == [None, 7.0]
    assert score("open", '{"x": 1}\n{"x": true}\n', "--chunk", "1", rows="rows.jsonl").values == [1, True]
    assert score("open", '{"a": true}\n{"a": null}\n{"a": false}\n', rows="rows.jsonl").values == [True, None, False]
    texts = score("texts", '{"a": "x"}\n{"a": null}\n', rows="rows.jsonl")
    reason = "data[0] is None: expected str or bytes for BYTES; for a missing value, the model has to take columns of a data frame"
    assert (texts.values, texts.refusals[0]["reason"]) == (["x"], f"input 'a': {reason}")


def test_columns_without_a_declaration(score: Score) -> None:
    scored = score("open", "n,x,t\n1,1,1\n2,0.5,b\n3,,c\n", "--chunk", "1")  # all values of a column count
    assert scored.lines[:2] == [{"row": 1, "n": 1, "x": 1.0, "t": "1"}, {"row": 2, "n": 2, "x": 0.5, "t": "b"}]
    scored = score("open", "a,b\n1,True\n2,false\n,True\n", "--chunk", "2")
    assert [(line["a"], line["b"]) for line in scored.lines] == [(1.0, True), (2.0, False), (None, True)]
    assert isinstance(scored.values[0], float)
    for chunk in ("1", "2", "9"):  # a text beside a missing one
        assert score("open", 't,b\nx,1\n"a ""b""",2\n,3\n', "--chunk", chunk).values == ["x", 'a "b"', None]


def test_columns_are_sent_also_where_only_scalars_are_declared_beside_a_frame(score: Score, site: Site) -> None:
    scored = score("times", "a,b\n1,2\n3,4.5\n").lines
    assert scored == [{"row": 1, "a": 10.0, "b": 20.0}, {"row": 2, "a": 30.0, "b": 45.0}]
    # a model of scalars alone takes one row at a time
    assert score("wait", "seconds\n1\n2\n3\n", "--chunk", "2").values == [1.0, 2.0, 3.0]


def test_names_of_columns(score: Score) -> None:
    assert score("matrix", "x,x\n1,2\n").lines == [{"row": 1, "sum": 3.0, "both": [1.0, 2.0]}]
    assert score("open", "x,x\n1,2\n").lines == [{"row": 1, "x": 1, "x.1": 2}]  # as pandas calls the second one
    near = score("pay", "age,Bonus\n1,5\n")  # or each row would have the default of an optional input
    told = (
        "the columns ['bonus'] cannot be sent: the file has ['age', 'Bonus'], and the model takes ['age', 'bonus']: "
        "rename them in the file, or name those to send by --columns"
    )
    assert (near.status, near.told) == (2, f"cannot be scored: {told}\n")
    assert score("pay", None, "--columns", "age").values == [0.0]
    assert score("pay", "age\n1\n").values == [0.0]  # no column may be meant for the optional input
    assert "the columns ['Bonus'] cannot be sent" in score("pay", None, "--columns", "age,Bonus").told


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize("cells", [["9007199254740993", "", "-5"], ["18446744073709551615", "", "1"], ["-9007199254740993", "2", ""]])
def test_whole_numbers_that_floats_would_round_are_whole_beside_a_gap(score: Score, cells: list[str], suffix: str) -> None:
    text = "a,b\n" + "".join(f"{cell},1\n" for cell in cells)
    if suffix == "jsonl":
        text = "".join(f'{{"a": {cell or "null"}, "b": 1}}\n' for cell in cells)
    for chunk in ("1", "4"):
        scored = score("kinds", text, "--chunk", chunk, rows=f"rows.{suffix}")
        assert scored.values == [f"int {cell}" if len(cell) > 9 else f"float {float(cell or 'nan')}" for cell in cells]


def test_an_empty_text_is_missing_where_a_frame_declares_the_column(score: Score, site: Site, tmp_path: Path) -> None:
    text = "town,fee\n" + "".join(f"{town},{fee}\n" for fee, town in enumerate(["Bonn", "", "Ulm", "NA"] * 3))
    (tmp_path / "rows.csv").write_text(text)
    frame = pd.read_csv(tmp_path / "rows.csv", keep_default_na=False, na_values=[""])
    encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["town"]), remainder="passthrough")
    pipeline = make_pipeline(encoder, LogisticRegression()).fit(frame, [0, 1, 0, 0] * 3)
    site.server.register("m", lambda df: pipeline.predict_proba(df)[:, 1], content_type="pd", inputs=specs_of(frame))
    site.server.register("none missed", lambda df: df["town"].isna().to_numpy(), content_type="pd", inputs=specs_of(frame.dropna()))
    for chunk in ("1", "8"):
        np.testing.assert_allclose(score("m", text, "--chunk", chunk).values, pipeline.predict_proba(frame)[:, 1])
        assert score("none missed", text, "--chunk", chunk).values == [False, True, False, False] * 3


def test_an_empty_cell_is_none_where_a_field_may_be_none(score: Score) -> None:
    text = "name,city,plan,day,at\nAda,Bonn,free,2026-01-31,2026-01-31T10:00:00\n,,,,\n"
    for chunk in ("1", "8"):
        assert score("visits", text, "--chunk", chunk).values == [
            "('Ada', 'Bonn', 'free', datetime.date(2026, 1, 31), datetime.datetime(2026, 1, 31, 10, 0))",
            "('', None, None, None, None)",
        ]
        dated = score("dated", 'day\n2026-01-31\n""\n', "--chunk", chunk)
        assert (len(dated.lines), "b'NaT'" in dated.refused) == (1, True), dated.refused


def is_second(frame: pd.DataFrame) -> pd.DataFrame:
    return (frame == 2**63 + 1).astype(int)


def test_what_pandas_reads_is_scored(score: Score, site: Site, tmp_path: Path) -> None:
    """Large whole numbers are no floats, and a gap is NaN, where a model takes several datatypes."""
    files = {
        "ids": ("id\n" + "".join(f"{2**53 + row % 3}\n" for row in range(12)), OneHotEncoder()),
        # numpy 2.0 cannot look such numbers up, as an encoder does
        "hashes": ("id\n" + "".join(f"{2**63 + row % 3}\n" for row in range(12)), FunctionTransformer(is_second)),
        "gaps": ("own\n" + 'True\n""\nFalse\n' * 4, make_pipeline(FunctionTransformer(), OneHotEncoder())),
    }
    for name, (text, encoder) in files.items():
        (tmp_path / "rows.csv").write_text(text)
        frame = pd.read_csv(tmp_path / "rows.csv", skip_blank_lines=False)
        classifier = make_pipeline(encoder, LogisticRegression()).fit(frame, [0, 1, 0] * 4)
        site.server.register(name, classifier.predict)
        expected = classifier.predict(frame).tolist()
        assert 1 in expected
        assert score(name, text).values == expected


@pytest.mark.parametrize("cell", ['{"b": 1}', "[1, 2]", '"x"'])
def test_what_is_no_number_is_refused(score: Score, site: Site, cell: str) -> None:
    classifier = LogisticRegression().fit([[1.0, 2.0], [3.0, 4.0]], [0, 1])
    site.server.register("numbers", classifier.predict)
    scored = score("numbers", '{"a": 1, "b": 2}\n' + f'{{"a": {cell}, "b": 2}}\n' + '{"a": 3, "b": 4}\n', rows="rows.jsonl")
    assert (scored.status, scored.values) == (1, [0, 1])


def test_what_is_no_text_is_refused_and_written_as_it_came(score: Score) -> None:
    rows = '{"town": "Bonn", "area": 1, "floor": 1}\n{"town": "\\ud800", "area": 1, "floor": 1}\n'
    scored = score("rent", rows, rows="rows.jsonl")
    assert (scored.status, len(scored.lines)) == (1, 1)
    assert '"town": "\\ud800"' in scored.refused


# A run


@pytest.mark.parametrize("status", [503, 502])  # with 502, a proxy says that a server is away
def test_a_busy_server_is_asked_again(score: Score, site: Site, status: int) -> None:
    site.status, site.shut_after, site.opens_again = status, 2, 5
    scored = score("rent", rents(), "--chunk", "2")
    assert (scored.status, len(scored.lines)) == (0, 10)


def test_a_run_that_is_cut_goes_on(score: Score, site: Site, tmp_path: Path) -> None:
    command = (None, "--chunk", "2", "--connections", "1")
    site.shut_after = 4
    begun = score("rent", rents(20), *command[1:], "--patience", "0", out="s.csv")
    assert (begun.status, 1 < len(begun.text.splitlines()) < 21) == (1, True)
    assert "stopped, as the server answered with the status 503: the door is shut" in begun.told
    part = tmp_path / "s.csv.part.jsonl"
    assert part.read_text().count("scored") == len(begun.text.splitlines()) - 1
    part.write_text(part.read_text() + '\n{"scored": {"row": 9, "re')  # a line that was cut
    site.shut_after = 10**9
    again = score("rent", *command, out="s.csv")
    assert again.status == 2
    assert f"a run has begun it: wait for its end; if it was cut, go on with --resume, or remove {part}" in again.told
    for model, columns, other in (("matrix", "area,floor", "the model, --columns"), ("rent", "town,area,floor", "--columns")):
        told = f"--resume: other than in the run that was begun: {other}. To begin anew, remove {part}\n"
        refused = score(model, *command, "--columns", columns, "--resume", out="s.csv")
        assert (refused.status, refused.told) == (2, f"cannot be scored: {told}")
    asked = site.asked
    scored = score("rent", *command, "--resume", out="s.csv")
    assert (scored.status, scored.text.splitlines()) == (0, rents_scored(20))
    assert site.asked - asked < 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv", "s.csv"]
    # where no run was cut, this is a new one
    anew = score("rent", *command, "--resume", out="s.csv")
    assert (anew.status, anew.text.splitlines(), part.exists()) == (0, rents_scored(20), False)


@pytest.mark.parametrize(("out", "name"), [("s.csv", "p_0"), ("s.csv", "row"), ("s.jsonl", "row")])
def test_no_column_of_the_output_takes_the_place_of_another(score: Score, site: Site, out: str, name: str) -> None:
    site.server.register("named", lambda x: {name: x, "p": np.stack([x, x], 1)}, inputs=[TensorSpec("x", "FP64", [-1])])
    stopped = score("named", "x\n1.5\n2.5\n", out=out)
    assert (stopped.status, "stopped, as two columns of the output have the same name, of ['row', " in stopped.told) == (1, True)
    assert stopped.text == ""


def test_it_stops_where_no_row_can_be_scored(score: Score) -> None:
    stopped = score("rent", "town,area,floor\n" + "a,-1,0\n" * 50, "--chunk", "4", out="s.csv")
    assert stopped.status == 1
    assert "; refused: 4, with the reasons in" in stopped.told
    assert "s.refused.csv, such as: no flat is that small; stopped, as all of the first 4 rows are refused\n" in stopped.told
    assert not list(stopped.out.parent.glob("*.part.jsonl"))  # nothing is scored, so the next run begins anew
    stopped = score("all", "a,b\n1,2\n3,4\n", out="t.csv")
    assert "the model does not score row by row: the output 'output_0' of 2 rows has the shape [1]" in stopped.told
    stopped = score("plain", "a,b\n1,2\n3,4\n", out="u.csv")  # which declares nothing
    assert ", such as: unknown input 'a': expected 'x'\n" in stopped.told


def test_a_model_that_fails_with_the_first_rows_is_not_asked_for_each(score: Score, site: Site) -> None:
    stopped = score("fails", "a\n" + "-1.5\n" * 100, "--chunk", "4", out="s.csv")
    assert (stopped.status, site.sizes) == (1, [4, 1, 1, 1, 1])
    assert "such as: model 'fails' failed: see the server's log; stopped, as all of the first 4 rows are refused" in stopped.told
    mixed = score("fails", "a\n" + "-1.5\n1.5\n" * 8, out="t.csv")
    assert (mixed.status, "8 of 16 rows are scored" in mixed.told) == (1, True)


NAMES = "'rent', 'matrix', 'open', 'plain', 'pay', 'kinds', 'flags', 'flag', 'odd', 'days' and 8 more; did you mean 'rent'?"
FAR = '{"town": "a", "area": Infinity, "floor": 2}\n{"town": "a", "area": -1e400, "floor": 2}'


@pytest.mark.parametrize(
    ("model", "rows", "text", "out", "error"),
    [
        ("rent", "no.csv", None, "s.csv", "No such file or directory"),
        ("rent", "rows.csv", rents(), "s.txt", "s.txt: expected names that end with .csv, .jsonl or .parquet"),
        ("rent", "rows.csv", rents(), "rows.csv", "rows.csv is a file that this run writes: choose another --out"),
        ("rent", "s.refused.csv", rents(), "s.csv", "s.refused.csv is a file that this run writes: choose another --out"),
        ("rent", "empty.csv", "", "s.csv", "empty.csv: No columns to parse from file"),
        ("rent", "other.csv", "x,y\n1,2\n", "s.csv", "the file has ['x', 'y'], and the model takes ['town', 'area', 'floor']"),
        ("rnt", "rows.csv", rents(), "s.csv", f"'rnt' is not found: expected {NAMES}"),
        ("rent", "long.csv", f"town\n{'a' * 200_000}\n", "s.csv", "long.csv: field larger than field limit (131072)"),
        ("open", "rows.csv", 'a,t\n1,"x\n2,y\n', "s.csv", "rows.csv: unexpected end of data"),
        ("open", "first.csv", "a,b\n1,2,3\n", "s.csv", "first.csv: a row has 3 values, and the file has 2 columns"),
        ("open", "long.csv", "a,b\n1,2\n3,4,5\n", "s.csv", "long.csv, after row 1: a row has 3 values, and the file has 2 columns"),
        (
            "rent",
            "cut.jsonl",
            '{"town": "a", "area": 1, "floor": 2}\n{"town"',
            "s.csv",
            "cut.jsonl, after row 1: Expecting ':' delimiter\n",
        ),
        ("rent", "number.jsonl", '{"town": "a"}\n5', "s.csv", "number.jsonl, after row 1: expected an object in each line"),
        ("open", "unnamed.jsonl", '{"": 1}', "s.csv", "expected an object in each line, whose keys are the names of columns"),
        ("open", "short.csv", "a,b\n1,2\n3\n", "s.csv", "short.csv, after row 1: a row has 1 values, and the file has 2 columns"),
        ("rent", "far.jsonl", FAR, "s.csv", "far.jsonl, after row 1: -1e400 is out of range for FP64"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_a_mistake_is_told_before_anything_is_sent(
    score: Score, site: Site, model: str, rows: str, text: str | None, out: str, error: str
) -> None:
    refused = score(model, text, rows=rows, out=out)
    assert (refused.status, error in refused.told, site.asked) == (2, True, 0), refused.told


def test_the_commands_of_the_client(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.csv").write_text(rents())
    assert run(["score", url, "rent", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "s.csv")]) == 0
    assert "rows are scored" in capsys.readouterr().err
    assert run(["--help"]) == 0
    assert "score URL MODEL ROWS --out FILE" in capsys.readouterr().out
    assert run(["scores", url]) == run([]) == 2
    assert capsys.readouterr().err.count("usage: python -m oip_asgi.client COMMAND") == 2


@pytest.mark.parametrize("command", ["score", "check"])
def test_each_command_says_its_options(command: str) -> None:
    asked = [sys.executable, "-m", "oip_asgi.client", command, "--help"]
    told = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout
    assert told.startswith(f"usage: python -m oip_asgi.client {command} ")


def test_without_pandas_it_says_what_to_install() -> None:
    script = "import sys; sys.modules['pandas'] = None; from oip_asgi.client.__main__ import main; sys.exit(main(['score']))"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr.endswith(": score needs pandas: pip install pandas\n")) == (2, True)


@pytest.mark.parametrize("option", ["--chunk", "--connections"])
def test_a_request_has_a_row_and_a_connection(score: Score, option: str) -> None:
    refused = score("rent", rents(), option, "0")
    assert (refused.status, "--chunk and --connections: expected 1 or more" in refused.told) == (2, True)


def test_a_run_is_not_resumed_with_rows_that_have_changed(score: Score, site: Site, tmp_path: Path) -> None:
    site.shut_after, site.status = 1, 401
    assert score("rent", rents(), "--chunk", "4").status == 1
    rows = tmp_path / "rows.csv"
    rows.write_text(rents().replace("a,1.0", "a,2.0"))
    os.utime(rows, (1, 1))
    resumed = score("rent", None, "--resume")
    assert (resumed.status, "--resume: other than in the run that was begun: its time. To" in resumed.told) == (2, True), resumed.told
    (tmp_path / "s.jsonl.part.jsonl").write_text("[1]\n")
    assert score("rent", None, "--resume").status == 2


def test_the_first_question_waits_too(score: Score, site: Site) -> None:
    site.busy_for = 3
    waited = score("rent", rents())
    assert (waited.status, waited.told.splitlines()[:-1]) == (
        0,
        ["the server answered with the status 503: the door is shut: trying again for 60 s"],
    )
    site.busy_for = 1
    refused = score("rent", rents(), "--patience", "0", out="again.jsonl")
    assert (refused.status, refused.told) == (2, "cannot be scored: the server answered with the status 503: the door is shut\n")


def test_a_model_that_streams_is_asked_once(score: Score, site: Site) -> None:
    site.server.register("streams", stream_each)
    stopped = score("streams", "a\n1.5\n2.5\n" * 20)
    assert (stopped.status, site.asked, stopped.text) == (1, 1, "")
    assert "; stopped, as the server answered with the status 400: model 'streams' answers with a stream: use" in stopped.told


def test_a_file_of_requests_is_no_file_of_rows(score: Score) -> None:
    told = score("visits", '{"rows": [{"name": "Ada"}]}\n', rows="rows.jsonl").told
    assert "the file has ['rows'], and the model takes ['name', 'city', 'plan', 'day', 'at']" in told


def test_a_terminal_shows_how_far_it_is(score: Score, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    # of this module alone: the event loops of the servers here would sleep for hours by such a clock
    monkeypatch.setattr("oip_asgi.client.score.time", SimpleNamespace(monotonic=iter(range(10**6)).__next__))
    assert "\r3 of 10 rows, " in score("rent", rents(), "--chunk", "3").told
