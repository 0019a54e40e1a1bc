"""Score a file of rows with a model, and write the outputs of each row.

python -m oip_asgi.client score http://127.0.0.1:8000/v2 iris rows.csv --out scores.csv

It ends with 0 if each row is scored, with 1 if rows are missing, and with 2 if nothing can be scored. Files
are read and written by pandas; what the values of a column are, the model's declaration decides.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from .._codecs.content_types import default_codecs
from .._codecs.values import to_inputs
from .._hosts.extras import make_import_error
from .._protocol.errors import ErrorResponse, InferenceError, InvalidRequest, list_names, show
from .._protocol.specs import LABELS, OpenSpec, TensorSpec
from .._protocol.tensors import InferenceResponse, Tensor
from ._arguments import describe, make_parser
from ._clients import Client
from ._declarations import read_specs
from ._senders import ConnectionFailed

try:
    import pandas as pd

    from ._row_files import BOOLS, READERS, Writer, find_types, is_csv, read_rows, read_text
except ImportError as error:
    raise make_import_error(error, "pandas", "pandas") from error


class Stopped(Exception):
    """No row can be scored any more; the text says why."""


# Inputs

Column: TypeAlias = tuple[str | list[str], TensorSpec, Callable[[str], Any]]
"""What becomes of one column of a file, or of several that are the elements of an array: their names, what
their values become, and what makes a value of a text of CSV."""


def plan_columns(
    specs: Sequence[TensorSpec], names: list[str], types: Mapping[str, set[type | None]], *, are_texts: bool
) -> dict[str, Column]:
    """Find the columns of a file that a model takes, by the names of its inputs.

    Args:
        specs: Of the model's inputs.
        names: Of the columns that are the elements of its only input.
        types: Those of the values of each column of the file, which decide where the model takes any
            datatype.

    Raises:
        ValueError: They do not fit; the text says which were expected.
    """
    rows = [spec for spec in specs if spec.shape[:1] == (-1,)]
    # metadata does not tell which are optional: the server does
    present = [spec for spec in rows if spec.name in types]
    absent = {spec.name.casefold(): spec.name for spec in specs if spec.name not in types}
    for name in types if present else ():
        if name.strip().casefold() in absent:  # all rows would silently have the default of an optional input
            raise ValueError(
                f"the file has no column {show(absent[name.strip().casefold()])}, but {show(name)}: rename it"
            )
    if present:
        return {spec.name: _plan_column(spec, types[spec.name], are_texts=are_texts) for spec in present}
    if len(rows) != 1 or len(rows[0].shape) != 2:
        raise ValueError(
            f"the model takes {list_names([spec.name for spec in rows or specs])}: the file has "
            f"{list_names(types)}"
        )
    if rows[0].shape[1] not in (-1, len(names)):
        raise ValueError(
            f"the input {show(rows[0].name)} has {rows[0].shape[1]} columns, and the file {len(names)}: "
            "name them, in the order of the "
            "training, by --columns"
        )
    return {rows[0].name: (names, rows[0], read_text)}


def is_by_values(spec: TensorSpec) -> bool:
    """Whether the values of a column decide what becomes of it."""
    return spec.other_datatypes == "all" or spec.content_type == "pd_json"


def _plan_column(spec: TensorSpec, types: set[type | None], *, are_texts: bool) -> Column:
    """What becomes of one column. Where the model takes any datatype, all of its values decide, as pandas
    reads them; but of a code such as 00123, a model that knows it as a text gets it so.

    Raises:
        ValueError: It has values of several types, and each row would have its own. In CSV, such a column is
            texts.
    """
    is_any, is_json, are_numbers = (
        spec.other_datatypes == "all",
        spec.content_type == "pd_json",
        types <= {int, float, None},
    )
    if (
        is_any
        and not are_texts
        and len({float if each is int else each for each in types} & {str, bool, float}) > 1
    ):
        raise ValueError(
            f"column {show(spec.name)} has texts, numbers or booleans side by side: declare it, or write "
            "all of them as texts"
        )
    is_guessed = is_json or (is_any and spec.datatype != "BYTES")
    stay_texts = not are_numbers and not types <= {bool, None} if is_guessed else spec.datatype == "BYTES"
    may_miss = is_any or is_json or spec.pd_dtype is not None or spec.content_type == "datetime"
    read: Callable[[str], Any] = (lambda text: text or None) if may_miss else str
    if not stay_texts:
        read = partial(read_text, first=BOOLS.__getitem__ if spec.datatype == "BOOL" and not is_any else int)
    if is_any and not stay_texts and are_numbers and types != {int}:
        # which rounds none
        return spec.name, OpenSpec(spec.name, "FP64", [-1], other_datatypes="numbers"), read
    return spec.name, spec, read


@np.errstate(all="ignore")  # numpy would warn of what Python has computed in `float`
def make_inputs(columns: Mapping[str, Column], rows: pd.DataFrame, *, are_texts: bool) -> list[Tensor]:
    """The tensors of some rows. Raises InvalidRequest if they have none."""
    if are_texts and rows.isna().any(axis=None):
        raise InvalidRequest(
            f"it has {rows.iloc[0].notna().sum()} values, and the file has {len(rows.columns)} columns"
        )
    values: dict[str, Any] = {}
    for name, (chosen, spec, read) in columns.items():
        cells = np.frompyfunc(read if are_texts else lambda cell: cell, 1, 1)(rows[chosen].to_numpy())
        values[name] = (
            np.frompyfunc(_to_number, 1, 1)(cells) if spec.other_datatypes == "numbers" else cells
        ).tolist()
        if spec.content_type == "base64" and {*map(type, values[name])} == {str}:
            values[name] = np.array(values[name], object)  # which are encoded already
    return to_inputs(
        values, {name: spec for name, (_, spec, _) in columns.items()}, default_codecs(), columns
    )[0]


def _to_number(value: Any) -> Any:
    """A value of a model of numbers, which has no missing boolean."""
    return np.nan if value is None else float(value) if type(value) is bool else value


# Outputs

_NAMES: Final = {"nan": None, "inf": "Infinity", "-inf": "-Infinity"}
"""What JSON of the protocol has for these."""


def find_labels(metadata: Mapping[str, Any]) -> dict[str, list[str]]:
    """Those of each output. Another server may mean something else by "labels"."""
    texts = {
        each["name"]: str((each.get("parameters") or {}).get(LABELS))
        for each in metadata.get("outputs") or ()
    }
    return {name: json.loads(text) for name, text in texts.items() if text.startswith('["')}


def read_outputs(
    response: InferenceResponse, rows: pd.DataFrame, labels: Mapping[str, Sequence[str]], suffix: str
) -> pd.DataFrame:
    """The outputs of some rows as what is written. In CSV, each element of a row has a column, named by its
    label or its place.

    Raises:
        Stopped: There is not one row for each.
    """
    columns: dict[str, list[Any]] = {"row": rows.index.tolist()}
    for tensor in response.outputs:
        name, array = tensor.name, tensor.array[:, 0] if tensor.array.shape[1:] == (1,) else tensor.array
        if array.shape[:1] != (len(rows),):
            raise Stopped(
                f"the model does not score row by row: the output {show(name)} of {len(rows)} rows has the "
                f"shape {list(array.shape)}"
            )
        if array.dtype.hasobject:
            is_json = tensor.parameters.get("content_type") == "pd_json"
            array = np.frompyfunc(
                json.loads if is_json else lambda text: text.decode(errors="backslashreplace"), 1, 1
            )(array)
        elif array.dtype.kind == "f" and suffix not in (
            ".csv",
            ".parquet",
        ):  # as the protocol's JSON has them
            array = np.frompyfunc(_NAMES.get, 2, 1)(array.astype(str), array.astype(object))
        if suffix == ".csv" and array.ndim > 1:
            elements, own = array.reshape(len(rows), -1).T.tolist(), labels.get(name, ())
            names = own if len({*own}) == len(own) == len(elements) else range(len(elements))
            columns |= {f"{name}_{each}": values for each, values in zip(names, elements, strict=True)}
        else:
            columns[name] = array.tolist()
    return pd.DataFrame(columns, dtype=object)


# Requests


def score_frames(
    ask: Callable[[pd.DataFrame], Any],
    frames: Iterator[pd.DataFrame],
    connections: int,
    gives_up: threading.Event,
) -> Iterator[list[tuple[pd.DataFrame, Any]]]:
    """Ask over some connections, and tell which rows of each frame have which answer, in their order.

    Args:
        ask: Asks for some rows. Raises `InferenceError` if they are refused, and `Stopped`.
        gives_up: Is set at the end, for requests that wait.

    Raises:
        Stopped: No row can be scored any more, or each row of the first frame is refused, as all others will
            be. What was told stays valid.
    """
    with ThreadPoolExecutor(connections, "oip_asgi rows") as threads:
        try:
            for first in islice(frames, 1):  # alone: it may tell of all
                yield (ended := _score_rows(ask, first, is_first=True))
                if all(isinstance(answer, InferenceError) for _, answer in ended):
                    raise Stopped(f"all of the first {len(first)} rows are refused")
            while some := list(islice(frames, 4 * connections)):
                yield from threads.map(partial(_score_rows, ask), some)
        finally:
            gives_up.set()


def _score_rows(
    ask: Callable[[pd.DataFrame], Any], rows: pd.DataFrame, *, is_first: bool = False
) -> list[tuple[pd.DataFrame, Any]]:
    """Score rows; if they are refused, each half of them, until it is known which row is: its answer is the
    error.

    The log of a model that fails with the first rows, and with some of them alone, does not get a traceback
    for each.
    """
    try:
        return [(rows, ask(rows))]
    except InferenceError as error:
        if len(rows) == 1:
            return [(rows, error)]
        fails = (
            is_first and len(rows) > 8 and isinstance(error, ErrorResponse) and error.response_status == 500
        )
        # not each n-th row, of which all may have what others do not
        if fails and all(
            isinstance(_score_rows(ask, row)[0][1], InferenceError)
            for _, row in rows.sample(8, random_state=0).groupby(level=0)
        ):
            raise Stopped(
                f"the model fails with rows {rows.index[0]} to {rows.index[-1]}, and with 8 of them alone: "
                f"{error}"
            ) from error
        return _score_rows(ask, rows.iloc[: len(rows) // 2]) + _score_rows(ask, rows.iloc[len(rows) // 2 :])


def ask_patiently(
    ask: Callable[[pd.DataFrame], Any], patience: float, gives_up: threading.Event, rows: pd.DataFrame
) -> Any:
    """Ask again where the server is busy or away."""
    until = time.monotonic() + patience
    while True:
        try:
            return ask(rows)
        except (ErrorResponse, ConnectionFailed) as error:
            status = error.response_status if isinstance(error, ErrorResponse) else 503
            after = (
                error.response_headers.get("retry-after", "").strip()
                if isinstance(error, ErrorResponse)
                else ""
            )
            if status in (401, 403, 404, 405, 407):  # whatever the rows are
                raise Stopped(str(error)) from error
            if status not in (429, 503):
                raise
            # who says a date gets a second, as servers that are busy say seconds
            if time.monotonic() >= until or gives_up.wait(
                min(max(float(after), 0.1), 60.0) if after.isdecimal() else 1.0
            ):
                raise Stopped(str(error)) from error


# The command

_ARGUMENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "model": {"help": "the model that scores"},
    "rows": {"type": Path, "help": "a .csv, .jsonl or .parquet file"},
    "--out": {"type": Path, "required": True, "help": "the file for the outputs; its suffix says the format"},
    "--resume": {"action": "store_true", "help": "go on where a run was cut"},
    "--columns": {
        "help": "the columns to send, such as a,b,c, if the model does not say their names; else all"
    },
    "--chunk": {"type": int, "default": 256, "help": "rows of each request; %(default)s"},
    "--connections": {"type": int, "default": 4, "help": "requests at the same time; %(default)s"},
    "--patience": {
        "type": float,
        "default": 60.0,
        "help": "seconds to try again where the server is busy (503) or away; %(default)s",
    },
}
_UNDECLARED: Final = """\
. The model declares nothing of its columns, so each was sent as pandas reads it. If it takes others, or all \
of them as one array, declare that: inputs=specs_of(X_train), or inputs=[TensorSpec("X", "FP64", [-1, 4])]"""


def main(arguments: list[str] | None = None) -> int:
    parser = make_parser("python -m oip_asgi.client score", __doc__)
    for name, settings in _ARGUMENTS.items():
        parser.add_argument(name, **settings)
    options = parser.parse_args(arguments)
    try:
        if options.out.resolve() == options.rows.resolve():
            raise ValueError("--out is the file of the rows")
        if min(options.chunk, options.connections) < 1:
            raise ValueError("--chunk and --connections: expected 1 or more")
        for file in (options.rows, options.out):
            if file.suffix.lower() not in READERS:
                raise ValueError(f"{file}: expected a name that ends with .csv, .jsonl or .parquet")
        with Client(options.url, headers=dict(options.header)) as client:
            return _score(options, client)
    except (InferenceError, ImportError, OSError, ValueError) as error:
        print(f"cannot be scored: {describe(error)}", file=sys.stderr)  # noqa: T201
        return 2


def _score(options: argparse.Namespace, client: Client) -> int:
    metadata = client.model_metadata(options.model, options.version)
    binary = "binary_tensor_data" in client.metadata().get("extensions", ())
    # beside which scalars are the same for all rows
    is_frame = (metadata.get("parameters") or {}).get("content_type") == "pd"
    specs = [spec for spec in read_specs(metadata, "inputs") if not is_frame or spec.shape not in ((), (1,))]
    by_values, are_texts = {spec.name for spec in specs if is_by_values(spec)}, is_csv(options.rows)
    types, total = find_types(
        options.rows, options.chunk, by_values.__contains__ if specs else lambda _: True
    )
    names = options.columns.split(",") if options.columns else list(types)
    if not types.keys() >= set(names):
        raise ValueError(f"--columns {options.columns}: the file has {list_names(types)}")
    columns = plan_columns(
        specs or [OpenSpec(name, "FP64", [-1], other_datatypes="all") for name in names],
        names,
        types,
        are_texts=are_texts,
    )
    labels = find_labels(metadata)
    writer = Writer(
        options.out,
        {"rows": str(options.rows.resolve()), "size": options.rows.stat().st_size, "model": options.model},
        goes_on=options.resume,
    )
    begun_at, since, told, gives_up, why = (
        writer.done,
        time.monotonic(),
        time.monotonic(),
        threading.Event(),
        "",
    )
    is_terminal = sys.stderr.isatty()

    def ask(rows: pd.DataFrame) -> pd.DataFrame:
        inputs = make_inputs(columns, rows, are_texts=are_texts)
        return read_outputs(
            client.infer(options.model, inputs, version=options.version, binary=binary),
            rows,
            labels,
            writer.suffix,
        )

    frames = (
        left
        for rows in read_rows(options.rows, options.chunk, list(types))
        if len(left := rows[rows.index > begun_at])
    )
    try:
        for ended in score_frames(
            partial(ask_patiently, ask, options.patience, gives_up), frames, options.connections, gives_up
        ):
            writer.write(ended)
            if time.monotonic() - told >= (0.2 if is_terminal else 10.0):
                told = time.monotonic()
                speed = (writer.done - begun_at) / (told - since)
                text = (
                    f"{writer.done:,} of {total:,} rows, {speed:,.0f} rows per second, "
                    f"{(total - writer.done) / speed:,.0f} s left"
                )
                sys.stderr.write(f"\r{text}\x1b[K" if is_terminal else f"{text}\n")
    except (Stopped, KeyboardInterrupt) as stopped:
        why = (
            f"; stopped, as {str(stopped) or 'it was interrupted'}; --resume goes on from here"
            if writer.done < total
            else ""
        )
    writer.finish(is_complete=writer.done == total)
    first = (
        f" (the first: {writer.first_reason}{'' if specs else _UNDECLARED})" if writer.first_reason else ""
    )
    end = (
        f"; {writer.refused:,} are refused, each with its reason in {writer.refused_file}{first}"
        if writer.refused
        else ""
    )
    begins = "\r\x1b[K" if is_terminal else ""
    summary = (
        f"{begins}{writer.done - writer.refused:,} of {total:,} rows are scored: {writer.file}{end}{why}"
    )
    print(summary, file=sys.stderr)  # noqa: T201
    return int(writer.done - writer.refused < total)


if __name__ == "__main__":
    sys.exit(main())
