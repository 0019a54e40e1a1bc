"""The rows of the table: each kind of input that a model may declare, by a tensor, an annotation, or a column of a data frame.

Each model of `make_server` keeps what it is given, so that one can see what a list of values has become.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, make_dataclass
from datetime import date, datetime
from typing import Any, Final

import numpy as np
import pandas as pd

from oip_asgi import InferenceServer, TensorSpec
from oip_asgi.specs import specs_of


@dataclass(frozen=True)
class Kind:
    """One row of the table.

    Args:
        name: How a reader calls it.
        family: The row of `cells.py` with its values.
        specs: What `inputs=` declares; empty if an annotation does, or nothing.
        annotation: That of the argument, if it has one.
        row: The class whose field it is.
        writes: What the model's values look like in the table: the dtype, or `list`.
        missing: What stands for a missing value there; None if there is no such value.
        gap: How a client without our libraries writes a missing value: "null", "NaT", or "pd_json", where all elements are JSON texts.
    """

    name: str
    family: str
    specs: Sequence[TensorSpec] = ()
    annotation: Any = None
    row: Any = None
    writes: str = ""
    missing: str | None = None
    gap: str = "null"

    @property
    def is_column(self) -> bool:
        return self.name.startswith("column")

    @property
    def is_declared(self) -> bool:
        return self.writes != ""

    @property
    def is_flattened(self) -> bool:
        """Whether `[N, 1]` is taken for `[N]`, as lists and columns are."""
        return self.is_column or self.writes == "list"


def _tensor(datatype: Any, family: str, writes: str, content_type: str | None = None, **more: Any) -> Kind:
    name = datatype if content_type is None else f"{datatype} {content_type}"
    return Kind(name, family, [TensorSpec("x", datatype, [-1], content_type)], writes=writes, **more)


def _argument(annotation: Any, family: str, **more: Any) -> Kind:
    return Kind(f"list[{annotation.__name__}]", family, annotation=list[annotation], writes="list", **more)


def _field(annotation: Any, family: str, **more: Any) -> Kind:
    row = make_dataclass("Row", [("x", annotation)])
    name = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    name = name.removeprefix("datetime.")
    return Kind(f"field {name}", family, annotation=list[row], row=row, writes="list", **more)  # type: ignore[valid-type]  # made above


def _fields() -> list[Kind]:
    return [
        _field(float, "number", missing="nan"),
        _field(float | None, "number", missing="None"),
        _field(int, "integer"),
        _field(int | None, "integer", missing="None", gap="pd_json"),
        _field(bool, "boolean"),
        _field(bool | None, "boolean", missing="None", gap="pd_json"),
        _field(str, "text"),
        _field(str | None, "text", missing="None", gap="pd_json"),
        _field(bytes, "raw text"),
        _field(datetime, "date of any zone"),
        _field(datetime | None, "date of any zone", missing="None", gap="NaT"),
    ]


def _column(dtype: str, family: str, values: Any, **more: Any) -> Kind:
    frame = pd.DataFrame({"x": values})
    return Kind(f"column {dtype}", family, specs_of(frame), pd.DataFrame, **{"writes": dtype, **more})


def _columns() -> list[Kind]:
    texts = np.array(["a", "b"], object)
    numbers = pd.Series([1, 2], dtype="category")
    bytes_, lists = pd.Series([b"a"], dtype=object), pd.Series([[1], {"a": 2}, "a"], dtype=object)
    days = pd.Series([datetime(2026, 1, 31)], dtype="datetime64[us]")
    nullable = {"missing": "<NA>", "gap": "pd_json"}
    return [
        _column("float64", "number", np.ones(1), missing="nan"),
        _column("float32", "small number", np.ones(1, "f4"), missing="nan"),
        _column("Float64", "number", pd.array([1.5], "Float64"), missing="<NA>"),
        _column("Float32", "small number", pd.array([1.5], "Float32"), missing="<NA>"),
        _column("int64", "integer", np.ones(1, "i8")),
        _column("int8", "small integer", np.ones(1, "i1")),
        _column("uint8", "unsigned integer", np.ones(1, "u1")),
        _column("uint64", "large integer", np.ones(1, "u8")),
        _column("Int64", "integer", pd.array([1], "Int64"), **nullable),
        _column("Int8", "small integer", pd.array([1], "Int8"), **nullable),
        _column("bool", "boolean", np.ones(1, bool)),
        _column("boolean", "boolean", pd.array([True], "boolean"), **nullable),
        _column("object of text", "text", pd.Series(texts, dtype=object), writes="object", missing="None", gap="pd_json"),
        _column("object with NaN", "text", pd.Series(["a", np.nan], dtype=object), writes="object", missing="nan", gap="pd_json"),
        _column("string", "text", pd.array(texts, "string"), **nullable),
        Kind("column BYTES", "text", [TensorSpec("x", "BYTES", [-1])], pd.DataFrame, writes="object", missing="None", gap="pd_json"),
        _column("object of bytes", "bytes", bytes_, writes="object"),
        _column("datetime64[us]", "date", days, missing="NaT", gap="NaT"),
        _column("datetime64[ns]", "date in nanoseconds", days.astype("datetime64[ns]"), missing="NaT", gap="NaT"),
        _column("datetime64[us, Europe/Berlin]", "date in Berlin", days.dt.tz_localize("Europe/Berlin"), missing="NaT", gap="NaT"),
        _column("category of text", "category", pd.Series(["a", "é"], dtype="category"), writes="category", missing="nan", gap="pd_json"),
        _column("category of numbers", "category of numbers", numbers, writes="category", missing="nan", gap="pd_json"),
        _column("object of JSON", "JSON", lists, writes="object", missing="None", gap="pd_json"),
        Kind("column, nothing declared", "column of any", annotation=pd.DataFrame, missing="None", gap="pd_json"),
    ]


def list_kinds() -> list[Kind]:
    """All rows. A new one is a line here, and its outcomes in `cells.py`, if no family there has them."""
    return [
        _tensor("FP64", "number", "float64", missing="nan"),
        _tensor("FP16", "half number", "float16", missing="nan"),
        _tensor("FP32", "small number", "float32", missing="nan"),
        Kind("FP64 [-1, 1]", "matrix", [TensorSpec("x", "FP64", [-1, 1])], writes="float64", missing="nan"),
        _tensor("INT64", "integer", "int64"),
        _tensor("INT8", "small integer", "int8"),
        _tensor("UINT8", "unsigned integer", "uint8"),
        _tensor("UINT64", "large integer", "uint64"),
        _tensor("BOOL", "boolean", "bool"),
        _tensor("BYTES", "raw text", "object"),
        _tensor("BYTES", "text", "list", "str"),
        _tensor("BYTES", "bytes", "list", "base64"),
        _tensor("BYTES", "date of any zone", "list", "datetime"),
        _tensor("BYTES", "JSON", "list", "pd_json", missing="None", gap="pd_json"),
        _argument(float, "number", missing="nan"),
        _argument(int, "any integer"),
        _argument(bool, "boolean"),
        _argument(str, "text"),
        _argument(bytes, "raw text"),
        _argument(datetime, "date of any zone"),
        Kind("nothing declared", "any"),
        *_columns(),
        *_fields(),
    ]


KINDS: Final = {kind.name: kind for kind in list_kinds()}


def make_server(received: list[Any]) -> InferenceServer:
    """A server with a model for each kind, which appends what it is given."""
    server = InferenceServer()
    for kind in KINDS.values():
        server.register(kind.name, _make_model(kind, received), inputs=list(kind.specs), run="inline")
    return server


def _make_model(kind: Kind, received: list[Any]) -> Callable[[Any], Any]:
    def keep_column(df: Any) -> Any:
        received.append(df["x"])
        return np.zeros(len(received[-1]))

    def keep(x: Any) -> Any:
        received.append(x)
        return np.zeros(len(received[-1]))

    def keep_rows(rows: Any) -> Any:
        received.append([row.x for row in rows])
        return np.zeros(len(received[-1]))

    model, name = (keep_column, "df") if kind.is_column else (keep, "x") if kind.row is None else (keep_rows, "rows")
    model.__annotations__ = {} if kind.annotation is None else {name: kind.annotation}
    return model


def describe(value: Any, kind: Kind) -> str:
    """A received value, as the table has it."""
    if isinstance(value, list):
        return f"list {_show(value)}"
    dtype = str(value.dtype)
    if kind.writes in ("", "object"):  # pandas 2 and 3 guess other units of dates, and other dtypes of texts
        if dtype == "str":
            value, dtype = value.astype(object).where(value.notna(), None), "object"
        dtype = dtype.partition("[")[0]
    return f"{dtype} {_show(value.tolist())}"


def _show(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_show, value))}]"
    return str(value) if isinstance(value, date) else repr(value)
