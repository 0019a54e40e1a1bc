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
from tests.support.inside.values import Array, to_bytes
from tests.support.talk import block_until
from tests.support.ways import Answer, Request, over_asgi, over_wsgi

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


@pytest.fixture
def server(segments: Segments) -> InferenceServer:
    server = InferenceServer(shared_memory=SharedMemory(allow=lambda key: key.startswith(segments.prefix)), max_body_bytes=100_000)
    server.register("echo", lambda **inputs: inputs)
    server.register("declared", lambda x: x, inputs=[TensorSpec("x", "FP32", [-1])], outputs=[TensorSpec("y", "FP32", [-1])])

    @server.model("awaiting")
    async def awaiting(x: Array) -> Any:
        return {"x": x, "is_writable": np.array([x.flags.writeable])}

    @server.model("stream")
    def stream(x: Array) -> Any:
        yield x

    server.register("inline", lambda x: {"x": x}, run="inline")
    return server


def post(server: InferenceServer, path: str, document: Any = None) -> Answer:
    body = b"" if document is None else json.dumps(document).encode()
    return over_asgi(OIPApp(server), "")(Request("POST", path, (), body))


def register(server: InferenceServer, name: str, key: str, byte_size: int = PAGE, **more: Any) -> Answer:
    return post(server, f"/systemsharedmemory/region/{name}/register", {"key": key, "byte_size": byte_size, **more})


def status(server: InferenceServer, name: str | None = None) -> Any:
    path = "" if name is None else f"/region/{name}"
    answer = over_asgi(OIPApp(server), "")(Request("GET", f"/systemsharedmemory{path}/status"))
    return json.loads(answer.body) if answer.status == 200 else answer.status


def shared(region: str, size: Any, **more: Any) -> dict[str, Any]:
    return {REGION: region, SIZE: size, **more}


def asked(datatype: str, shape: list[int], parameters: dict[str, Any], outputs: Any = None, **more: Any) -> dict[str, Any]:
    document: dict[str, Any] = {"inputs": [{"name": "x", "datatype": datatype, "shape": shape, "parameters": parameters, **more}]}
    return document if outputs is None else {**document, "outputs": outputs}


@pytest.mark.parametrize("model", ["echo", "declared", "awaiting", "inline"])
def test_tensors_in_both_directions(server: InferenceServer, segments: Segments, model: str) -> None:
    values = np.array([1.5, -2, 3], "f4")
    segments.make("in", b"junk" + values.tobytes())
    out = segments.make("out", b"\xff" * PAGE)
    register(server, "in", "/" + segments.key("in"))
    register(server, "out", segments.key("out"), 64, offset=8)
    name = "y" if model == "declared" else "x"
    outputs = [{"name": name, "parameters": shared("out", 20, **{OFFSET: 4})}]
    answer = post(server, f"/models/{model}/infer", asked("FP32", [3], shared("in", 12, **{OFFSET: 4}), outputs))
    assert answer.status == 200, answer.body
    assert json.loads(answer.body) == {"model_name": model, "outputs": [{"name": name, "shape": [3], "datatype": "FP32"}]}
    assert bytes(out.buf[12:24]) == values.tobytes()
    assert bytes(out.buf[:12]) == b"\xff" * 12
    assert bytes(out.buf[24:]) == b"\xff" * (PAGE - 24)
    inside = post(server, f"/models/{model}/infer", asked("FP32", [3], shared("in", 12, **{OFFSET: 4})))
    assert json.loads(inside.body)["outputs"][0]["data"] == [1.5, -2, 3]
    server.stop()


def test_bytes_and_datatypes_of_all_sizes(server: InferenceServer, segments: Segments) -> None:
    words = to_bytes(np.array([b"a", b"", b"long" * 9], object))
    block = segments.make("in", words)
    register(server, "in", segments.key("in"))
    answer = post(server, "/models/echo/infer", asked("BYTES", [3], shared("in", len(words))))
    assert json.loads(answer.body)["outputs"][0]["data"] == ["a", "", "long" * 9]
    for size, text in ((len(words) - 1, "claims 36 bytes, but 35 are left"), (len(words) + 4, "4 bytes are left over")):
        refused = error(post(server, "/models/echo/infer", asked("BYTES", [3], shared("in", size))))
        assert refused[0] == 400
        assert text in refused[1]
    block.buf[0:8] = np.array([2.5]).tobytes()
    assert json.loads(post(server, "/models/echo/infer", asked("FP64", [1, 1], shared("in", 8))).body)["outputs"][0]["data"] == [2.5]
    assert json.loads(post(server, "/models/echo/infer", asked("FP64", [0], shared("in", 0))).body)["outputs"][0]["data"] == []


def test_the_model_has_a_copy_that_nobody_changes(segments: Segments) -> None:
    block = segments.make("in", b"\1\2\3\4")
    server = InferenceServer(shared_memory=SharedMemory([segments.key("in")]))

    @server.model("slow")
    def slow(x: Array) -> Any:
        before = x.tobytes()
        block.buf[:4] = b"\x09" * 4
        return np.array([before == x.tobytes(), x.flags.writeable])

    register(server, "in", segments.key("in"))
    answer = post(server, "/models/slow/infer", asked("UINT8", [4], shared("in", 4)))
    assert json.loads(answer.body)["outputs"][0]["data"] == [True, False]


# What may be registered


@pytest.mark.parametrize(
    "key",
    ["", "/", "//a", "a/b", "../etc", "/../shm/{}", "..", ".", "{}/../{}", "a\0b", "x" * 256, "/dev/shm/{}", "\ud800"],
)
def test_a_key_is_the_name_of_one_file_in_one_folder(server: InferenceServer, segments: Segments, key: str) -> None:
    segments.make("in")
    name = segments.key("in")
    refused = error(register(server, "r", key.format(name, name)))
    assert refused[0] == 400, refused
    assert status(server) == []


def test_only_what_is_allowed_is_opened(server: InferenceServer, segments: Segments, tmp_path: Path) -> None:
    secret = Path("/dev/shm", f"other_{secrets.token_hex(4)}")
    secret.write_bytes(b"secret" * 1000)
    try:
        refused = error(register(server, "r", "/" + secret.name))
        assert refused == (
            403,
            f"this server does not let clients use the shared memory '/{secret.name}': the allow= of its SharedMemory decides",
        )
        missing = error(register(server, "r", "/nothing_of_this_name"))
        assert missing[0] == 403  # so nobody learns what is there
        # ways around the name: a link, another name for the same file, a folder, a pipe
        segments.path("link").symlink_to(secret)
        assert error(register(server, "r", segments.key("link")))[0] == 403
        os.link(secret, segments.path("hard"))
        assert error(register(server, "r", segments.key("hard"))) == (403, f"'{segments.key('hard')}' is no shared memory of one name")
        segments.path("folder").mkdir()
        assert error(register(server, "r", segments.key("folder")))[0] == 403
        os.mkfifo(segments.path("pipe"))
        assert error(register(server, "r", segments.key("pipe")))[0] == 403
    finally:
        segments.path("folder").rmdir()
        for path in (secret, segments.path("link"), segments.path("hard"), segments.path("pipe")):
            path.unlink(missing_ok=True)
    assert status(server) == []
    assert error(register(server, "r", segments.key("nothing"))) == (
        400,
        f"there is no shared memory '{segments.key('nothing')}': create it first",
    )


@pytest.mark.parametrize("returned", [None, 0, 1, "yes", np.True_, object()])
def test_anything_but_true_does_not_allow(segments: Segments, returned: Any) -> None:
    segments.make("in")
    server = InferenceServer(shared_memory=SharedMemory(allow=lambda key: returned))
    assert error(register(server, "r", segments.key("in")))[0] == 403


def test_an_allow_that_raises_does_not_allow_and_is_logged(segments: Segments, caplog: pytest.LogCaptureFixture) -> None:
    segments.make("in")
    server = InferenceServer(shared_memory=SharedMemory(allow=lambda key: bool(1 / 0)))
    status_code, text = error(register(server, "r", segments.key("in")))
    assert (status_code, "division" in text) == (403, False)
    assert "allow= of SharedMemory raised" in caplog.text


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
def test_a_region_lies_within_its_segment(server: InferenceServer, segments: Segments, more: Any, text: str) -> None:
    segments.make("in")
    document = {"key": segments.key("in"), **more}
    refused = error(post(server, "/systemsharedmemory/region/r/register", document))
    assert refused[0] == 400
    assert text in refused[1]


def test_a_request_to_register_is_short(server: InferenceServer) -> None:
    refused = error(register(server, "r", "x" * 2**16))
    assert refused[0] == 400
    assert refused[1].endswith("bytes: expected 65536 at most")


def test_names_are_registered_once_and_unregistered_any_number_of_times(server: InferenceServer, segments: Segments) -> None:
    segments.make("in")
    assert register(server, "a%2Fb", segments.key("in"), 8, offset=4).status == 200
    refused = error(register(server, "a/b", segments.key("in")))
    assert refused == (400, "region 'a/b' is registered already: unregister it first")
    described = {"name": "a/b", "key": segments.key("in"), "offset": 4, "byte_size": 8}
    assert status(server) == status(server, "a%2Fb") == [described]
    assert status(server, "c") == 404
    for _ in range(2):
        assert post(server, "/systemsharedmemory/region/a%2Fb/unregister").status == 200
        assert status(server) == []
    register(server, "a", segments.key("in"))
    register(server, "b", segments.key("in"))
    assert post(server, "/systemsharedmemory/unregister").status == 200
    assert status(server) == []
    assert error(register(server, "n" * 256, segments.key("in")))[0] == 400


def test_regions_are_bounded_and_their_files_are_closed(server: InferenceServer, segments: Segments) -> None:
    segments.make("in")
    before = segments.open_files()
    for number in range(256):
        assert register(server, f"r{number}", segments.key("in")).status == 200
    assert error(register(server, "more", segments.key("in"))) == (
        429,
        "256 regions are registered, and no more are allowed: unregister one first",
    )
    assert segments.open_files() == before + 256
    assert error(register(server, "r0", segments.key("in")))[0] == 400
    post(server, "/systemsharedmemory/unregister")
    assert segments.open_files() == before
    for _ in range(3):  # a refused one leaves nothing open
        assert error(register(server, "r", segments.key("in"), 2 * PAGE))[0] == 400
    register(server, "r", segments.key("in"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        server.stop()
        assert segments.open_files() == before
    assert status(server) == []


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
def test_inputs_outside_their_region_are_refused(server: InferenceServer, segments: Segments, parameters: Any, text: str) -> None:
    segments.make("in", size=PAGE)
    register(server, "in", segments.key("in"), 64)
    refused = error(post(server, "/models/echo/infer", asked("FP32", [1], parameters)))
    assert refused[0] == 400
    assert refused[1].startswith("inputs[0] ('x'): ")
    assert text in refused[1]


def test_an_input_has_its_data_once(server: InferenceServer, segments: Segments) -> None:
    segments.make("in")
    register(server, "in", segments.key("in"))
    expected = (400, f"input 'x' has data of its own and the parameter {REGION}: expected one of them")
    assert error(post(server, "/models/echo/infer", asked("FP32", [1], shared("in", 4), data=[1]))) == expected
    text = json.dumps(asked("FP32", [1], {**shared("in", 4), "binary_data_size": 4})).encode()
    framed = Request("POST", "/models/echo/infer", (("inference-header-content-length", str(len(text))),), text + b"\0\0\0\0")
    assert error(over_asgi(OIPApp(server), "")(framed)) == expected
    with pytest.raises(InferenceError, match="input 'x' has data of its own"):
        server.infer_sync("echo", {"x": Tensor("x", np.zeros(1, "f4"), shared("in", 4))})
    lone = error(post(server, "/models/echo/infer", asked("FP32", [1], {SIZE: 4}, data=[1])))
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
def test_outputs_that_do_not_fit_are_refused(server: InferenceServer, segments: Segments, parameters: Any, text: str) -> None:
    block = segments.make("out", b"\xaa" * PAGE)
    register(server, "out", segments.key("out"), 64)
    more = [{"name": "x", "parameters": parameters}]
    refused = error(post(server, "/models/echo/infer", asked("FP32", [1], {}, more, data=[1])))
    assert refused[0] == 400
    assert text in refused[1]
    assert bytes(block.buf) == b"\xaa" * PAGE


def test_each_output_has_memory_of_its_own(server: InferenceServer, segments: Segments) -> None:
    server.register("two", lambda x: {"a": x, "b": x + 1})
    block = segments.make("out")
    register(server, "out", segments.key("out"), 64)
    register(server, "again", segments.key("out"), 32)

    def asked_at(region: str, offset: int) -> Any:
        more = [
            {"name": "a", "parameters": shared("out", 8)},
            {"name": "b", "parameters": shared(region, 8, **({OFFSET: offset} if offset else {}))},
        ]
        return post(server, "/models/two/infer", asked("INT32", [2], {}, more, data=[1, 2]))

    for region in ("out", "again"):
        text = f"output 'a' is in the region 'out', and overlaps output 'b' is in the region '{region}': "
        assert error(asked_at(region, 4)) == (400, f"{text}expected other offsets, or smaller sizes")
    assert asked_at("again", 8).status == 200
    assert np.frombuffer(block.buf, np.int32, 4).tolist() == [1, 2, 2, 3]


def test_the_inputs_of_a_request_are_bounded_together(server: InferenceServer, segments: Segments) -> None:
    segments.make("in", size=70_000)
    register(server, "in", segments.key("in"), 70_000)
    one = {"datatype": "UINT8", "shape": [70_000], "parameters": shared("in", 70_000)}
    assert post(server, "/models/echo/infer", {"inputs": [{"name": "a", **one}]}).status == 200
    refused = error(post(server, "/models/echo/infer", {"inputs": [{"name": "a", **one}, {"name": "b", **one}]}))
    assert refused == (
        413,
        "the inputs in shared memory have more than 100000 bytes, the most that this server takes (max_body_bytes)",
    )
    # what is read more closely is not counted twice
    assert post(server, "/models/echo/infer", {"unknown": 1, "inputs": [{"name": "a", **one}]}).status == 200


def test_a_segment_that_becomes_shorter_is_told(server: InferenceServer, segments: Segments) -> None:
    segments.make("in", b"\1" * PAGE)
    segments.make("out", b"\2" * PAGE)
    register(server, "in", segments.key("in"))
    register(server, "out", segments.key("out"))
    body = asked("UINT8", [PAGE], shared("in", PAGE), [{"name": "x", "parameters": shared("out", PAGE)}])
    assert post(server, "/models/echo/infer", body).status == 200
    os.truncate(segments.path("out"), 100)
    text = "output 'x' is in the region 'out', whose shared memory has become shorter since it was registered"
    assert error(post(server, "/models/echo/infer", body)) == (400, text)
    assert segments.path("out").stat().st_size == 100
    for size in (PAGE - 1, 1, 0):
        os.truncate(segments.path("in"), size)
        refused = error(post(server, "/models/echo/infer", asked("UINT8", [PAGE], shared("in", PAGE))))
        assert refused == (400, "inputs[0] ('x'): it is in the region 'in', whose shared memory has become shorter since it was registered")


def test_a_region_stays_with_the_segment_that_was_registered(server: InferenceServer, segments: Segments) -> None:
    segments.make("in", b"\1\1\1\1")
    register(server, "in", segments.key("in"))
    segments.path("in").unlink()
    segments.path("in").write_bytes(b"\7\7\7\7")  # somebody else's, under the same name
    answer = post(server, "/models/echo/infer", asked("UINT8", [4], shared("in", 4)))
    assert json.loads(answer.body)["outputs"][0]["data"] == [1, 1, 1, 1]


def test_a_region_that_is_unregistered_in_use_stays_until_the_request_ends(server: InferenceServer, segments: Segments) -> None:
    block = segments.make("out")
    before = segments.open_files()

    @server.model("leaves")
    def leaves(x: Array) -> Array:
        assert post(server, "/systemsharedmemory/unregister").status == 200
        return x

    register(server, "out", segments.key("out"))
    more = [{"name": "output_0", "parameters": shared("out", 4)}]
    body = asked("FP32", [1], {}, more, data=[1])
    assert post(server, "/models/leaves/infer", body).status == 200
    assert bytes(block.buf[:4]) == np.float32(1).tobytes()
    block_until(lambda: segments.open_files() == before)  # the thread of the request may hold it a moment longer
    refused = error(post(server, "/models/leaves/infer", body))
    assert refused == (400, "output 'output_0' is in the region 'out', which is not registered")


def test_streams_and_json_responses_take_no_outputs_in_shared_memory(server: InferenceServer, segments: Segments) -> None:
    segments.make("out")
    register(server, "out", segments.key("out"))
    body = asked("FP32", [1], {}, [{"name": "output_0", "parameters": shared("out", 4)}], data=[1])
    for path in ("stream/infer_stream", "stream/generate", "declared/generate"):
        refused = error(post(server, f"/models/{path}", body))
        assert refused == (400, f"requested output 'output_0' has the parameter {REGION}, but this carries JSON: leave it out")
    with pytest.raises(InferenceError, match="goes to shared memory, but the model answers with a stream"):
        list(server.infer_stream_sync("stream", {"x": np.zeros(1)}, outputs=[RequestOutput("output_0", shared("out", 4))]))


def test_wsgi_reads_and_writes_alike(server: InferenceServer, segments: Segments) -> None:
    segments.make("in", b"\1\2")
    register(server, "in", segments.key("in"))
    body = json.dumps(asked("UINT8", [2], shared("in", 2))).encode()
    for model in ("echo", "inline", "awaiting"):
        answer = over_wsgi(OIPWSGIApp(server), "")(Request("POST", f"/models/{model}/infer", (), body))
        assert json.loads(answer.body)["outputs"][0]["data"] == [1, 2]
    server.stop()


def test_where_it_is_off_nothing_is_read(segments: Segments) -> None:
    server = InferenceServer()
    server.register("echo", lambda **inputs: inputs)
    text = f"it has the parameter {REGION}, which this server does not support: leave it out"
    assert error(post(server, "/models/echo/infer", asked("FP32", [1], shared("in", 4)))) == (400, f"inputs[0] ('x'): {text}")
    more = [{"name": "x", "parameters": shared("in", 4)}]
    refused = error(post(server, "/models/echo/infer", asked("FP32", [1], {}, more, data=[1])))
    assert refused == (400, f"requested output 'x' has the parameter {REGION}, which this server does not support: leave it out")
    assert error(register(server, "in", segments.key("in")))[0] == 403
