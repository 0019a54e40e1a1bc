"""The codecs on their own: the wire vectors in both directions, dates and zones, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oip_asgi import InferenceError, InferenceRequest, InferenceResponse, Tensor
from oip_asgi.codecs import Base64Codec, DatetimeCodec, NumpyCodec, NumpyRequestCodec, PandasCodec, StringCodec, StringRequestCodec
from tests.support.wire import objects, received, sent, through_http
from tests.table.codec_vectors import ABC, NOON, VECTORS, Vector, assert_same, column


@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS)
def test_a_vector_in_both_directions(vector: Vector) -> None:
    request = vector.encode(vector.value)
    assert sent(request) == vector.document
    assert_same(vector.decode(received(vector.document)), vector.value)
    assert_same(vector.decode(through_http(request, binary=True)), vector.value)


@pytest.mark.parametrize("name", ["names and ages", "A, B and C", "str, the whole"])
def test_a_whole_says_it_for_its_tensors(name: str) -> None:
    """As the examples of the text are written."""
    document = json.loads(json.dumps(VECTORS[name].document))
    for item in document["inputs"]:
        item.pop("parameters", None)
    assert_same(VECTORS[name].decode(received(document)), VECTORS[name].value)


MLSERVER_FRAME = (
    '{"parameters":{"content_type":"pd"},"inputs":[{"name":"First Name","shape":[2,1],"datatype":"BYTES",'
    '"parameters":{"content_type":"str"},"data":["Joanne","Michael"]},{"name":"Age","shape":[2,1],"datatype":"INT64","data":[34,22]},'
    '{"name":"Weight","shape":[2,1],"datatype":"FP64","data":[60.5,null]},{"name":"Tags","shape":[2,1],"datatype":"BYTES",'
    '"parameters":{"content_type":"pd_json"},"data":["[\\"a\\"]","2"]}]}'
)
MLSERVER_LISTS = (
    '{"inputs":[{"name":"foo","shape":[1,1],"datatype":"BYTES","parameters":{"content_type":"base64"},"data":["UHl0aG9uIGlzIGZ1bg=="]},'
    '{"name":"bar","shape":[1,1],"datatype":"BYTES","parameters":{"content_type":"datetime"},"data":["2022-01-11T11:00:00"]}]}'
)
MLSERVER_STRINGS = (
    '{"parameters":{"content_type":"str"},"inputs":[{"name":"input-1","shape":[2,1],"datatype":"BYTES",'
    '"parameters":{"content_type":"str"},"data":["bar","é"]}]}'
)
MLSERVER_ARRAY = (
    '{"parameters":{"content_type":"np"},"inputs":[{"name":"input-1","shape":[2,1],"datatype":"FP64",'
    '"parameters":{"content_type":"np"},"data":[1.5,null]}]}'
)
MLSERVER_RESPONSE = (
    '{"model_name":"m","parameters":{"content_type":"pd"},"outputs":[{"name":"First Name","shape":[2,1],"datatype":"BYTES",'
    '"parameters":{"content_type":"str"},"data":["Joanne","Michael"]},{"name":"Weight","shape":[2,1],"datatype":"FP64","data":[60.5,null]}]}'
)


def test_what_mlserver_wrote_is_read() -> None:
    """Recorded from its codecs, 1.7.1; tests/lab/peers asks them themselves."""
    tags = pd.Series([["a"], 2], dtype=object)
    people = pd.DataFrame({"First Name": ["Joanne", "Michael"], "Age": [34, 22], "Weight": [60.5, np.nan], "Tags": tags})
    assert_same(PandasCodec.decode_request(received(json.loads(MLSERVER_FRAME))), people)
    assert_same(NumpyRequestCodec.decode_request(received(json.loads(MLSERVER_ARRAY))), np.array([[1.5], [np.nan]]))
    assert StringRequestCodec.decode_request(received(json.loads(MLSERVER_STRINGS))) == ["bar", "é"]
    foo, bar = received(json.loads(MLSERVER_LISTS)).inputs
    assert (Base64Codec.decode_input(foo), DatetimeCodec.decode_input(bar)) == ([b"Python is fun"], [NOON])
    response = InferenceResponse.from_http({}, MLSERVER_RESPONSE.encode())
    assert_same(PandasCodec.decode_response(response), people[["First Name", "Weight"]])


def test_a_bad_answer_of_another_server_is_not_the_clients_fault() -> None:
    tensor = Tensor("a", np.array([b"\xff"], object))
    response, column = InferenceResponse([tensor]), Tensor("a", tensor.array, {"content_type": "str"})
    for decode in (
        lambda: StringCodec.decode_output(tensor),
        lambda: StringRequestCodec.decode_response(response),
        lambda: PandasCodec.decode_response(InferenceResponse([column])),
    ):
        with pytest.raises(InferenceError) as raised:
            decode()
        assert raised.value.status == 502


def test_outputs_and_responses_are_as_inputs_and_requests() -> None:
    assert Base64Codec.decode_input(Base64Codec.encode_input("foo", b"Python is fun")) == [b"Python is fun"]
    assert StringCodec.decode_input(StringCodec.encode_input("foo", "fun")) == ["fun"]
    assert DatetimeCodec.decode_input(DatetimeCodec.encode_input("foo", NOON)) == [NOON]
    assert StringCodec.decode_output(StringCodec.encode_output("foo", ["é"])) == ["é"]
    response = StringRequestCodec.encode_response("m", ["a"], "2")
    assert (response.model_name, response.model_version, response.outputs[0].name) == ("m", "2", "output-1")
    assert StringRequestCodec.decode_response(response) == ["a"]
    frames = PandasCodec.encode_response("m", ABC)
    assert frames.parameters == {"content_type": "pd"}
    assert_same(PandasCodec.decode_response(frames), ABC)
    assert NumpyRequestCodec.can_encode(np.ones(1))
    assert not NumpyRequestCodec.can_encode([1])
    assert Base64Codec.can_encode([b"a"])
    assert not Base64Codec.can_encode(["a"])


def test_an_array_keeps_its_shape_but_for_one_dimension() -> None:
    shapes = {shape: NumpyCodec.encode_input("x", np.zeros(shape)).shape for shape in [(), (3,), (3, 1), (2, 3), (0,)]}
    assert shapes == {(): (), (3,): (3, 1), (3, 1): (3, 1), (2, 3): (2, 3), (0,): (0, 1)}


def test_strings_of_numpy_are_bytes_on_every_transport() -> None:
    array = NumpyCodec.decode_input(NumpyCodec.encode_input("x", np.array(["a", "é"])))
    assert array.tolist() == [[b"a"], ["é".encode()]]


@given(st.lists(st.datetimes(timezones=st.sampled_from([None, UTC, timezone(timedelta(hours=-5, minutes=-30))]))))
def test_datetimes_come_back(values: list[datetime]) -> None:
    assert DatetimeCodec.decode_input(DatetimeCodec.encode_input("x", values)) == values


@given(st.lists(st.binary()), st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_bytes_and_strings_come_back(values: list[bytes], texts: list[str]) -> None:
    request = through_http(InferenceRequest([Base64Codec.encode_input("x", values), StringCodec.encode_input("y", texts)]), binary=False)
    assert Base64Codec.decode_input(request.inputs[0]) == values
    assert StringCodec.decode_input(request.inputs[1]) == texts


@given(st.lists(st.one_of(st.sampled_from(["1", '"a"', "null", "-1.5", ""]), st.text('"\\,1 \n[]{}n', max_size=4)), max_size=5))
def test_texts_together_are_what_each_is_alone(texts: list[str]) -> None:
    def decoded(*elements: str) -> list[Any]:
        column = Tensor("foo", objects([element.encode() for element in elements]), {"content_type": "pd_json", "pd_dtype": "object"})
        return list(PandasCodec.decode_request(InferenceRequest([column]))["foo"])

    try:
        alone = [decoded(text)[0] for text in texts]
    except InferenceError:
        with pytest.raises(InferenceError, match="which is not JSON"):
            decoded(*texts)
    else:
        assert decoded(*texts) == alone


def test_what_a_codec_does_not_encode() -> None:
    """What a tensor may not hold is in BAD of tests/table/content_types.py."""
    cases: list[tuple[Any, Any, type[Exception], str]] = [
        (StringCodec, ["a", 5], TypeError, "tensor 'foo': element 1 is 5: expected a string"),
        (StringCodec, {"text"}, TypeError, "is for a list, but this is {'text'}"),
        (StringCodec, [b"\xff"], ValueError, "element 0 is"),
        (Base64Codec, ["text"], TypeError, "element 0 is 'text'"),
        (DatetimeCodec, [NOON, pd.NaT], ValueError, "element 1 is NaT: a missing value"),
        (DatetimeCodec, ["tomorrow"], ValueError, "element 0 is 'tomorrow'"),
        (DatetimeCodec, [5], TypeError, r"expected a datetime.datetime"),
        (NumpyCodec, np.array([1j]), TypeError, "no datatype for numpy dtype complex128"),
    ]
    for codec, value, error, message in cases:
        with pytest.raises(error, match=message):
            codec.encode_input("foo", value)


def test_a_whole_that_is_not_one_tensor() -> None:
    two = InferenceRequest([Tensor("foo", objects([b"a"]))] * 2)
    with pytest.raises(InferenceError, match="'str' is for a request or response of one tensor, but there are 2"):
        StringRequestCodec.decode_request(two)
    with pytest.raises(InferenceError, match="there are 0"):
        NumpyRequestCodec.decode_response(InferenceResponse([]))


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
