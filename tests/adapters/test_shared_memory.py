"""System shared memory, and its dangers: what is outside a region, or not allowed, is neither read nor written."""

from __future__ import annotations

import gc
import json
import os
import secrets
import sys
import warnings
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory as Block
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oip_asgi import InferenceError, InferenceServer, OIPApp, OIPWSGIApp, RequestOutput, SharedMemory, Tensor, TensorSpec
from tests.support.asking import error
from tests.support.talk import block_until
from tests.support.ways import Answer, Request, Way, over_asgi, over_wsgi

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="segments are files on Linux only")

PAGE = 4096
REGION, SIZE, OFFSET = "shared_memory_region", "shared_memory_byte_size", "shared_memory_offset"


class Segments:
    """Segments with a prefix of their own, which are removed in the end."""

    def __init__(self) -> None:
        self.prefix = f"oip_test_{secrets.token_hex(4)}_"
        self._blocks: list[Any] = []

    def make(self, name: str, content: bytes = b"", size: int = PAGE) -> Any:
        block: Any = Block(self.prefix + name, create=True, size=size)
        block.buf[: len(content)] = content
        self._blocks.append(block)
        return block

    def key(self, name: str) -> str:
        return self.prefix + name

    def path(self, name: str) -> Path:
        return Path("/dev/shm", self.prefix + name)

    def open_files(self) -> int:
        """How many of this process's files they are, the blocks of this test included."""
        gc.collect()
        files = (Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
        return sum(os.path.realpath(file).startswith(str(self.path(""))) for file in files)

    def close(self) -> None:
        for block in self._blocks:
            block.close()
            Path("/dev/shm", block.name).touch()  # a test may have removed it
            block.unlink()


@pytest.fixture
def segments() -> Iterator[Segments]:
    made = Segments()
    yield made
    made.close()


class Served:
    def __init__(self, server: InferenceServer, way: Way | None = None) -> None:
        self.server = server
        self._way = way or over_asgi(OIPApp(server), "")

    def post(self, path: str, document: Any = None) -> Answer:
        return self._way(Request("POST", path, (), b"" if document is None else json.dumps(document).encode()))

    def infer(self, document: Any, model: str = "echo") -> Answer:
        return self.post(f"/models/{model}/infer", document)

    def register(self, name: str, key: str, byte_size: int = PAGE, **more: Any) -> Answer:
        return self.post(f"/systemsharedmemory/region/{name}/register", {"key": key, "byte_size": byte_size, **more})

    def status(self, name: str | None = None) -> Any:
        path = "" if name is None else f"/region/{name}"
        answer = self._way(Request("GET", f"/systemsharedmemory{path}/status"))
        return json.loads(answer.body) if answer.status == 200 else answer.status


def data(answer: Answer) -> Any:
    return json.loads(answer.body)["outputs"][0]["data"]


@pytest.fixture
def served(segments: Segments) -> Served:
    server = InferenceServer(shared_memory=SharedMemory(allow=lambda key: key.startswith(segments.prefix)), max_body_bytes=100_000)
    server.register("echo", lambda **inputs: inputs)
    server.register("declared", lambda x: x, inputs=[TensorSpec("x", "FP32", [-1])], outputs=[TensorSpec("y", "FP32", [-1])])

    @server.model("awaiting")
    async def awaiting(x: np.ndarray) -> Any:
        return {"x": x, "is_writable": np.array([x.flags.writeable])}

    @server.model("stream")
    def stream(x: np.ndarray) -> Any:
        yield x

    server.register("inline", lambda x: {"x": x}, run="inline")
    return Served(server)


def shared(region: str, size: Any, **more: Any) -> dict[str, Any]:
    return {REGION: region, SIZE: size, **more}


def asked(datatype: str, shape: list[int], parameters: dict[str, Any], outputs: Any = None, **more: Any) -> dict[str, Any]:
    document: dict[str, Any] = {"inputs": [{"name": "x", "datatype": datatype, "shape": shape, "parameters": parameters, **more}]}
    return document if outputs is None else {**document, "outputs": outputs}


@pytest.mark.parametrize("model", ["echo", "declared", "awaiting", "inline"])
def test_tensors_in_both_directions(served: Served, segments: Segments, model: str) -> None:
    values = np.array([1.5, -2, 3], "f4")
    segments.make("in", b"junk" + values.tobytes())
    served.register("in", "/" + segments.key("in"))
    out = segments.make("out")
    served.register("out", segments.key("out"), 64, offset=8)
    name = "y" if model == "declared" else "x"
    outputs = [{"name": name, "parameters": shared("out", 20, **{OFFSET: 4})}]
    for each in (served, Served(served.server, over_wsgi(OIPWSGIApp(served.server), ""))):
        out.buf[:] = b"\xff" * PAGE
        answer = each.infer(asked("FP32", [3], shared("in", 12, **{OFFSET: 4}), outputs), model)
        assert answer.status == 200, answer.body
        assert json.loads(answer.body) == {"model_name": model, "outputs": [{"name": name, "shape": [3], "datatype": "FP32"}]}
        assert bytes(out.buf) == b"\xff" * 12 + values.tobytes() + b"\xff" * (PAGE - 24)
        assert data(each.infer(asked("FP32", [3], shared("in", 12, **{OFFSET: 4})), model)) == [1.5, -2, 3]
    served.server.stop()


def test_bytes_and_datatypes_of_all_sizes(served: Served, segments: Segments) -> None:
    words = b"".join(len(word).to_bytes(4, "little") + word for word in (b"a", b"", b"long" * 9))
    block = segments.make("in", words)
    served.register("in", segments.key("in"))
    answer = served.infer(asked("BYTES", [3], shared("in", len(words))))
    assert data(answer) == ["a", "", "long" * 9]
    for size, text in ((len(words) - 1, "claims 36 bytes, but 35 are left"), (len(words) + 4, "4 bytes are left over")):
        refused = error(served.infer(asked("BYTES", [3], shared("in", size))))
        assert refused[0] == 400
        assert text in refused[1]
    block.buf[0:8] = np.array([2.5]).tobytes()
    assert data(served.infer(asked("FP64", [1, 1], shared("in", 8)))) == [2.5]
    assert data(served.infer(asked("FP64", [0], shared("in", 0)))) == []


def test_the_model_has_a_copy_that_nobody_changes(segments: Segments) -> None:
    block = segments.make("in", b"\1\2\3\4")
    served = Served(InferenceServer(shared_memory=SharedMemory([segments.key("in")])))

    @served.server.model("slow")
    def slow(x: np.ndarray) -> Any:
        before = x.tobytes()
        block.buf[:4] = b"\x09" * 4
        return np.array([before == x.tobytes(), x.flags.writeable])

    served.register("in", segments.key("in"))
    answer = served.post("/models/slow/infer", asked("UINT8", [4], shared("in", 4)))
    assert data(answer) == [True, False]


# What may be registered


@pytest.mark.parametrize(
    "key",
    ["", "/", "//a", "a/b", "../etc", "/../shm/{}", "..", ".", "{}/../{}", "a\0b", "x" * 256, "/dev/shm/{}", "\ud800"],
)
def test_a_key_is_the_name_of_one_file_in_one_folder(served: Served, segments: Segments, key: str) -> None:
    segments.make("in")
    name = segments.key("in")
    refused = error(served.register("r", key.format(name, name)))
    assert refused[0] == 400, refused
    assert served.status() == []


def test_only_what_is_allowed_is_opened(served: Served, segments: Segments, tmp_path: Path) -> None:
    secret = Path("/dev/shm", f"other_{secrets.token_hex(4)}")
    secret.write_bytes(b"secret" * 1000)
    try:
        text = f"this server does not let clients use the shared memory '/{secret.name}': the allow= of its SharedMemory decides"
        assert error(served.register("r", "/" + secret.name)) == (403, text)
        missing = error(served.register("r", "/nothing_of_this_name"))
        assert missing[0] == 403  # so nobody learns what is there
        # ways around the name: a link, another name for the same file, a folder, a pipe
        segments.path("link").symlink_to(secret)
        assert error(served.register("r", segments.key("link")))[0] == 403
        os.link(secret, segments.path("hard"))
        assert error(served.register("r", segments.key("hard"))) == (403, f"'{segments.key('hard')}' is no shared memory of one name")
        segments.path("folder").mkdir()
        assert error(served.register("r", segments.key("folder")))[0] == 403
        os.mkfifo(segments.path("pipe"))
        assert error(served.register("r", segments.key("pipe")))[0] == 403
    finally:
        segments.path("folder").rmdir()
        for path in (secret, segments.path("link"), segments.path("hard"), segments.path("pipe")):
            path.unlink(missing_ok=True)
    assert served.status() == []
    text = f"there is no shared memory '{segments.key('nothing')}': create it first"
    assert error(served.register("r", segments.key("nothing"))) == (400, text)


@pytest.mark.parametrize("returned", [None, 0, 1, "yes", np.True_, object(), ZeroDivisionError])
def test_anything_but_true_does_not_allow(segments: Segments, returned: Any, caplog: pytest.LogCaptureFixture) -> None:
    segments.make("in")

    def allow(key: str) -> Any:
        return 1 / 0 if returned is ZeroDivisionError else returned

    served = Served(InferenceServer(shared_memory=SharedMemory(allow=allow)))
    status, text = error(served.register("r", segments.key("in")))
    assert (status, "division" in text) == (403, False)
    assert ("allow= of SharedMemory raised" in caplog.text) == (returned is ZeroDivisionError)


def test_allow_is_a_function_or_keys() -> None:
    async def allow(key: str) -> bool:
        return True

    wrong: Any
    for wrong in ("key", 1, None, allow, [1], {b"key"}):
        with pytest.raises(TypeError, match="must be a function of a key, or a list of keys"):
            SharedMemory(allow=wrong)
    with pytest.raises(TypeError, match="must be a SharedMemory"):
        InferenceServer(shared_memory=wrong)
    assert SharedMemory({"/a", "b"}).allows("a")
    assert not SharedMemory(["/a"]).allows("ab")


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"byte_size": PAGE + 1}, "offset 0 and byte_size 4097 are beyond the 4096 bytes"),
        ({"byte_size": 1, "offset": PAGE}, "offset 4096 and byte_size 1 are beyond"),
        ({"byte_size": 2**64 - 1, "offset": 1}, "beyond the 4096 bytes"),
        ({"byte_size": 1, "offset": 2**64 - 1}, "beyond the 4096 bytes"),
        ({"byte_size": 2**80}, "beyond the 4096 bytes"),
        ({"byte_size": 0}, "byte_size is 0: expected 1 or more"),
        ({"byte_size": -1}, "the body cannot be read"),
        ({"byte_size": 1, "offset": -1}, "the body cannot be read"),
        ({"byte_size": 1.5}, "the body cannot be read"),
        ({"byte_size": True}, "the body cannot be read"),
        ({"byte_size": 8, "key": 1}, "the body cannot be read"),
    ],
)
def test_a_region_lies_within_its_segment(served: Served, segments: Segments, more: Any, text: str) -> None:
    segments.make("in")
    document = {"key": segments.key("in"), **more}
    refused = error(served.post("/systemsharedmemory/region/r/register", document))
    assert refused[0] == 400
    assert text in refused[1]


def test_names_are_registered_once_and_unregistered_any_number_of_times(served: Served, segments: Segments) -> None:
    segments.make("in")
    assert served.register("a%2Fb", segments.key("in"), 8, offset=4).status == 200
    refused = error(served.register("a/b", segments.key("in")))
    assert refused == (400, "region 'a/b' is registered already: unregister it first")
    described = {"name": "a/b", "key": segments.key("in"), "offset": 4, "byte_size": 8}
    assert served.status() == served.status("a%2Fb") == [described]
    assert served.status("c") == 404
    for _ in range(2):
        assert served.post("/systemsharedmemory/region/a%2Fb/unregister").status == 200
        assert served.status() == []
    served.register("a", segments.key("in"))
    served.register("b", segments.key("in"))
    assert served.post("/systemsharedmemory/unregister").status == 200
    assert served.status() == []
    assert error(served.register("n" * 256, segments.key("in")))[0] == 400
    assert error(served.register("r", "x" * 2**16))[1].endswith("bytes: expected 65536 at most")


def test_regions_are_bounded_and_their_files_are_closed(served: Served, segments: Segments) -> None:
    segments.make("in")
    before = segments.open_files()
    for number in range(256):
        assert served.register(f"r{number}", segments.key("in")).status == 200
    text = "256 regions are registered, and no more are allowed: unregister one first"
    assert error(served.register("more", segments.key("in"))) == (429, text)
    assert segments.open_files() == before + 256
    assert error(served.register("r0", segments.key("in")))[0] == 400
    served.post("/systemsharedmemory/unregister")
    assert segments.open_files() == before
    for _ in range(3):  # a refused one leaves nothing open
        assert error(served.register("r", segments.key("in"), 2 * PAGE))[0] == 400
    served.register("r", segments.key("in"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        served.server.stop()
        assert segments.open_files() == before
    assert served.status() == []


# What requests say


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (shared("nope", 4), "it is in the region 'nope', which is not registered"),
        (shared("in", 4, **{OFFSET: 61}), "beyond the 64 bytes of the region 'in'"),
        (shared("in", 65), "beyond the 64 bytes of the region 'in'"),
        (shared("in", 2**63), "beyond the 64 bytes"),
        (shared("in", 4, **{OFFSET: 2**64 - 2}), "beyond the 64 bytes"),
        (shared("in", 3), "3 bytes of binary data, but shape [1] needs 4"),
        (shared("in", -4), f"it has the parameter {SIZE} = -4: expected an integer, 0 or more"),
        (shared("in", 4.0), f"it has the parameter {SIZE} = 4.0: expected an integer"),
        (shared("in", True), f"it has the parameter {SIZE} = True: expected an integer"),
        (shared("in", "4"), f"it has the parameter {SIZE} = '4': expected an integer"),
        (shared("in", 4, **{OFFSET: -1}), f"it has the parameter {OFFSET} = -1: expected an integer"),
        ({REGION: "in"}, f"it has the parameter {REGION}, but no {SIZE}"),
        ({REGION: 1, SIZE: 4}, f"it has the parameter {REGION} = 1: expected the name of a region"),
        ({REGION: "", SIZE: 4}, f"it has the parameter {REGION} = '': expected the name of a region"),
    ],
)
def test_inputs_outside_their_region_are_refused(served: Served, segments: Segments, parameters: Any, text: str) -> None:
    segments.make("in", size=PAGE)
    served.register("in", segments.key("in"), 64)
    refused = error(served.infer(asked("FP32", [1], parameters)))
    assert refused[0] == 400
    assert refused[1].startswith("inputs[0] ('x'): ")
    assert text in refused[1]


def test_an_input_has_its_data_once(served: Served, segments: Segments) -> None:
    segments.make("in")
    served.register("in", segments.key("in"))
    expected = (400, f"input 'x' has data of its own and the parameter {REGION}: expected one of them")
    assert error(served.infer(asked("FP32", [1], shared("in", 4), data=[1]))) == expected
    text = json.dumps(asked("FP32", [1], {**shared("in", 4), "binary_data_size": 4})).encode()
    framed = Request("POST", "/models/echo/infer", (("inference-header-content-length", str(len(text))),), text + b"\0\0\0\0")
    assert error(over_asgi(OIPApp(served.server), "")(framed)) == expected
    with pytest.raises(InferenceError, match="input 'x' has data of its own"):
        served.server.infer_sync("echo", {"x": Tensor("x", np.zeros(1, "f4"), shared("in", 4))})
    lone = error(served.infer(asked("FP32", [1], {SIZE: 4}, data=[1])))
    assert lone == (400, f"input 'x' has the parameter {SIZE}, but no {REGION}")


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        (shared("nope", 4), "is in the region 'nope', which is not registered"),
        (shared("out", 65), "beyond the 64 bytes of the region 'out'"),
        (shared("out", 4, **{OFFSET: 64}), "beyond the 64 bytes"),
        (shared("out", 3), "output 'x' is in the region 'out': 4 bytes do not fit into its shared_memory_byte_size of 3"),
        ({REGION: "out"}, f"but no {SIZE}"),
        ({**shared("out", 4), "binary_data": True}, "goes to shared memory and has the parameter binary_data: true"),
        ({**shared("out", 40), "classification": 1}, "goes to shared memory and has the parameter classification"),
    ],
)
def test_outputs_that_do_not_fit_are_refused(served: Served, segments: Segments, parameters: Any, text: str) -> None:
    block = segments.make("out", b"\xaa" * PAGE)
    served.register("out", segments.key("out"), 64)
    more = [{"name": "x", "parameters": parameters}]
    refused = error(served.infer(asked("FP32", [1], {}, more, data=[1])))
    assert refused[0] == 400
    assert text in refused[1]
    assert bytes(block.buf) == b"\xaa" * PAGE


def test_each_output_has_memory_of_its_own(served: Served, segments: Segments) -> None:
    served.server.register("two", lambda x: {"a": x, "b": x + 1})
    block = segments.make("out")
    served.register("out", segments.key("out"), 64)
    served.register("again", segments.key("out"), 32)

    def asked_at(region: str, offset: int) -> Any:
        more = [
            {"name": "a", "parameters": shared("out", 8)},
            {"name": "b", "parameters": shared(region, 8, **({OFFSET: offset} if offset else {}))},
        ]
        return served.post("/models/two/infer", asked("INT32", [2], {}, more, data=[1, 2]))

    for region in ("out", "again"):
        text = f"output 'a' is in the region 'out', and overlaps output 'b' is in the region '{region}': "
        assert error(asked_at(region, 4)) == (400, f"{text}expected other offsets, or smaller sizes")
    assert asked_at("again", 8).status == 200
    assert np.frombuffer(block.buf, np.int32, 4).tolist() == [1, 2, 2, 3]


def test_the_inputs_of_a_request_are_bounded_together(served: Served, segments: Segments) -> None:
    segments.make("in", size=70_000)
    served.register("in", segments.key("in"), 70_000)
    one = {"datatype": "UINT8", "shape": [70_000], "parameters": shared("in", 70_000)}
    assert served.infer({"inputs": [{"name": "a", **one}]}).status == 200
    refused = error(served.infer({"inputs": [{"name": "a", **one}, {"name": "b", **one}]}))
    assert refused == (
        413,
        "the inputs in shared memory have more than 100000 bytes, the most that this server takes (max_body_bytes)",
    )
    # what is read more closely is not counted twice
    assert served.infer({"unknown": 1, "inputs": [{"name": "a", **one}]}).status == 200


def test_a_segment_that_becomes_shorter_is_told(served: Served, segments: Segments) -> None:
    segments.make("in", b"\1" * PAGE)
    segments.make("out", b"\2" * PAGE)
    served.register("in", segments.key("in"))
    served.register("out", segments.key("out"))
    body = asked("UINT8", [PAGE], shared("in", PAGE), [{"name": "x", "parameters": shared("out", PAGE)}])
    assert served.infer(body).status == 200
    os.truncate(segments.path("out"), 100)
    text = "output 'x' is in the region 'out', whose shared memory has become shorter since it was registered"
    assert error(served.infer(body)) == (400, text)
    assert segments.path("out").stat().st_size == 100
    for size in (PAGE - 1, 1, 0):
        os.truncate(segments.path("in"), size)
        refused = error(served.infer(asked("UINT8", [PAGE], shared("in", PAGE))))
        assert refused == (400, "inputs[0] ('x'): it is in the region 'in', whose shared memory has become shorter since it was registered")


def test_a_region_stays_with_the_segment_that_was_registered(served: Served, segments: Segments) -> None:
    segments.make("in", b"\1\1\1\1")
    served.register("in", segments.key("in"))
    segments.path("in").unlink()
    segments.path("in").write_bytes(b"\7\7\7\7")  # somebody else's, under the same name
    answer = served.infer(asked("UINT8", [4], shared("in", 4)))
    assert data(answer) == [1, 1, 1, 1]


def test_a_region_that_is_unregistered_in_use_stays_until_the_request_ends(served: Served, segments: Segments) -> None:
    block = segments.make("out")
    before = segments.open_files()

    @served.server.model("leaves")
    def leaves(x: np.ndarray) -> np.ndarray:
        assert served.post("/systemsharedmemory/unregister").status == 200
        return x

    served.register("out", segments.key("out"))
    more = [{"name": "output_0", "parameters": shared("out", 4)}]
    body = asked("FP32", [1], {}, more, data=[1])
    assert served.post("/models/leaves/infer", body).status == 200
    assert bytes(block.buf[:4]) == np.float32(1).tobytes()
    block_until(lambda: segments.open_files() == before)  # the thread of the request may hold it a moment longer
    refused = error(served.post("/models/leaves/infer", body))
    assert refused == (400, "output 'output_0' is in the region 'out', which is not registered")


def test_streams_and_json_responses_take_no_outputs_in_shared_memory(served: Served, segments: Segments) -> None:
    segments.make("out")
    served.register("out", segments.key("out"))
    body = asked("FP32", [1], {}, [{"name": "output_0", "parameters": shared("out", 4)}], data=[1])
    for path in ("stream/infer_stream", "stream/generate", "declared/generate"):
        refused = error(served.post(f"/models/{path}", body))
        assert refused == (400, f"requested output 'output_0' has the parameter {REGION}, but this carries JSON: leave it out")
    with pytest.raises(InferenceError, match="goes to shared memory, but the model answers with a stream"):
        list(served.server.infer_stream_sync("stream", {"x": np.zeros(1)}, outputs=[RequestOutput("output_0", shared("out", 4))]))
