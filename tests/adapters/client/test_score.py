"""The command that scores a file: each format in and out, refused rows, a busy server, a run that was cut, and mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from datetime import date, datetime
from pathlib import Path
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
from oip_asgi.client.score import Progress, main
from oip_asgi.specs import specs_of
from tests.support.threads import serving

COLUMNS = [TensorSpec("town", "BYTES", [-1], content_type="str"), TensorSpec("area", "FP64", [-1]), TensorSpec("floor", "INT64", [-1])]

DAYS = pd.DataFrame({"day": pd.to_datetime(["2024-01-31 09:30"]), "at": pd.to_datetime(["2024-01-31 09:30"]).tz_localize("Europe/Berlin")})


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
        server.register("odd", lambda df: np.arange(len(df)) if df["a"][0] == "x" else df["a"].to_list(), content_type="pd")
        server.register("days", lambda df: df.astype(str), inputs=specs_of(DAYS), content_type="pd")
        server.register("all", lambda X: X.sum(keepdims=True)[0, :1], inputs=matrix)  # noqa: N803
        server.register("sizes", lambda a: np.array(list(map(len, a))), inputs=[TensorSpec("a", "BYTES", [-1], content_type="base64")])
        server.register("times", self.multiply, content_type="pd")
        server.register("wait", self.wait)
        self.status, self.shut_after, self.asked = 503, 10**9, 0
        self.opens_again = 10**9
        self._lock = threading.Lock()
        self._app = OIPApp(server, path="/v2")

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

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].endswith("/infer"):
            with self._lock:
                self.asked += 1
                is_shut = self.shut_after < self.asked <= self.opens_again
            if is_shut:
                await send({"type": "http.response.start", "status": self.status, "headers": [(b"retry-after", b"0")]})
                await send({"type": "http.response.body", "body": b'{"error": "the door is shut"}'})
                return
        await self._app(scope, receive, send)


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def url(site: Site) -> Iterator[str]:
    with serving(site) as port:
        yield f"http://127.0.0.1:{port}/v2"


def rent_of(row: int) -> float:
    return row * 10.0 + row % 3 + 1


def write_rents(file: Path, count: int = 10) -> None:
    lines = [f"{row},a,{row}.0,{row % 3}" for row in range(1, count + 1)]
    file.write_text("\n".join(["id,town,area,floor", *lines]) + "\n")


def test_csv_with_refused_rows(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, out = tmp_path / "rows.csv", tmp_path / "scores.csv"
    rows.write_text('town,area,floor\nBonn,1.5,2\n"a, b",-1,0\nKiel,2,x\nKiel,,1\nKiel,3\nÖ,4,-3\n')
    assert main([url, "rent", str(rows), "--out", str(out)]) == 1
    assert out.read_text() == "row,rent\n1,21.0\n4,\n6,38.0\n"
    assert (tmp_path / "scores.refused.csv").read_text() == (
        "row,reason,town,area,floor\n"
        '2,no flat is that small,"a, b",-1,0\n'
        "3,floor is 'x': expected INT64,Kiel,2,x\n"
        '5,"it has 2 values, and the file has 3 columns",Kiel,3\n'
    )
    assert capsys.readouterr().err == (
        f"3 of 6 rows are scored: {out}; 3 are refused, each with its reason in {tmp_path / 'scores.refused.csv'} "
        "(the first: no flat is that small)\n"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.csv", "scores.csv", "scores.refused.csv"]


def test_rows_keep_their_order_over_several_connections(url: str, site: Site, tmp_path: Path) -> None:
    write_rents(tmp_path / "rows.csv", 100)
    assert main([url, "rent", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "s.csv"), "--chunk", "7"]) == 0
    assert (tmp_path / "s.csv").read_text().splitlines() == ["row,rent", *(f"{row},{rent_of(row)}" for row in range(1, 101))]
    assert site.asked == 15


def test_the_columns_of_an_array(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.csv").write_text("id,b,a\n7,1,2\n8,3,4.5\n")
    command = [url, "matrix", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "s.csv")]
    assert main(command) == 2
    text = "the input 'X' has 2 columns, and the file 3: name them, in the order of the training, by --columns"
    assert capsys.readouterr().err == f"cannot be scored: {text}\n"
    assert main([*command, "--columns", "a,b"]) == 0
    assert (tmp_path / "s.csv").read_text() == "row,sum,both_0,both_1\n1,3.0,2.0,1.0\n2,7.5,4.5,3.0\n"


def test_a_model_that_declares_nothing_gets_what_all_values_of_a_column_are(url: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("n,x,t\n1,1,1\n2,0.5,b\n3,,c\n")
    assert main([url, "open", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "s.jsonl"), "--chunk", "1"]) == 0
    scored = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    assert scored[:2] == [{"row": 1, "n": 1, "x": 1.0, "t": "1"}, {"row": 2, "n": 2, "x": 0.5, "t": "b"}]


def test_columns_are_sent_also_where_only_scalars_are_declared_beside_a_frame(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert score_lines(url, "times", tmp_path / "rows.csv", "a,b\n1,2\n3,4.5\n") == [
        {"row": 1, "a": 10.0, "b": 20.0},
        {"row": 2, "a": 30.0, "b": 45.0},
    ]
    assert score_lines(url, "times", tmp_path / "rows.csv", "a\nx\n") == []
    assert "The model takes a data frame, and declares nothing of its columns" in capsys.readouterr().err


def test_a_model_of_scalars_alone_is_not_asked(url: str, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for names in ("a,b", "seconds,b"):
        (tmp_path / "rows.csv").write_text(names + "\n" + "1,2\n" * 300)
        assert main([url, "wait", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "s.csv")]) == 2
        has = ", ".join(map(repr, names.split(",")))
        assert capsys.readouterr().err == f"cannot be scored: the model takes 'seconds': the file has {has}\n"
    assert site.asked == 0


def test_json_lines(url: str, tmp_path: Path) -> None:
    missing = {"floor": 2, "town": "a", "area": None}
    rows = [{"floor": 1, "town": "Ö", "area": 2.5}, {"town": "a", "area": "big", "floor": 1}, {"town": "b", "area": 1, "floor": 0}, missing]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert main([url, "rent", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "s.jsonl")]) == 1
    assert (tmp_path / "s.jsonl").read_text() == '{"row": 1, "rent": 27.0}\n{"row": 3, "rent": 11.0}\n{"row": 4, "rent": null}\n'
    refused = json.loads((tmp_path / "s.refused.jsonl").read_text())
    assert refused == {"row": 2, "reason": "area is 'big': expected FP64", "columns": {"floor": 1, "town": "a", "area": "big"}}


def test_parquet(url: str, site: Site, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    frame = pd.DataFrame({"town": ["a"] * 20, "area": np.arange(20.0), "floor": np.arange(20)})
    frame.to_parquet(tmp_path / "rows.parquet")
    command = [url, "rent", str(tmp_path / "rows.parquet"), "--out", str(tmp_path / "s.parquet"), "--chunk", "3", "--connections", "1"]
    site.shut_after, site.status = 3, 401
    assert main(command) == 1
    site.shut_after = 10**9
    assert main([*command, "--resume"]) == 0
    table = parquet.read_table(tmp_path / "s.parquet").to_pydict()
    assert table == {"row": list(range(1, 21)), "rent": [row * 11.0 + 1 for row in range(20)]}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.parquet", "s.parquet"]


def test_parquet_of_chunks_of_other_types(url: str, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "rows.csv").write_text("t,n\n,1\nx,2.5\n")
    assert main([url, "open", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "s.parquet"), "--chunk", "1"]) == 0
    table = parquet.read_table(tmp_path / "s.parquet").to_pydict()
    assert table == {"row": [1, 2], "t": [None, "x"], "n": [1.0, 2.5]}


def score_lines(url: str, model: str, rows: Path, text: str, *more: str) -> list[Any]:
    rows.write_text(text, newline="")
    out = rows.with_name("lines.jsonl")
    main([url, model, str(rows), "--out", str(out), *more])
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def test_two_columns_of_one_name_are_not_taken_for_one(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.csv"
    assert score_lines(url, "matrix", rows, "x,x\n1,2\n") == [{"row": 1, "sum": 3.0, "both": [1.0, 2.0]}]
    for model, more in (("open", ()), ("matrix", ("--columns", "x,y"))):
        rows.write_text("x,x,y\n1,2,3\n")
        assert main([url, model, str(rows), "--out", str(tmp_path / "s.csv"), *more]) == 2
        assert "the file has the column 'x' 2 times: rename them, so that each has its own name" in capsys.readouterr().err


def test_a_number_that_its_datatype_does_not_hold_is_refused(url: str, tmp_path: Path) -> None:
    assert score_lines(url, "pay", tmp_path / "rows.csv", "age\n1e39\n1_0\n2\n") == [{"row": 3, "output_0": 1.0}]
    lines = '{"age": 1e39}\n{"age": true}\n{"age": "2"}\n{"age": 2}\n'
    assert score_lines(url, "pay", tmp_path / "rows.jsonl", lines) == [{"row": 4, "output_0": 1.0}]
    assert score_lines(url, "open", tmp_path / "rows.csv", "a\n1_0\n2\n") == [{"row": 1, "a": "1_0"}, {"row": 2, "a": "2"}]


@pytest.mark.parametrize("model", ["pay", "open"])
def test_digits_beyond_all_floats_are_refused_and_no_infinity(url: str, tmp_path: Path, model: str) -> None:
    scored = score_lines(url, model, tmp_path / "rows.csv", "age\n1e400\n-1e999\ninf\n-Infinity\n")
    assert [(line["row"], *list(line.values())[1:]) for line in scored] == [(3, "Infinity"), (4, "-Infinity")]


def test_large_whole_numbers_that_floats_hold_may_stand_beside_fractions(url: str, tmp_path: Path) -> None:
    scored = score_lines(url, "open", tmp_path / "rows.csv", "a,b\n9007199254740994,1\n1.5,1\n")
    assert [line["a"] for line in scored] == [9007199254740994.0, 1.5]


def test_a_column_that_only_later_lines_have_is_sent(url: str, tmp_path: Path) -> None:
    scored = score_lines(url, "pay", tmp_path / "rows.jsonl", '{"age": 1}\n{"age": 2, "bonus": 5}\n')
    assert scored == [{"row": 1, "output_0": None}, {"row": 2, "output_0": 7.0}]


@pytest.mark.parametrize("name", [" bonus", "Bonus"])
def test_a_column_that_is_nearly_called_as_an_input_is_told(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert score_lines(url, "pay", tmp_path / "rows.csv", f"age,{name}\n1,5\n") == []
    assert f"the file has no column 'bonus', but '{name}': rename it" in capsys.readouterr().err


def test_a_text_beside_a_missing_one_is_written_as_any_other(url: str, tmp_path: Path) -> None:
    scored = score_lines(url, "open", tmp_path / "rows.csv", 't,b\nx,1\n"a ""b""",2\n,3\n', "--chunk", "2")
    assert [line["t"] for line in scored] == ["x", 'a "b"', None]
    scored = score_lines(url, "open", tmp_path / "rows.csv", 't,b\nx,1\n"a ""b""",2\n,3\n')
    assert [line["t"] for line in scored] == ["x", 'a "b"', None]


@pytest.mark.parametrize("chunk", ["1", "4"])
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize("cells", [["9007199254740993", "", "-5"], ["18446744073709551615", "", "1"], ["-9007199254740993", "2", ""]])
def test_whole_numbers_that_floats_would_round_are_whole_beside_a_gap(
    url: str, tmp_path: Path, cells: list[str], suffix: str, chunk: str
) -> None:
    text = "a,b\n" + "".join(f"{cell},1\n" for cell in cells)
    if suffix == "jsonl":
        text = "".join(f'{{"a": {cell or "null"}, "b": 1}}\n' for cell in cells)
    kinds = [line["output_0"] for line in score_lines(url, "kinds", tmp_path / f"rows.{suffix}", text, "--chunk", chunk)]
    assert kinds == [f"int {cell}" if cell else "float nan" for cell in cells]


def test_booleans_of_a_model_that_declares_nothing(url: str, tmp_path: Path) -> None:
    scored = score_lines(url, "open", tmp_path / "rows.jsonl", '{"a": true}\n{"a": null}\n{"a": false}\n')
    assert [line["a"] for line in scored] == [True, None, False]


@pytest.mark.parametrize(
    ("model", "cells", "kinds"),
    [
        ("kinds", ["x", ""], ["str x", "float nan"]),
        ("kinds", ["True", ""], ["bool True", "float nan"]),
        ("flags", ["True", ""], ["bool True", "float nan"]),
        ("flags", ["False", "true"], ["bool False", "bool True"]),
        ("flags", ["7", "x"], ["str 7", "str x"]),
    ],
)
def test_objects_of_csv_are_what_pandas_reads(url: str, tmp_path: Path, model: str, cells: list[str], kinds: list[str]) -> None:
    text = "a,b\n" + "".join(f"{cell},1\n" for cell in cells)
    assert [line["output_0"] for line in score_lines(url, model, tmp_path / "rows.csv", text)] == kinds


def test_whole_numbers_of_which_some_are_missing_are_floats_in_each_chunk(url: str, tmp_path: Path) -> None:
    scored = score_lines(url, "open", tmp_path / "rows.csv", "a,b\n1,True\n2,false\n,True\n", "--chunk", "2")
    assert [(line["a"], line["b"]) for line in scored] == [(1.0, True), (2.0, False), (None, True)]
    assert isinstance(scored[0]["a"], float)


@pytest.mark.parametrize("chunk", ["1", "8"])
def test_an_empty_text_is_missing_where_a_frame_declares_the_column(tmp_path: Path, chunk: str) -> None:
    (tmp_path / "rows.csv").write_text("town,fee\n" + "".join(f"{town},{fee}\n" for fee, town in enumerate(["Bonn", "", "Ulm", "NA"] * 3)))
    frame = pd.read_csv(tmp_path / "rows.csv", keep_default_na=False, na_values=[""])
    server = InferenceServer()
    encoder = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["town"]), remainder="passthrough")
    pipeline = make_pipeline(encoder, LogisticRegression()).fit(frame, [0, 1, 0, 0] * 3)
    server.register("m", lambda df: pipeline.predict_proba(df)[:, 1], content_type="pd", inputs=specs_of(frame))
    server.register("none missed", lambda df: df["town"].isna().to_numpy(), content_type="pd", inputs=specs_of(frame.dropna()))
    with serving(OIPApp(server, path="/v2")) as port:
        url, rows, text = f"http://127.0.0.1:{port}/v2", tmp_path / "rows.csv", (tmp_path / "rows.csv").read_text()
        scored = [line["output_0"] for line in score_lines(url, "m", rows, text, "--chunk", chunk)]
        missed = [line["output_0"] for line in score_lines(url, "none missed", rows, text, "--chunk", chunk)]
    np.testing.assert_allclose(scored, pipeline.predict_proba(frame)[:, 1])
    assert missed == [False, True, False, False] * 3


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


@pytest.mark.parametrize("chunk", ["1", "8"])
def test_an_empty_cell_is_none_where_a_field_may_be_none(tmp_path: Path, chunk: str) -> None:
    server = InferenceServer()

    @server.model("visits")
    def visits(rows: list[Visit]) -> list[str]:
        return list(map(str, map(astuple, rows)))

    @server.model("dated")
    def dated(rows: list[DatedVisit]) -> list[str]:
        return list(map(str, map(astuple, rows)))

    text = "name,city,plan,day,at\nAda,Bonn,free,2026-01-31,2026-01-31T10:00:00\n,,,,\n"
    with serving(OIPApp(server, path="/v2")) as port:
        url = f"http://127.0.0.1:{port}/v2"
        assert [line["output_0"] for line in score_lines(url, "visits", tmp_path / "rows.csv", text, "--chunk", chunk)] == [
            "('Ada', 'Bonn', 'free', datetime.date(2026, 1, 31), datetime.datetime(2026, 1, 31, 10, 0))",
            "('', None, None, None, None)",
        ]
        assert len(score_lines(url, "dated", tmp_path / "rows.csv", 'day\n2026-01-31\n""\n', "--chunk", chunk)) == 1
        assert "element 0 is b'NaT'" in (tmp_path / "lines.refused.jsonl").read_text()


@pytest.mark.parametrize("chunk", ["1", "2", "8"])
def test_a_gap_of_parquet_is_null_wherever_a_chunk_ends(url: str, tmp_path: Path, chunk: str) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "rows.csv").write_text("x,y\n,\n,\n,\n1,\n")
    assert main([url, "open", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "s.parquet"), "--chunk", chunk]) == 0
    table = parquet.read_table(tmp_path / "s.parquet")
    assert table["x"].to_pylist() == [None, None, None, 1.0]
    assert (str(table.schema.field("y").type), table["y"].null_count) == ("double", 4)


def test_parquet_whose_chunks_do_not_fit_together_says_so(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyarrow.parquet")
    (tmp_path / "rows.csv").write_text("a,b\nx,1\ny,2\n")
    assert main([url, "odd", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "s.parquet"), "--chunk", "1"]) == 2
    told = capsys.readouterr().err
    assert "s.parquet: chunks differ in the type of a column (" in told
    assert told.rstrip().endswith("write JSON lines, or declare the outputs of the model")
    assert not (tmp_path / "s.parquet").exists()


def test_a_carriage_return_in_a_text_does_not_end_its_row(url: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text('t\n"a\rb"\nc\n', newline="")
    assert main([url, "open", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "s.csv")]) == 0
    assert pd.read_csv(tmp_path / "s.csv")["t"].tolist() == ["a\rb", "c"]


def test_a_quote_that_is_not_closed_is_told(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert score_lines(url, "open", tmp_path / "rows.csv", 'a,t\n1,"x\n2,y\n') == []
    assert "rows.csv, line 3: unexpected end of data" in capsys.readouterr().err


def test_dates_of_parquet(url: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    DAYS.reindex([0, 1]).to_parquet(tmp_path / "rows.parquet")
    assert main([url, "days", str(tmp_path / "rows.parquet"), "--out", str(tmp_path / "s.jsonl")]) == 0
    scored = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    assert scored[0] == {"row": 1, "day": "2024-01-31 09:30:00", "at": "2024-01-31 09:30:00+01:00"}
    assert scored[1] == {"row": 2, "day": "NaT", "at": "NaT"}


def test_bytes_of_parquet_are_encoded_for_a_column_of_base64(url: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pd.DataFrame({"a": [b"abcd", b"\xff"]}).to_parquet(tmp_path / "rows.parquet")
    assert main([url, "sizes", str(tmp_path / "rows.parquet"), "--out", str(tmp_path / "s.jsonl")]) == 0
    assert [json.loads(line)["output_0"] for line in (tmp_path / "s.jsonl").read_text().splitlines()] == [4, 1]
    assert [line["output_0"] for line in score_lines(url, "sizes", tmp_path / "rows.csv", "a\nYWJjZA==\n/w==\n")] == [4, 1]


def test_a_busy_server_is_asked_again(url: str, site: Site, tmp_path: Path) -> None:
    write_rents(tmp_path / "rows.csv")
    site.shut_after, site.opens_again = 2, 5
    assert main([url, "rent", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "s.csv"), "--chunk", "2"]) == 0
    assert len((tmp_path / "s.csv").read_text().splitlines()) == 11


def test_a_run_that_is_cut_goes_on(url: str, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rents(tmp_path / "rows.csv", 20)
    command = [url, "rent", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "s.csv"), "--chunk", "2", "--connections", "1"]
    site.shut_after = 4
    assert main([*command, "--patience", "0"]) == 1
    text = "stopped, as the server answered with the status 503: the door is shut"
    assert text in capsys.readouterr().err
    begun = (tmp_path / "s.csv").read_text()
    assert 1 < len(begun.splitlines()) < 21
    (tmp_path / "s.csv").write_text(begun + "9,1")  # a line that was cut
    site.shut_after = 10**9
    assert main(command) == 2
    assert f"a run was cut before its end: go on with --resume, or remove {tmp_path / 's.csv.state'}" in capsys.readouterr().err
    assert main([url, "matrix", *command[2:], "--columns", "area,floor", "--resume"]) == 2
    assert "--resume: " in capsys.readouterr().err
    asked = site.asked
    assert main([*command, "--resume"]) == 0
    assert (tmp_path / "s.csv").read_text().splitlines() == ["row,rent", *(f"{row},{rent_of(row)}" for row in range(1, 21))]
    assert site.asked - asked < 10
    assert not (tmp_path / "s.csv.state").exists()
    assert main([*command, "--resume"]) == 2
    assert "s.csv is complete: leave --resume out to score all rows anew" in capsys.readouterr().err


def test_it_stops_where_no_row_can_be_scored(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows.csv").write_text("town,area,floor\n" + "a,-1,0\n" * 50)
    assert main([url, "rent", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "s.csv"), "--chunk", "4"]) == 1
    told = capsys.readouterr().err
    assert "4 are refused, each with its reason in" in told
    assert "s.refused.csv (the first: no flat is that small); stopped, as all of the first 4 rows are refused; --resume" in told
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n3,4\n")
    assert main([url, "all", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "t.csv")]) == 1
    assert "the model does not score row by row: the output 'output_0' of 2 rows has the shape [1]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "rows", "out", "text"),
    [
        ("rent", "no.csv", "s.csv", "No such file or directory"),
        ("rent", "rows.csv", "s.txt", "s.txt: expected a name that ends with .csv, .jsonl or .parquet"),
        ("rent", "rows.csv", "rows.csv", "--out is the file of the rows"),
        ("rent", "empty.csv", "s.csv", "empty.csv: has no rows"),
        ("rent", "other.csv", "s.csv", "the model takes 'town', 'area', 'floor': the file has 'x', 'y'"),
        (
            "rnt",
            "rows.csv",
            "s.csv",
            "'rnt' is not found: expected 'rent', 'matrix', 'open', 'plain', 'pay', 'kinds', 'flags', 'odd', 'days', "
            "'all' and 3 more; did you mean 'rent'?",
        ),
        ("rent", "long.csv", "s.csv", "long.csv, line 2: field larger than field limit (131072): write JSON lines or Parquet"),
        ("rent", "cut.jsonl", "s.csv", "cut.jsonl, line 2, cannot be read: Expecting ':' delimiter"),
        ("rent", "far.jsonl", "s.csv", "far.jsonl, line 2, cannot be read: -1e400 is out of range for FP64"),
        ("open", "mixed.csv", "s.csv", "the column 'a' has fractions, beside which a whole number of 2**53 or more is rounded"),
        ("kinds", "mixed.jsonl", "s.csv", "the column 'a' has fractions, beside which a whole number of 2**53 or more is rounded"),
        ("rent", "requests.jsonl", "s.csv", "its lines are whole requests: send each of them as it is"),
    ],
)
def test_a_mistake_is_told_before_anything_is_sent(
    url: str, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str, rows: str, out: str, text: str
) -> None:
    write_rents(tmp_path / "rows.csv")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "long.csv").write_text(f"town,area,floor\n{'a' * 200_000},1,1\n")
    (tmp_path / "other.csv").write_text("x,y\n1,2\n")
    (tmp_path / "cut.jsonl").write_text('{"town": "a", "area": 1, "floor": 2}\n{"town"')
    (tmp_path / "far.jsonl").write_text('{"town": "a", "area": Infinity, "floor": 2}\n{"town": "a", "area": -1e400, "floor": 2}')
    (tmp_path / "mixed.csv").write_text("a,b\n9007199254740993,1\n1.5,1\n")
    (tmp_path / "mixed.jsonl").write_text('{"a": 1.5}\n{"a": null}\n{"a": 9007199254740993}')
    (tmp_path / "requests.jsonl").write_text('{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}')
    assert main([url, model, str(tmp_path / rows), "--out", str(tmp_path / out)]) == 2
    assert text in capsys.readouterr().err
    assert site.asked == 0


def test_where_all_is_refused_of_a_model_that_declares_nothing_it_says_what_to_declare(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n3,4\n")
    assert main([url, "plain", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "s.csv")]) == 1
    told = capsys.readouterr().err
    assert "(the first: unknown input 'a': expected 'x'. The model declares no inputs, so each column was sent as an input" in told
    assert 'declare that: inputs=[TensorSpec("X", "FP64", [-1, 4])], or "inputs" in model-settings.json)' in told


def test_where_all_is_refused_of_a_model_of_a_frame_it_says_how_to_declare_columns(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.csv").write_text("b\n1\n")
    assert main([url, "odd", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "s.csv")]) == 1
    told = capsys.readouterr().err
    assert "failed: see the server's log. The model takes a data frame, and declares nothing of its columns, so" in told
    assert "inputs=specs_of(X_train))" in told
    assert "TensorSpec" not in told


def is_second(frame: pd.DataFrame) -> pd.DataFrame:
    return (frame == 2**63 + 1).astype(int)


def test_what_pandas_reads_is_scored(tmp_path: Path) -> None:
    """Large whole numbers are no floats, and a gap is NaN, where a model takes several datatypes."""
    big = 2**53
    (tmp_path / "ids.csv").write_text("id\n" + "".join(f"{big + row % 3}\n" for row in range(12)))
    (tmp_path / "gaps.csv").write_text("own\n" + 'True\n""\nFalse\n' * 4)
    (tmp_path / "hashes.csv").write_text("id\n" + "".join(f"{2**63 + row % 3}\n" for row in range(12)))
    server = InferenceServer()
    expected = {}
    for name, encoder in (
        ("ids", OneHotEncoder()),
        ("hashes", FunctionTransformer(is_second)),  # numpy 2.0 cannot look such numbers up, as an encoder does
        ("gaps", make_pipeline(FunctionTransformer(), OneHotEncoder())),
    ):
        frame = pd.read_csv(tmp_path / f"{name}.csv", skip_blank_lines=False)
        classifier = make_pipeline(encoder, LogisticRegression()).fit(frame, [0, 1, 0] * 4)
        server.register(name, classifier.predict)
        expected[name] = ["row,output_0", *(f"{row},{each}" for row, each in enumerate(classifier.predict(frame), 1))]
        assert "1" in {line[-1] for line in expected[name]}
    with serving(OIPApp(server, path="/v2")) as port:
        for name, lines in expected.items():
            assert main([f"http://127.0.0.1:{port}/v2", name, str(tmp_path / f"{name}.csv"), "--out", str(tmp_path / "s.csv")]) == 0
            assert (tmp_path / "s.csv").read_text().splitlines() == lines


def test_the_commands_of_the_client(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rents(tmp_path / "rows.csv")
    assert run(["score", url, "rent", str(tmp_path / "rows.csv"), "--out", str(tmp_path / "s.csv")]) == 0
    assert "rows are scored" in capsys.readouterr().err
    assert run(["--help"]) == 0
    assert "score URL MODEL ROWS --out FILE" in capsys.readouterr().out
    assert run(["scores", url]) == run([]) == 2
    assert capsys.readouterr().err.count("usage: python -m oip_asgi.client COMMAND") == 2


@pytest.mark.parametrize("command", ["score", "check"])
def test_each_command_is_a_module_too(command: str) -> None:
    asked = [sys.executable, "-m", f"oip_asgi.client.{command}", "--help"]
    told = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout
    assert told.startswith(f"usage: python -m oip_asgi.client {command} ")


def test_a_bar_on_a_terminal() -> None:
    written: list[str] = []
    progress = Progress(2_000, 500, written.append, is_terminal=True)
    progress.tell(1_000)
    assert written == []  # not more often than can be seen
    progress.tell(1_000, at_end=True)
    [line] = written
    assert line.startswith(f"\r[{'#' * 15}{' ' * 15}] 1,000 of 2,000 rows, ")
    assert line.endswith(" s left\x1b[K\n")
    Progress(2_000, 0, written.append, is_terminal=False).tell(10, at_end=True)
    assert len(written) == 1
