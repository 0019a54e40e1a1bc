"""Dates and zones of columns and lists: which texts are taken, what they become, and what a zone of the client's may not do."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oip_asgi import InferenceError, InferenceRequest, Tensor
from oip_asgi.codecs import DatetimeCodec, PandasCodec
from tests.support.wire import received
from tests.table.codec_vectors import column

OPENED = """
import json, sys
from oip_asgi import InferenceError
from oip_asgi.codecs import PandasCodec
from tests.support.wire import received
from tests.table.codec_vectors import column

opened, results = [], []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event in ("open", "os.open", "os.scandir", "os.listdir") else None)
for dtype in json.loads(sys.argv[1]):
    request = received({"inputs": [column("BYTES", ["2022-01-11" + "T00Z" * ("," in dtype)], "datetime", pd_dtype=dtype)]})
    opened.clear()
    try:
        results.append([str(PandasCodec.decode_request(request)["x"].dtype), []])
    except InferenceError as error:
        results.append([str(error), list(opened)])
print(json.dumps(results))
"""


def test_a_zone_of_the_clients_opens_no_file(tmp_path: Path) -> None:
    (tmp_path / "zone").write_bytes(b"no time zone")
    known = ["Europe/Amsterdam", "UTC", "UTC+02:00", "-05:30"]
    paths = [f"dateutil/{tmp_path}/zone", "dateutil//etc/passwd", "dateutil/Europe/Paris", "dateutil/tzlocal", "/etc/passwd", "posixrules"]
    odd = ["tzlocal", "Europe", "tzdata", "Nowhere/City", "UTC+02:00:30", "+24:00", "UTC+2", "+0545"]
    dtypes = [f"datetime64[ns, {zone}]" for zone in [*known, *[path[:50] for path in paths], *odd]]
    done = subprocess.run([sys.executable, "-c", OPENED, json.dumps(dtypes)], capture_output=True, text=True, check=True, timeout=60)
    results = json.loads(done.stdout)
    said = ["Europe/Amsterdam", "UTC", "UTC+02:00", "UTC-05:30"]
    assert [result for result, _ in results[: len(known)]] == [f"datetime64[ns, {zone}]" for zone in said]
    for text, opened in results[len(known) :]:
        assert ("expected UTC, an offset such as UTC+02:00" in text, opened) == (True, [])


def test_a_date_before_the_first_of_a_zone_does_not_end_the_process() -> None:
    """pandas 2 crashes where it makes Python objects of such dates."""
    at = {
        "name": "x",
        "datatype": "BYTES",
        "shape": [1],
        "parameters": {"content_type": "datetime", "pd_dtype": "datetime64[us, Asia/Tokyo]"},
    }
    decode = f"PandasCodec.decode_request(received({ {'inputs': [{**at, 'data': ['1500-01-01T00Z']}]} }))['x'].tolist()[0].isoformat()"
    script = f"from oip_asgi.codecs import PandasCodec\nfrom tests.support.wire import received\nprint({decode})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    refused = "some are before 1678, and pandas 2 has no time zones for them but UTC and fixed offsets"
    assert done.stdout.strip() == "1500-01-01T09:18:59+09:18:59" or (done.returncode, refused in done.stderr) == (1, True)


def test_points_in_time_with_offsets_keep_their_instant() -> None:
    texts = ["2022-01-11T11:00:00+02:00", "20220111T100000Z", "2022-01-11 11:00-0530", "NaT"]
    [values] = PandasCodec.decode_request(received({"inputs": [column("BYTES", texts, "datetime")]})).to_numpy().T.tolist()
    assert [value.isoformat() for value in values[:3]] == [
        "2022-01-11T09:00:00+00:00",
        "2022-01-11T10:00:00+00:00",
        "2022-01-11T16:30:00+00:00",
    ]
    assert values[3] is pd.NaT


@pytest.mark.parametrize("texts", [[], ["NaT"], ["NaT", "2022-01-11"], ["2022-01-11T11:30:00.5", "20220111T11"]])
def test_a_column_of_dates_has_one_unit_whatever_their_form(texts: list[str]) -> None:
    frame = PandasCodec.decode_request(received({"inputs": [column("BYTES", texts, "datetime")]}))
    assert frame["x"].dtype == decoded(["2022-01-11T11:00:00"]).dtype


def decoded(texts: list[str]) -> Any:
    """The column of some texts, or what is said of it."""
    try:
        return PandasCodec.decode_request(InferenceRequest([Tensor("x", np.array(texts), {"content_type": "datetime"})]))["x"]
    except InferenceError as error:
        return str(error)


@given(
    st.lists(st.datetimes(), min_size=1, max_size=3),
    st.sampled_from(["seconds", "milliseconds", "microseconds"]),
    st.sampled_from(["", "001", "123"]),
    st.sampled_from(["", "Z", "+00:00", "+01:00"]),
    st.sampled_from(["", "0", "1", "9", "-", ":", "T", "N", "é", "NaT"]),
    st.integers(0, 90),
)
def test_dates_that_are_written_alike_are_what_they_are_alone(
    values: list[datetime], timespec: str, finer: str, zone: str, other: str, place: int
) -> None:
    """A column gives what its texts give one by one; the same with one character changed."""
    texts = [value.isoformat(timespec=timespec) + (finer if timespec != "seconds" else "") + zone for value in values]
    if other:
        row, column = divmod(place, 30)
        text = texts[row % len(texts)]
        texts[row % len(texts)] = text[:column] + other + text[column + 1 :]
    at_once, alone = decoded(texts), [decoded([text]) for text in texts]
    refused = [text for text in alone if isinstance(text, str)]
    if isinstance(at_once, str):
        assert refused or "other elements" in at_once
    else:
        assert not refused
        assert all(one[0] == each or (pd.isna(one[0]) and pd.isna(each)) for one, each in zip(alone, at_once, strict=True))


DATES = ["2022-01-11", "20220111", "1500-02-28", "0001-01-02", "9999-12-30"]
DATES += ["2022-02-30", "0000-01-01", "2022-1-1", "2022-011", "2022-W02-2"]
TIMES = ["", "T11", "T11:30", " 1130", "T113015", "T11:30:15", "T11:30:15.5", "T113015.123456000"]
TIMES += ["T24:00", "T11:60", "T1130:15", "t11:30", "T1"]
OFFSETS = ["", "Z", "z", "+01", "-0530", "+05:30", "+00:19:32", "+24:00", "+1", "\0"]


@pytest.mark.parametrize("date", DATES)
def test_a_column_and_a_list_take_the_same_texts(date: str) -> None:
    taken = 0
    for text in [date + time + offset for time in TIMES for offset in OFFSETS if time or offset in ("", "Z", "\0")]:
        request = received({"inputs": [column("BYTES", [text], "datetime")]})
        try:
            [value] = DatetimeCodec.decode_input(request.inputs[0])
        except InferenceError:
            with pytest.raises(InferenceError, match="element 0"):
                PandasCodec.decode_request(request)
            continue
        [point] = PandasCodec.decode_request(request)["x"].dt.as_unit("us")
        assert point.to_pydatetime() == value, text
        taken += 1
    assert taken == (43 if date in DATES[:5] else 0)


def test_a_list_takes_no_date_that_it_would_cut() -> None:
    finer = ["2022-01-11T11:00:00.123456000", "2022-01-11T11:00:00.1234567"]
    request = received({"inputs": [column("BYTES", finer, "datetime")]})
    with pytest.raises(InferenceError, match=r"tensor 'x': element 1 is b'2022-01-11T11:00:00.1234567'.* microseconds at most"):
        DatetimeCodec.decode_input(request.inputs[0])
    assert [value.nanosecond for value in PandasCodec.decode_request(request)["x"]] == [0, 700]
    with pytest.raises(InferenceError, match=r"tensor 'x': element 0 is .* microseconds at most"):
        PandasCodec.decode_request(received({"inputs": [column("BYTES", [finer[1], "1500-01-01T00:00:00"], "datetime")]}))
