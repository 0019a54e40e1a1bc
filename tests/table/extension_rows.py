"""Rows of Triton's extensions that need no set-up: classification, reserved parameters, and what is said where shared memory is off."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.ways import Request
from tests.table.row import ECHOED, GOOD, Row, answer, infer, inputs, tensor


def classification_rows() -> Iterator[Row]:
    def asked(text: str, parameters: str) -> bytes:
        return inputs(text, more=f',"outputs":[{{"name":"x","parameters":{{{parameters}}}}}]')

    def texts(*rows: str) -> str:
        return "[" + ",".join(f'"{row}"' for row in rows) + "]"

    wide = tensor("FP32", [2, 3], "[0.5,2,1,3,3,-1]")
    good = {
        "the largest of one dimension": (tensor("FP32", [3], "[0.1,0.7,0.2]"), 1, [1], ["0.700000:1"]),
        "of all dimensions behind the batch": (tensor("INT16", [1, 2, 2], "[1,9,4,9]"), 3, [1, 3], ["9:1", "9:3", "4:2"]),
        "more than there are": (wide, 5, [2, 3], ["2.000000:1", "1.000000:2", "0.500000:0", "3.000000:0", "3.000000:1", "-1.000000:2"]),
        "a scalar": (tensor("UINT64", [], "18446744073709551615"), 2, [1], ["18446744073709551615:0"]),
        "no rows": (tensor("FP32", [0, 3], "[]"), 2, [0, 2], []),
        "no classes": (tensor("FP32", [2, 0], "[]"), 2, [2, 0], []),
        "a large float": (tensor("FP32", [1], "[1e30]"), 1, [1], ["1000000015047466219876688855040.000000:0"]),
        "NaN last": (tensor("FP64", [4], "[null,-1,null,-2]"), 3, [3], ["-1.000000:1", "-2.000000:3", "nan:0"]),
        "infinity": (tensor("FP16", [3], '["-Infinity",null,"Infinity"]'), 3, [3], ["inf:2", "-inf:0", "nan:1"]),
    }
    for name, (text, number, shape, expected) in good.items():
        body = answer("echo", tensor("BYTES", shape, texts(*expected), "x"))
        yield Row(f"classification: {name}", infer("echo", asked(text, f'"classification":{number}')), 200, body)
    yield Row("classification: 0 is none", infer("echo", asked(GOOD, '"classification":0')), 200, answer("echo", ECHOED))
    binary = asked(tensor("FP32", [2], "[1,2]"), '"classification":1,"binary_data":true')
    head = answer("echo", tensor("BYTES", [1], None, "x", '{"binary_data_size":14}'))
    length = (("inference-header-content-length", str(len(head))),)
    yield Row("classification: binary", infer("echo", binary), 200, head + b"\x0a\0\0\x002.000000:1", headers=length)
    labelled = inputs(tensor("FP32", [1, 2], "[1,2]"), tensor("INT64", [1], "[7]", "n"), more=_ASKED_OF_TWO)
    said = tensor("BYTES", [1, 2], '["2.000000:1:warm","1.000000:0:cold"]', "y")
    yield Row("classification: labels", infer("two", labelled), 200, answer("two", said))
    for value in ("-1", "1.5", "true", '"2"'):
        parts = ("requested output 'x' has the parameter classification = ", ": expected an integer, 0 or more")
        yield Row(f"classification of {value}", infer("echo", asked(GOOD, f'"classification":{value}')), 400, text=parts)
    for model, output, body in (("not%20utf-8", "output_0", inputs()), ("raw-bytes", "y", inputs(tensor("BYTES", [1], '["a"]')))):
        body = body[:-1] + f',"outputs":[{{"name":"{output}","parameters":{{"classification":1}}}}]}}'.encode()
        message = f"output '{output}' has datatype BYTES: classification needs integers, FP16, FP32 or FP64"
        yield Row(f"classification of {model}", infer(model, body), 400, text=(message,))
    both = asked(GOOD, '"classification":1,"content_type":"np"')
    yield Row("classification and content_type", infer("echo", both), 400, text=("classification and content_type: expected one of them",))
    of_an_input = inputs(tensor("FP32", [1], "[1]", parameters='{"classification":1}'))
    message = "input 'x' has the parameter classification, which this server does not support"
    yield Row("classification of an input", infer("echo", of_an_input), 400, text=(message,))


_ASKED_OF_TWO = ',"outputs":[{"name":"y","parameters":{"classification":2}}]'


def reserved_rows() -> Iterator[Row]:
    """The parameters of requests that Triton's extensions reserve."""

    def asked(parameters: str) -> Request:
        return infer("echo", inputs(GOOD, more=f',"parameters":{{{parameters}}}'))

    for parameters in (
        '"sequence_id":42,"sequence_start":true,"sequence_end":false',
        '"sequence_id":"a sequence"',
        '"sequence_id":18446744073709551615',
        '"priority":0',
        '"priority":7',
        '"triton_enable_empty_final_response":true',
        '"tritonic":1',
    ):
        yield Row(f"parameters {parameters}", asked(parameters), 200, answer("echo", ECHOED))
    for parameters, message in (
        ('"sequence_id":-1', "parameters.sequence_id is -1: expected an integer, 0 or more, or a string"),
        ('"sequence_id":1.5', "parameters.sequence_id is 1.5: expected an integer"),
        ('"sequence_id":true', "parameters.sequence_id is True: expected an integer"),
        ('"sequence_start":1', "parameters.sequence_start is 1: expected true or false"),
        ('"sequence_end":"true"', "parameters.sequence_end is 'true': expected true or false"),
        ('"priority":-1', "parameters.priority is -1: expected an integer, 0 or more"),
        ('"priority":1.5', "parameters.priority is 1.5: expected an integer, 0 or more"),
        ('"priority":"1"', "parameters.priority is '1': expected an integer, 0 or more"),
        ('"triton_enable_empty_final_response":1', "parameters.triton_enable_empty_final_response is 1: expected true or false"),
        ('"triton_final_response":true', "parameters['triton_final_response'] is unknown, and names that begin with triton_ are reserved"),
    ):
        yield Row(f"parameters {parameters}", asked(parameters), 400, text=(message,))


def shared_memory_rows() -> Iterator[Row]:
    """What clients ask when they start, of a server that uses no shared memory; and settings that no server has."""
    yield Row("system status", Request("GET", "/systemsharedmemory/status"), 200, b"[]")
    yield Row("system status of a region", Request("GET", "/systemsharedmemory/region/in/status"), 404, text=("unknown region 'in'",))
    yield Row("system status of a name with a slash", Request("GET", "/systemsharedmemory/region/a%2Fb/status"), 404, text=("'a/b'",))
    no_cuda = ("CUDA shared memory is not supported: send the tensors in the request",)
    for kind, refused in (("system", ("unknown path",)), ("cuda", no_cuda)):
        base = f"/{kind}sharedmemory"
        for path in ("/unregister", "/region/in/unregister", "/region/a/b/unregister"):
            yield Row(f"{kind} {path}", Request("POST", base + path), 200, b"")
            yield Row(f"GET {kind} {path}", Request("GET", base + path), 405, headers=(("allow", "POST"),))
        for path in ("", "/region", "/region/in", "/register"):
            yield Row(f"{kind} {path} is unknown", Request("GET", base + path), 404, text=refused if path else ("unknown path",))
    body = b'{"key":"/in","byte_size":4}'
    text = ("this server does not use shared memory: InferenceServer(shared_memory=SharedMemory(allow=...)) does",)
    yield Row("register a region", Request("POST", "/systemsharedmemory/region/in/register", (), body), 403, text=text)
    body = b'{"raw_handle":{"b64":"AA=="},"device_id":0,"byte_size":4}'
    yield Row("register a region of CUDA", Request("POST", "/cudasharedmemory/region/in/register", (), body), 404, text=no_cuda)
    for path in ("/status", "/region/in/status", "/region/a%2Fb/status"):
        yield Row(f"CUDA {path}", Request("GET", f"/cudasharedmemory{path}"), 404, text=no_cuda)
    for method in ("GET", "POST"):
        for path in ("/trace/setting", "/models/echo/trace/setting", "/models/org%2Fmodel/trace/setting/"):
            yield Row(f"{method} {path}", Request(method, path), 404, text=("trace settings are not supported: ",))
        yield Row(f"{method} /logging", Request(method, "/logging"), 404, text=("log settings are not supported: ",))
