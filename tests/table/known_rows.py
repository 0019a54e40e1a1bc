"""Rows of models that say of themselves what they take: a fitted estimator, and inputs with ranges."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.ways import Request
from tests.table.row import Row, answer, infer, inputs, tensor


def known_rows() -> Iterator[Row]:
    def fitted(datatype: str, shape: list[int], data: str) -> Request:
        return infer("fitted", inputs(tensor(datatype, shape, data, "data")))

    sums = answer("fitted", tensor("FP64", [2], "[3.0,7.0]", "output_0"))
    yield Row("an estimator", fitted("FP64", [2, 2], "[1,2,3,4]"), 200, sums)
    whole = answer("fitted", tensor("INT64", [2], "[3,7]", "output_0"))
    yield Row("an estimator, other numbers", fitted("INT64", [2, 2], "[1,2,3,4]"), 200, whole)
    for name, request, message in (
        ("another width", fitted("FP64", [1, 3], "[1,2,3]"), "input 'data' has shape [1, 3]: expected [-1, 2]"),
        ("texts", fitted("BYTES", [1, 2], '["a","b"]'), "input 'data' has datatype BYTES"),
        ("another name", infer("fitted", inputs(tensor("FP64", [1, 2], "[1,2]", "Y"))), "unknown input 'Y'"),
    ):
        yield Row(f"an estimator, {name}", request, 400, text=(message,))
    refusal = b'{"error":"model \'refusing\' refused the request: Input X contains NaN."}'
    refused = infer("refusing", inputs(tensor("FP64", [1, 2], "[1,2]", "data")))
    yield Row("an estimator refuses", refused, 400, refusal)
    yield Row("an estimator refuses a plain object", Request("POST", "/models/refusing/generate", (), b'{"data":[1,2]}'), 400, refusal)
    known = b'{"name":"data","datatype":"FP64","shape":[-1,2],"parameters":{"other_datatypes":"numbers"}}'
    metadata = b'{"name":"fitted","platform":"python","inputs":[%b],"outputs":[]}' % known
    yield Row("an estimator's metadata", Request("GET", "/models/fitted"), 200, metadata)

    inside, outside = tensor("INT64", [2], "[0,120]", "age"), tensor("INT64", [2], "[5,-1]", "age")
    good, flagged = tensor("INT64", [2], "[0,120]", "y"), tensor("INT64", [2], "[5,-1]", "y")
    text = "input 'age', row 1: -1 is out of range: expected 0 to 120"
    yield Row("in range", infer("ranged", inputs(inside)), 200, answer("ranged", good))
    yield Row("out of range", infer("ranged", inputs(outside)), 400, text=(text,))
    yield Row("in range, of one that flags", infer("flagged", inputs(inside)), 200, answer("flagged", good))
    more = ',"parameters":{"oip_out_of_range":"age"}'
    yield Row("out of range, flagged", infer("flagged", inputs(outside)), 200, answer("flagged", flagged, more=more))
    plain = Request("POST", "/models/ranged/generate", (), b'{"age":121}')
    yield Row("out of range, a plain object", plain, 400, text=("input 'age', row 0: 121 is out of range: expected 0 to 120",))
    plain = Request("POST", "/models/flagged/generate", (), b'{"age":121}')
    yield Row("out of range, a plain object, flagged", plain, 200, b'{"model_name":"flagged","y":121,"oip_out_of_range":"age"}')
