"""Rows of models whose parameters and results are classes, in tensors and in plain objects."""

from __future__ import annotations

from collections.abc import Iterator

from tests.support.ways import Request
from tests.table.row import Row, answer, infer, inputs, tensor
from tests.table.row_classes import HAS_PYDANTIC

AGES = tensor("INT64", [2], "[3,70]", "age")
PLANS = tensor("BYTES", [2], '["free","paid"]', "plan")
NEW = tensor("BOOL", [2], "[true,false]", "isNew")


def scores(labels: str, values: str, size: int = 2) -> bytes:
    label = tensor("BYTES", [size], labels, "label", '{"content_type":"str"}')
    return answer("churn", label, tensor("FP64", [size], values, "value"))


def generate(model: str, body: bytes) -> Request:
    return Request("POST", f"/models/{model}/generate", (), body)


def class_rows() -> Iterator[Row]:
    def churn(*more: str, ages: str = AGES, plans: str = PLANS) -> Request:
        return infer("churn", inputs(ages, plans, NEW, *more))

    of_null = tensor("BYTES", [2], '["null","\\"paid\\""]', "plan", '{"content_type":"pd_json"}')
    both = '["leaves","stays"]'
    yield Row("rows of a class", churn(), 200, scores(both, "[0.3,7.0]"))
    yield Row("rows as columns of shape [N, 1]", churn(ages=tensor("INT64", [2, 1], "[3,70]", "age")), 200, scores(both, "[0.3,7.0]"))
    fees = tensor("FP64", [2], "[null,9.5]", "monthlyFee")
    yield Row("rows, one without a number", churn(fees), 200, scores(both, "[0.3,9.5]"))
    cities = tensor("BYTES", [2], '["null","\\"Bonn\\""]', "city", '{"content_type":"pd_json"}')
    yield Row("rows, one without a text", churn(cities), 200, scores(both, "[0.3,7.0]"))
    since = tensor("BYTES", [2], '["NaT","2024-02-29"]', "since")
    yield Row("rows, one without a date", churn(since), 200, scores(both, "[0.3,7.0]"))
    for name, request, message in (
        ("below a bound", churn(ages=tensor("INT64", [2], "[3,-1]", "age")), "rows[1].age: expected int >= 0, got -1"),
        ("none of an Enum", churn(plans=tensor("BYTES", [2], '["free","x"]', "plan")), "rows[1].plan: expected 'free' or 'paid', got 'x'"),
        ("another datatype", churn(ages=tensor("INT32", [2], "[3,7]", "age")), "input 'age' has datatype INT32: expected INT64"),
        ("too few", churn(ages=tensor("INT64", [1], "[3]", "age")), "column 'plan' has 2 rows, but 'age' has 1: expected as many in each"),
        ("a name of Python", churn(tensor("FP64", [2], "[1,2]", "monthly_fee")), "unknown input 'monthly_fee': expected 'age'"),
        ("a missing column", infer("churn", inputs(AGES, PLANS)), "missing input 'isNew'"),
        (
            "a date with a time",
            churn(tensor("BYTES", [2], '["2024-02-29T10:00:00","2024-02-29"]', "since")),
            "rows[0].since: expected date | null, got datetime.datetime(2024, 2, 29, 10, 0)",
        ),
        ("a null that may not be", churn(plans=of_null), "rows[0].plan: expected 'free' or 'paid', got None"),
        ("a content type of another kind", churn(plans=tensor("BYTES", [2], '["a","b"]', "plan", '{"content_type":"base64"}')), "'plan'"),
    ):
        yield Row(f"rows, {name}", request, 400, text=(message,))
    x, two = tensor("FP64", [1], "[1]"), tensor("FP64", [2], "[1,2]")
    one = infer("one%20row", inputs(x, more=',"parameters":{"scale":4}'))
    yield Row("one row, beside a scalar", one, 200, answer("one row", tensor("FP64", [1], "[4.0]"), tensor("FP64", [1], "[2.0]", "y")))
    yield Row(
        "one row of two", infer("one%20row", inputs(two)), 400, text=("the request has 2 rows: expected 1, as the model takes one Point",)
    )
    failed = ("see the server's log",)
    place = b'{"country":"XX"}'
    column = infer("places", inputs(tensor("BYTES", [1], '["XX"]', "country")))
    for name, request in (("a column", column), ("a list", generate("places", b"[%b]" % place)), ("an object", generate("places", place))):
        yield Row(f"rows whose class fails, {name}", request, 500, text=failed)
    if HAS_PYDANTIC:
        quarter = tensor("FP64", [1], "[0.25]")
        sent = tensor("FP64", [1], "[0.2]", "value"), tensor("BOOL", [1], "[true]", "sure"), tensor("FP64", [1], "[25.0]", "percent")
        yield Row("rows as pydantic writes them", infer("shares", inputs(quarter)), 200, answer("shares", *sent))
        row = b'"value":0.2,"sure":true,"percent":25.0}'
        yield Row("rows as pydantic writes them, a list", generate("shares", b'[{"x":0.25}]'), 200, b"[{%b]" % row)
        yield Row("rows as pydantic writes them, an object", generate("shares", b'{"x":0.25}'), 200, b'{"model_name":"shares",%b' % row)
        for name, request in (("columns", infer("unsure", inputs(quarter))), ("a list", generate("unsure", b'[{"x":0.25}]'))):
            yield Row(f"rows with a value that was not converted, {name}", request, 500, text=failed)
    yield Row("a row that does not fit the result", infer("wrong%20score", inputs(x)), 500, text=("see the server's log",))
