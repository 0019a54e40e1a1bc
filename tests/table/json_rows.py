"""Rows of requests and answers in JSON: good ones, requested outputs, and all that can be wrong in a document, a tensor or an element."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.support.ways import Request
from tests.table.row import ECHOED, FLOATS, GOOD, INTEGERS, MAX_JSON_BYTES, Row, answer, framed, infer, inputs, tensor

FORM = b'--a\r\nContent-Disposition: form-data; name="request"\r\n\r\n%b\r\n--a--\r\n'
OF_TENSORFLOW = (
    'it looks like the form of TensorFlow Serving: write {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", '
    '"data": [1, 2]}]}, or send {"x": [[1, 2]]} to generate'
)
NO_MARK = "it begins with a byte order mark: send UTF-8 without one, which Python calls utf-8 and not utf-8-sig"
NO_NPY = "it looks like a .npy file: send JSON, or the array's bytes alone as binary tensor data"
NO_REPR = "it looks like a dict as Python prints it: send what json.dumps makes of it"
NO_FORM = "it looks like multipart/form-data, which curl -F and HTML forms send: send JSON"

BEYOND = {"above 64 bits": 2**64, "below 64 bits": -(2**63) - 1, "of 30 digits": 10**30}
TOO_WIDE = "is an integer of more than 64 bits: expected -9223372036854775808 to 18446744073709551615"
OTHER_DATATYPES = (
    ", UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, FP32, FP64, BYTES, or BF16 with ml_dtypes (names are case-sensitive)"
)
DATATYPES = {
    **dict.fromkeys(("fp32", "float32", "TYPE_FP32"), "; did you mean 'FP32'?"),
    **dict.fromkeys(("STRING", "str", "object"), "; did you mean 'BYTES'?"),
    **dict.fromkeys(("FLOAT", "", "FP8", "INT"), ""),
}
"""Names that are no datatypes, and what is asked about them."""


def good_rows() -> Iterator[Row]:
    echoed = answer("echo", ECHOED)
    yield Row("trailing slash", Request("POST", "/models/echo/infer/", (), inputs(GOOD)), 200, echoed)
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "nonsense"):
        yield Row(f"Content-Type {content_type}", infer("echo", inputs(GOOD), ("content-type", content_type)), 200, echoed)
    yield Row("Content-Encoding identity", infer("echo", inputs(GOOD), ("content-encoding", "identity")), 200, echoed)
    for value in ('"42"', '"\\"NaN,\\\\"', '""', '"é\\u0000\\n"', '"h\\u00e9\\u20ac"', '"\\ud83d\\ude00"'):
        more = f',"id":{value}'
        shown = json.dumps(json.loads(value), ensure_ascii=False)
        yield Row(f"id {value}", infer("echo", inputs(GOOD, more=more)), 200, answer("echo", ECHOED, more=f',"id":{shown}'))
    for more in (
        ',"id":null',
        ',"parameters":null',
        ',"outputs":null',
        ',"outputs":[]',
        ',"parameters":{}',
        ',"model_name":"other","model_version":"7"',
        ',"model_name":7',
        ',"unknown":{"a":[1,{"b":null}]}',
        ',"unknown":"[[{"',
        ',"unknown":"\\\\"',
        ',"parameters":{"a":"s","b":1,"c":1.5,"d":true}',
        ',"parameters":{"a":18446744073709551615,"b":-9223372036854775808,"c":1e30}',
        ',"parameters":{"binary_data_output":false}',
        ',"unknown":' + "[" * 99 + "]" * 99,
        ',"unknown":["NaN",{"x":"-Infinity"}]',
        ',"unknown":"' + "[" * 200 + '"',
        ',"unknown":"\\"' + "[" * 200 + '"',
    ):
        yield Row(f"ignored {more[:40]}", infer("echo", inputs(GOOD, more=more)), 200, echoed)
    yield Row(
        "null data and parameters",
        infer("echo", inputs(tensor("FP32", [0], "null", parameters='{"binary_data_size":0}'))),
        200,
        answer("echo", tensor("FP32", [0], "[]")),
    )
    yield Row("unknown fields of a tensor", infer("echo", inputs(GOOD[:-1] + ',"unit":"m"}')), 200, echoed)
    yield Row("spaces around", infer("echo", b" \r\n\t" + inputs(GOOD) + b"\n "), 200, echoed)
    yield Row(
        "many brackets",
        infer("echo", inputs(tensor("INT8", [300, 1], json.dumps([[1]] * 300)), more=',"unknown":[]')),
        200,
        answer("echo", tensor("INT8", [300, 1], json.dumps([1] * 300, separators=(",", ":")))),
    )
    yield Row("no inputs", infer("no%20inputs", inputs()), 200, answer("no inputs", tensor("FP64", [1], "[1.5]", "output_0")))
    yield Row("encoded slash", infer("org%2Fmodel", inputs(GOOD)), 200, answer("org/model", tensor("FP32", [2], "[1.0,2.0]", "output_0")))
    yield Row(
        "optional input left out", infer("optional", inputs(GOOD)), 200, answer("optional", tensor("FP32", [2], "[1.0,2.0]", "output_0"))
    )
    biased = inputs(GOOD, tensor("FP32", [1], "[1]", "bias"))
    yield Row("optional input given", infer("optional", biased), 200, answer("optional", tensor("FP32", [2], "[2.0,3.0]", "output_0")))
    yield Row(
        "tensor parameters",
        infer("whole", inputs(tensor("FP32", [2], "[1,2]", parameters='{"unit":"m"}'))),
        200,
        answer("whole", tensor("BYTES", [1], '["x"]', "names"), more=',"parameters":{"seen":true}'),
    )
    yield Row(
        "header that counts all JSON", infer("echo", inputs(GOOD), ("inference-header-content-length", str(len(inputs(GOOD))))), 200, echoed
    )
    repeated = [("inference-header-content-length", str(len(inputs(GOOD))))] * 2
    yield Row("header repeated alike", infer("echo", inputs(GOOD), *repeated), 200, echoed)
    nonfinite = answer("not finite", tensor("FP64", [4], '[null,"Infinity","-Infinity",1.0]', "output_0"))
    yield Row("not finite", infer("not%20finite", inputs()), 200, nonfinite)
    told = answer("tells its version", tensor("FP64", [1], "[1.0]", "y"), version="7")
    yield Row("a version that the model tells", infer("tells%20its%20version", inputs()), 200, told)
    yield Row("largest JSON", infer("echo", inputs(GOOD).ljust(MAX_JSON_BYTES)), 200, echoed)


X2, N1 = tensor("FP32", [1, 2], "[1,2]"), tensor("INT64", [1], "[7]", "n")
Y_OUT, M_OUT = tensor("FP32", [1, 2], "[1.0,2.0]", "y"), tensor("INT64", [1], "[7]", "m")


def output_rows() -> Iterator[Row]:
    def asked(*outputs: str, more: str = "") -> bytes:
        return inputs(X2, N1, more=f',"outputs":[{",".join(outputs)}]{more}')

    longest = tensor("FP32", [1_000_000, 0], "[]")
    yield Row("longest empty tensor", infer("echo", inputs(longest)), 200, answer("echo", longest))
    rows = inputs(tensor("INT32", [1], "[1000000]"))
    made = tensor("FP64", [1_000_000, 0], "[]", "output_0")
    yield Row("longest empty output", infer("long%20and%20empty", rows), 200, answer("long and empty", made))
    longer = inputs(tensor("INT32", [1], "[1000001]"))
    yield Row("empty output that is too long", infer("long%20and%20empty", longer), 500, text=("'long and empty' failed: see",))
    nothing = tensor("BYTES", [0], "[]", "y", '{"content_type":"str"}')
    for shape in ([3, 0], [0, 3], [0]):
        body = inputs(tensor("FP32", shape, "[]"))
        yield Row(f"shape {shape} as a list of text", infer("lists%20text", body), 200, answer("lists text", nothing))
    yield Row("outputs as declared", infer("two", inputs(N1, X2)), 200, answer("two", Y_OUT, M_OUT))
    yield Row("outputs in the order asked for", infer("two", asked('{"name":"m"}', '{"name":"y"}')), 200, answer("two", M_OUT, Y_OUT))
    yield Row("one output", infer("two", asked('{"name":"m","parameters":null}')), 200, answer("two", M_OUT))
    y_raw, m_raw = bytes.fromhex("0000803f00000040"), bytes.fromhex("0700000000000000")
    y_binary = tensor("FP32", [1, 2], None, "y", '{"binary_data_size":8}')
    m_binary = tensor("INT64", [1], None, "m", '{"binary_data_size":8}')
    every = ',"parameters":{"binary_data_output":true}'
    y_yes, m_no = '{"name":"y","parameters":{"binary_data":true}}', '{"name":"m","parameters":{"binary_data":false}}'
    for name, body, text, data in (
        ("all binary", inputs(X2, N1, more=every), answer("two", y_binary, m_binary), y_raw + m_raw),
        (
            "binary in the order asked for",
            asked('{"name":"m"}', '{"name":"y"}', more=every),
            answer("two", m_binary, y_binary),
            m_raw + y_raw,
        ),
        ("one of two binary", asked(y_yes, '{"name":"m"}'), answer("two", y_binary, M_OUT), y_raw),
        ("overridden", asked('{"name":"y"}', m_no, more=every), answer("two", y_binary, M_OUT), y_raw),
    ):
        yield Row(name, infer("two", body), 200, text + data, headers=(("inference-header-content-length", str(len(text))),))
    none = asked(m_no, more=every)
    yield Row("overridden for all", infer("two", none), 200, answer("two", M_OUT), headers=(("content-type", "application/json"),))
    mixed = inputs(tensor("FP32", [1, 2], None, parameters='{"binary_data_size":8}'), N1)
    yield Row("binary before JSON", framed("two", mixed, y_raw), 200, answer("two", Y_OUT, M_OUT))
    mixed = inputs(X2, tensor("INT64", [1], None, "n", '{"binary_data_size":8}'))
    yield Row("JSON before binary", framed("two", mixed, m_raw), 200, answer("two", Y_OUT, M_OUT))
    mixed = inputs(
        tensor("INT64", [1], None, "n", '{"binary_data_size":8}'), tensor("FP32", [1, 2], None, parameters='{"binary_data_size":8}')
    )
    yield Row("binary twice", framed("two", mixed, m_raw + y_raw), 200, answer("two", Y_OUT, M_OUT))
    bad = {
        "unknown output": (asked('{"name":"z"}'), "unknown output 'z': expected 'y', 'm'"),
        "output twice": (asked('{"name":"y"}', '{"name":"y"}'), "output 'y' is asked for twice"),
        "output in shared memory": (asked('{"name":"y","parameters":{"shared_memory_region":"r"}}'), "shared_memory_region"),
        "binary_data no boolean": (
            asked('{"name":"y","parameters":{"binary_data":1}}'),
            "outputs[0].parameters.binary_data is 1: expected true or false",
        ),
        "binary_data_output no boolean": (
            inputs(X2, N1, more=',"parameters":{"binary_data_output":"true"}'),
            "parameters.binary_data_output is 'true'",
        ),
        "output without name": (asked("{}"), "outputs[0]: object missing required field name"),
        "output no object": (asked('"y"'), "outputs[0]: expected object, got str"),
        "outputs no array": (inputs(X2, N1, more=',"outputs":{}'), "outputs: expected array | null, got object"),
        "output parameters no object": (asked('{"name":"y","parameters":[]}'), "outputs[0].parameters"),
    }
    for name, (body, message) in bad.items():
        yield Row(name, infer("two", body), 400, text=(message,))
    yield Row(
        "unknown output of an undeclared model",
        infer("no%20inputs", inputs(more=',"outputs":[{"name":"z"}]')),
        400,
        text=("unknown output 'z': expected 'output_0'",),
    )


def document_rows() -> Iterator[Row]:
    bad = {
        "empty body": (b"", "the body is empty"),
        "blanks": (b"  \n ", "not valid JSON"),
        "no JSON": (b"hello", "not valid JSON"),
        "cut off": (inputs(GOOD)[:-5], "not valid JSON"),
        "trailing bytes": (inputs(GOOD) + b"x", "trailing characters"),
        "two documents": (inputs(GOOD) + inputs(GOOD), "trailing characters"),
        "byte order mark": (b"\xef\xbb\xbf" + inputs(GOOD), f"invalid character (byte 0); {NO_MARK}"),
        "long, with a byte order mark": (b"\xef\xbb\xbf" + inputs(GOOD).ljust(18_000), f"invalid character (byte 0); {NO_MARK}"),
        "a form": (FORM % inputs(GOOD), f"invalid character (byte 1); {NO_FORM}"),
        "a form with a file": (FORM % b"\xff\xd8", f"not valid UTF-8: invalid start byte; {NO_FORM}"),
        "an npy file": (b"\x93NUMPY\x01\x00", f"not valid UTF-8: invalid start byte; {NO_NPY}"),
        "a dict as Python prints it": (repr(json.loads(inputs(GOOD))).encode(), f"(byte 1); {NO_REPR}"),
        "UTF-16": (inputs(GOOD).decode().encode("utf-16"), "not valid UTF-8: invalid start byte; it looks like UTF-16: send UTF-8"),
        "invalid UTF-8": (inputs(GOOD, more=',"id":"\xff"').replace("\xff".encode(), b"\xff"), "not valid UTF-8"),
        "invalid UTF-8 in an unknown field": (inputs(GOOD, more=',"zz":"\xff"').replace("\xff".encode(), b"\xff"), "not valid UTF-8"),
        "lone surrogate": (inputs(GOOD, more=',"id":"\\ud800"'), "not valid JSON"),
        "comment": (inputs(GOOD, more="/* */"), "not valid JSON"),
        "trailing comma": (inputs(GOOD, more=","), "not valid JSON"),
        "single quotes": (inputs(GOOD).replace(b'"', b"'"), "not valid JSON"),
        "garbage in an unknown field": (inputs(GOOD, more=',"zz":[01.0.0]'), "not valid JSON"),
        "array": (b"[]", "the body: expected object, got array"),
        "string": (b'"inputs"', "the body: expected object, got str"),
        "null": (b"null", "the body: expected object, got null"),
        "number": (b"5", "the body: expected object, got int"),
        "no inputs field": (b"{}", "the body: object missing required field inputs; a plain object is for generate or generate_stream"),
        "instances": (b'{"instances":[[1,2]]}', f"the body: object missing required field inputs; {OF_TENSORFLOW}"),
        "instances and a signature": (b'{"signature_name":"a","instances":[1]}', f"missing required field inputs; {OF_TENSORFLOW}"),
        "inputs by name": (b'{"inputs":{"x":[[1,2]]}}', f"inputs: expected array, got object; {OF_TENSORFLOW}"),
        "inputs without a name": (b'{"inputs":[[1,2]]}', f"inputs[0]: expected object, got array; {OF_TENSORFLOW}"),
        "inputs null": (b'{"inputs":null}', "inputs: expected array, got null"),
        "inputs an object": (b'{"inputs":{}}', "inputs: expected array, got object"),
        "input a string": (inputs('"x"'), "inputs[0]: expected object, got str"),
        "second input null": (inputs(GOOD, "null"), "inputs[1]: expected object, got null"),
        "id a number": (inputs(GOOD, more=',"id":1'), "id: expected str | null, got int"),
        "id an array": (inputs(GOOD, more=',"id":["a"]'), "id: expected str | null, got array"),
        "parameters an array": (inputs(GOOD, more=',"parameters":[]'), "parameters: expected object | null, got array"),
        "parameters a string": (inputs(GOOD, more=',"parameters":"a"'), "parameters: expected object | null, got str"),
        "parameter null": (
            inputs(GOOD, more=',"parameters":{"a":null}'),
            "parameters['a'] is null: expected a string, a number, true or false",
        ),
        "parameter an array": (
            inputs(GOOD, more=',"parameters":{"a":[1]}'),
            "parameters['a'] is a list: expected a string, a number, true or false",
        ),
        "parameter an object": (
            inputs(GOOD, more=',"parameters":{"a":{}}'),
            "parameters['a'] is an object: expected a string, a number, true or false",
        ),
        **{
            f"parameter {name}": (inputs(GOOD, more=f',"parameters":{{"a":{number}}}'), f"parameters['a'] {TOO_WIDE}")
            for name, number in BEYOND.items()
        },
        "output parameter above 64 bits": (
            inputs(GOOD, more=f',"outputs":[{{"name":"x","parameters":{{"a":{2**64}}}}}]'),
            f"outputs[0].parameters['a'] {TOO_WIDE}",
        ),
        "NaN id": (inputs(GOOD, more=',"id":NaN'), "NaN, Infinity and -Infinity are no JSON"),
        "NaN parameter": (inputs(GOOD, more=',"parameters":{"a":NaN}'), "NaN, Infinity and -Infinity are no JSON"),
        "NaN parameters": (inputs(GOOD, more=',"parameters":NaN'), "NaN, Infinity and -Infinity are no JSON"),
        "NaN outputs": (inputs(GOOD, more=',"outputs":NaN'), "NaN, Infinity and -Infinity are no JSON"),
        "NaN inputs": (b'{"inputs":NaN}', "NaN, Infinity and -Infinity are no JSON"),
        "NaN dimension": (inputs(tensor("FP32", [2], "[1,2]").replace("[2]", "[NaN]")), "inputs[0].shape[0]"),
        "NaN unknown": (inputs(GOOD, more=',"zz":[NaN,{"a":-Infinity}]'), "NaN, Infinity and -Infinity are no JSON"),
        "NaN id, and its escaped spelling": (
            inputs(tensor("FP32", [1], '["\\u004eaN"]'), more=',"id":NaN'),
            "NaN, Infinity and -Infinity are no JSON",
        ),
        "nested 101 deep": (inputs(GOOD, more=',"zz":' + "[" * 100 + "]" * 100), "nested more than 100 deep"),
        "nested 101 deep in objects": (inputs(GOOD, more=',"zz":' + '{"a":' * 100 + "1" + "}" * 100), "nested more than 100 deep"),
        "data nested 101 deep": (inputs(tensor("FP32", [1], "[" * 100 + "1" + "]" * 100)), "data"),
        "data nested 600 deep": (inputs(tensor("FP32", [1], "[" * 600 + "1" + "]" * 600)), "data"),
        "nested 5000 deep": (b"[" * 5000 + b"]" * 5000, "nested more than 100 deep"),
        "nested 5000 deep, cut off": (b'{"a":' * 3000, "nested more than 100 deep"),
    }
    for name, (body, text) in bad.items():
        yield Row(name, infer("echo", body), 400, text=(text,))


def tensor_rows() -> Iterator[Row]:
    """What may be wrong about an input."""
    size = '{"binary_data_size":%s}'
    missing = {field: GOOD.replace(f'"{field}"', '"other"') for field in ("name", "shape", "datatype")}
    bad = {
        **{f"no {field}": (text, f"inputs[0]: object missing required field {field}") for field, text in missing.items()},
        "no data": (tensor("FP32", [2], None), "inputs[0] ('x'): data is missing"),
        "data null": (tensor("FP32", [2], "null"), "inputs[0] ('x'): data is missing"),
        "name a number": (GOOD.replace('"x"', "1"), "inputs[0].name: expected str, got int"),
        "name null": (GOOD.replace('"x"', "null"), "inputs[0].name: expected str, got null"),
        "datatype null": (GOOD.replace('"FP32"', "null"), "inputs[0].datatype: expected str, got null"),
        "shape a number": (GOOD.replace("[2]", "2"), "inputs[0].shape: expected array, got int"),
        "shape null": (GOOD.replace("[2]", "null"), "inputs[0].shape: expected array, got null"),
        "shape of strings": (tensor("FP32", ["2"], "[1,2]"), "inputs[0].shape[0]: expected int"),
        "shape with a fraction": (tensor("FP32", [2.5], "[1,2]"), "inputs[0].shape[0]: expected int"),
        "shape with true": (tensor("FP32", [True], "[1]"), "inputs[0].shape[0]: expected int, got bool"),
        "shape with null": (tensor("FP32", [None], "[1]"), "inputs[0].shape[0]: expected int, got null"),
        "shape nested": (tensor("FP32", [[2]], "[1,2]"), "inputs[0].shape[0]: expected int, got array"),
        "shape -1": (tensor("FP32", [-1], "[1,2]"), "inputs[0].shape[0]: expected int >= 0"),
        "shape 2^40": (tensor("FP32", [2**40], "[1]"), "data has 1 elements: expected 1099511627776"),
        "shape 2^62": (tensor("FP32", [2**62], "[1]"), "shape is too large"),
        "shape 2^64-3": (tensor("FP32", [2**64 - 3], "[1]"), "shape is too large"),
        "shape 2^64": (tensor("FP32", [2**64], "[]"), "shape is too large"),
        "shape [0, 2^60]": (tensor("FP64", [0, 2**60], "[]"), "shape is too large"),
        "shape [0, 2^60] of BYTES": (tensor("BYTES", [0, 2**60], "[]"), "shape is too large"),
        "shape of 64 long dimensions": (tensor("BYTES", [10**99] * 64, "[]"), "shape is too large"),
        "shape [1000001, 0]": (tensor("FP32", [1_000_001, 0], "[]"), "shape is too large"),
        "shape [0, 1001, 1000]": (tensor("BYTES", [0, 1001, 1000], "[]"), "shape is too large"),
        "shape [0, 2^62]": (tensor("FP32", [0, 2**62], "[]"), "shape is too large"),
        "shape [2^32, 2^32]": (tensor("UINT8", [2**32, 2**32], "[]"), "shape is too large"),
        "shape of 65 dimensions": (tensor("FP32", [1] * 65, "[1]"), "65 dimensions: at most 64"),
        "shape of 10^30": (tensor("FP32", [10**30], "[1]"), "shape is too large"),
        "too few": (tensor("FP32", [3], "[1,2]"), "data has 2 elements: expected 3"),
        "too many": (tensor("FP32", [1], "[1,2]"), "data has 2 elements: expected 1"),
        "far too many": (tensor("FP32", [1], f"[{','.join('1' * 9_000)}]"), "data has 9000 elements: expected 1"),
        "too many for none": (tensor("FP32", [0], "[1]"), "data has 1 elements: expected 0"),
        "ragged": (tensor("FP32", [2, 2], "[[1,2],[3]]"), "array 1 of dimension 1 has 1 items, not 2"),
        "ragged to the right sum": (tensor("FP32", [2, 2], "[[1,2,3],[4]]"), "array 0 of dimension 1 has 3 items, not 2"),
        "transposed": (tensor("FP32", [2, 3], "[[1,2],[3,4],[5,6]]"), "has 3 items, not 2"),
        "mixed depth": (tensor("FP32", [2, 2], "[[1,2],3]"), "data[1]"),
        "nested too deep": (tensor("FP32", [2], "[[1],[2]]"), "data[0] is an array"),
        "nested too little": (tensor("FP32", [1, 1, 2], "[[1,2]]"), "data[0][0] is an integer"),
        "data an object": (tensor("FP32", [2], '{"a":1}'), "data is an object"),
        "data a string": (tensor("FP32", [2], '"12"'), "data is a string"),
        "data a number": (tensor("FP32", [1], "1"), "data is an integer"),
        "data true for a scalar": (tensor("FP32", [], "true"), "data is true or false"),
        "empty nested wrongly": (tensor("FP32", [0, 2], "[[]]"), "array 0 of dimension 0 has 1 items, not 0"),
        "shared memory": (
            tensor("FP32", [2], "[1,2]", parameters='{"shared_memory_region":"r"}'),
            "input 'x' has the parameter shared_memory_region",
        ),
        "shared memory, and no data": (
            '{"name":"x","datatype":"FP32","shape":[2],"parameters":{"shared_memory_region":"r"}}',
            "inputs[0] ('x'): it has the parameter shared_memory_region, which this server does not support",
        ),
        "tensor parameters an array": (
            tensor("FP32", [2], "[1,2]", parameters="[]"),
            "inputs[0].parameters: expected object | null, got array",
        ),
        "tensor parameter an object": (
            tensor("FP32", [2], "[1,2]", parameters='{"a":{}}'),
            "inputs[0].parameters['a'] is an object: expected a string",
        ),
        **{
            f"tensor parameter {name}": (
                tensor("FP32", [2], "[1,2]", parameters=f'{{"a":{number}}}'),
                f"inputs[0].parameters['a'] {TOO_WIDE}",
            )
            for name, number in BEYOND.items()
        },
        "binary size without header": (tensor("FP32", [2], None, parameters=size % 8), "Inference-Header-Content-Length"),
        "data and binary size": (tensor("FP32", [2], "[1,2]", parameters=size % 8), "both data and binary_data_size"),
        "content type unknown": (tensor("FP32", [2], "[1,2]", parameters='{"content_type":"nope"}'), "'nope'"),
        **{
            f"datatype {name}": (tensor(name, [2], "[1,2]"), f"unknown datatype {name!r}: expected one of BOOL{OTHER_DATATYPES}{meant}")
            for name, meant in DATATYPES.items()
        },
    }
    for value in ("-1", "8.0", '"8"', "true", "1e1"):
        bad[f"binary_data_size {value}"] = (tensor("FP32", [2], None, parameters=size % value), "binary_data_size is")
    for number in ("01", "1.0.0", "1.", ".5", "+1", "0x1", "1e", "tru", "nan", "-", "1_0"):
        bad[f"data [{number}]"] = (tensor("FP32", [1], f"[{number}]"), "JSON is malformed" if number != "1e" else "")
    for name, (text, message) in bad.items():
        yield Row(name, infer("echo", inputs(text)), 400, text=(message,))
    not_utf8 = inputs(tensor("BYTES", [1], '["?"]')).replace(b"?", b"\xff")
    yield Row("data that is not UTF-8", infer("echo", not_utf8), 400, text=("inputs[0] ('x'): data is not valid UTF-8",))


def element_rows() -> Iterator[Row]:
    """What may be wrong about an element, datatype by datatype."""

    def bad(datatype: str, element: str, message: str, place: str = "data[1]") -> Iterator[Row]:
        fill = {"BOOL": "true", "BYTES": '"a"'}.get(datatype, "0")
        for shape, text in (([2], f"[{fill},{element}]"), ([2, 1], f"[[{fill}],[{element}]]")):
            where = place if len(shape) == 1 or place != "data[1]" else "data[1][0]"
            name = f"{datatype} {element} in {shape}"
            yield Row(
                name, infer("echo", inputs(tensor(datatype, shape, text))), 400, text=("inputs[0] ('x')" if where else "", where, message)
            )

    for datatype, bits in INTEGERS.items():
        low, high = (0, 2**bits - 1) if datatype.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        for element in (str(low - 1), str(high + 1), str(10**30), *([] if bits == 64 else [f"{high + 1}.0"])):
            yield from bad(datatype, element, f"out of range for {datatype}: expected {low} to {high}", "element 1")
        for element in ("9007199254740992.0", "1e18", "-1e30"):
            yield from bad(
                datatype,
                element,
                "2**53 or more with a fraction or an exponent may have been rounded, write its digits: expected an integer",
            )
        for element in ("1.5", "1e-1", "1e400", "1e99999999999999999999"):
            yield from bad(datatype, element, f"expected an integer for {datatype}")
        for element in ("true", '"5"', "null", "{}", '"NaN"'):
            yield from bad(datatype, element, f"expected an integer for {datatype}")
        yield from bad(datatype, "NaN", "floating-point data only", "")
    for datatype in FLOATS:
        for element in ("true", '"1.5"', '""', '"nan"', "{}", '"inf"'):
            yield from bad(datatype, element, f"for {datatype}")
        if datatype != "FP64":
            over = {"FP16": "65520", "BF16": "3.4e38", "FP32": "1e39"}[datatype]
            for element in (over, f"-{over}"):
                yield from bad(datatype, element, f"out of range for {datatype}", "element 1")
        yield from bad(datatype, "1e400", "out of range")
    for element in ("2", "-1", "0.5", "1.0", "null", '"true"', '""'):
        yield from bad("BOOL", element, "expected true, false, 0 or 1 for BOOL")
    for element in ("1", "1.5", "true", "null", "{}"):
        yield from bad("BYTES", element, "expected a string for BYTES")
    yield from bad("BYTES", "NaN", "floating-point data only", "")


def declared_rows() -> Iterator[Row]:
    """What may be wrong against a declaration."""
    for name, body, message in (
        ("missing input", inputs(X2), "missing input 'n': expected 'n', 'x', but got 'x'"),
        ("no input at all", inputs(), "missing input 'n', 'x': expected 'n', 'x', but got no inputs"),
        ("unknown input", inputs(X2, N1, tensor("FP32", [1], "[1]", "z")), "unknown input 'z': expected 'n', 'x'"),
        ("input twice", inputs(X2, N1, X2), "input 'x' is there twice"),
        ("wrong case", inputs(tensor("FP32", [1, 2], "[1,2]", "X"), N1), "unknown input 'X'"),
        ("wrong datatype", inputs(tensor("FP64", [1, 2], "[1,2]"), N1), "input 'x' has datatype FP64: expected FP32"),
        ("wrong integer datatype", inputs(X2, tensor("INT32", [1], "[1]", "n")), "input 'n' has datatype INT32: expected INT64"),
        ("wrong rank", inputs(tensor("FP32", [2], "[1,2]"), N1), "input 'x' has shape [2]: expected [-1, 2]"),
        ("wrong dimension", inputs(tensor("FP32", [2, 1], "[1,2]"), N1), "input 'x' has shape [2, 1]: expected [-1, 2]"),
        ("scalar", inputs(X2, tensor("INT64", [], "1", "n")), "input 'n' has shape []: expected [1]"),
        ("empty where fixed", inputs(X2, tensor("INT64", [0], "[]", "n")), "input 'n' has shape [0]: expected [1]"),
        (
            "request in shared memory",
            inputs(X2, N1, more=',"parameters":{"shared_memory_region":"r"}'),
            "the request has the parameter shared_memory_region",
        ),
        ("long unknown name", inputs(X2, N1, tensor("FP32", [1], "[1]", "z" * 1000)), "1002 characters"),
    ):
        yield Row(name, infer("two", body), 400, text=(message,))
    yield Row("undeclared model, missing", infer("optional", inputs()), 400, text=("missing input 'x'",))
    yield Row(
        "undeclared model, unknown", infer("optional", inputs(GOOD, tensor("FP32", [1], "[1]", "z"))), 400, text=("unknown input 'z'",)
    )
    yield Row("undeclared model, twice", infer("echo", inputs(GOOD, GOOD)), 400, text=("input 'x' is there twice",))
    yield Row("inputs for none", infer("no%20inputs", inputs(GOOD)), 400, text=("unknown input 'x': expected no inputs",))


def scalar_rows() -> Iterator[Row]:
    """Scalars beside declared inputs, and parameters that nobody reads."""

    def asked(parameters: str, *tensors: str, model: str = "scaled") -> Request:
        return infer(model, inputs(GOOD, *tensors, more=f',"parameters":{{{parameters}}}'))

    def scaled(data: str) -> bytes:
        return answer("scaled", tensor("FP32", [2], data, "y"))

    yield Row("a scalar left out", infer("scaled", inputs(GOOD)), 200, scaled("[2.0,4.0]"))
    yield Row("a scalar as a parameter", asked('"factor":3,"unit":"m"'), 200, scaled("[3.0,6.0]"))
    yield Row("a scalar as an input", infer("scaled", inputs(GOOD, tensor("FP64", [1], "[4]", "factor"))), 200, scaled("[4.0,8.0]"))
    for parameters in (
        '"binary_data_output":false,"content_type":"np"',
        '"priority":1,"timeout":60000000',
        '"sequence_id":1,"sequence_start":true,"sequence_end":true',
        '"headers":"","triton_enable_empty_final_response":true',
    ):
        yield Row(f"a scalar beside {parameters}", asked(f'"factor":3,{parameters}'), 200, scaled("[3.0,6.0]"))
    expected = "expected 'factor', 'unit'"
    for name, parameters, text in (
        ("misspelled", '"facter":3', f"unknown parameter 'facter': {expected}; did you mean 'factor'?"),
        ("in capitals", '"factor":3,"Unit":"m"', f"unknown parameter 'Unit': {expected}; did you mean 'unit'?"),
        ("of another name", '"beam":3', f"unknown parameter 'beam': {expected}"),
        ("called as an input", '"x":3', "parameters['x']: the model reads only what it annotates float, int, bool or str from there"),
        ("of another kind", '"factor":"3"', "parameters['factor'] is '3': expected a number"),
    ):
        yield Row(f"a parameter {name}", asked(parameters), 400, text=(text,))
    twice = asked('"factor":3', tensor("FP64", [1], "[4]", "factor"))
    yield Row("a scalar twice", twice, 400, text=("'factor' is there twice: as an input and in the request's parameters",))
    one = answer("one", tensor("FP32", [2], "[1.0,2.0]", "y"))
    yield Row("a parameter of a model without scalars", asked('"facter":3', model="one"), 200, one)
    head = b'{"model_name":"scaled","outputs":[{"name":"y","shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}}]}'
    raw = infer("scaled", b"\0\0\x80?", ("inference-header-content-length", "0"))
    yield Row("raw data beside scalars", raw, 200, head + b"\0\0\0@", headers=(("inference-header-content-length", str(len(head))),))
