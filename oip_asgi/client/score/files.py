"""Files of rows, read and written by pandas. Knows no models and no protocol.

Rows are read in frames whose values are objects: the texts of CSV, and None for what is missing. What was
scored is written in the order of the rows, with a state beside it that says how far that is, so that a run
that was cut goes on from there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from ... import InferenceError


def read_rows(file: Path, size: int, names: list[str] | None = None) -> Iterator[pd.DataFrame]:
    """The file in frames of at most so many rows, whose index has their numbers, from 1 on. The values are
    objects: the texts of CSV, and None for what is missing.

    Raises:
        ValueError: It cannot be read.
        OSError: It cannot be read.
    """
    read, first = READERS[file.suffix.lower()], 1
    try:
        for part in read(file, size):
            rows = pd.DataFrame(part, columns=names, dtype=object)
            yield rows.where(rows.notna(), None).set_axis(range(first, first + len(rows)))
            first += len(rows)
    except ValueError as error:
        why = (
            f"{error.msg}, at character {error.pos + 1} of the line {error.doc.strip()[:100]!r}"
            if isinstance(error, json.JSONDecodeError)
            else error
        )
        raise ValueError(f"{file}, in rows {first} to {first + size - 1}: {why}") from None


def _read_csv(file: Path, size: int) -> Iterator[Any]:
    # the engine in C drops what the first row of a chunk has too much; and of blank lines, which are all
    # None, `""` is to be known
    with pd.read_csv(
        file, chunksize=size, dtype=object, na_filter=False, engine="python", skip_blank_lines=False
    ) as parts:
        for rows in parts:
            # pandas takes the first values of each row for its name
            if not isinstance(rows.index, pd.RangeIndex):
                raise ValueError("the first rows have more values than the file has columns")
            yield rows.dropna(how="all")


def _read_json_lines(file: Path, size: int) -> Iterator[Any]:
    """Each line by itself: `read_json` rounds whole numbers beside a gap, and takes 1e400 for infinity."""
    with file.open("rb") as opened:
        lines = (json.loads(line, parse_float=_read_float) for line in opened if line.strip())
        for part in iter(lambda: list(islice(lines, size)), []):
            if not all(isinstance(row, dict) and "" not in row for row in part):
                raise ValueError("expected an object in each line, whose keys are the names of columns")
            yield part


def _read_parquet(file: Path, size: int) -> Iterator[Any]:
    import pyarrow.parquet

    for batch in pyarrow.parquet.ParquetFile(file).iter_batches(size):
        columns = [
            [cell.isoformat() if hasattr(cell, "isoformat") else cell for cell in column.to_pylist()]
            for column in batch.columns
        ]
        yield pd.DataFrame(dict(enumerate(columns)), dtype=object).set_axis(batch.schema.names, axis=1)


READERS: Final[Mapping[str, Callable[[Path, int], Iterator[Any]]]] = {
    ".csv": _read_csv,
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".json": _read_json_lines,
    ".parquet": _read_parquet,
}
"""What reads a file of each suffix."""


def find_types(
    file: Path, size: int, are_asked: Callable[[str], bool]
) -> tuple[dict[str, set[type | None]], int]:
    """The types of all values of each column, as pandas reads them, with None if some are missing: of those
    that are asked. And how many rows there are."""
    types: dict[str, set[type | None]] = {}
    total, read = 0, read_text if is_csv(file) else lambda cell: cell
    for rows in read_rows(file, size):
        for name in dict.fromkeys([*types, *rows]):  # a row of JSON need not have each column
            of_column = types.setdefault(name, {None} if total else set())
            if are_asked(name):
                of_column |= {
                    None if value is None else type(value) for value in map(read, rows.get(name, [None]))
                }
        total += len(rows)
    return types, total


def is_csv(file: Path) -> bool:
    """Whether all of its values are texts."""
    return file.suffix.lower() == ".csv"


def read_text(text: str | None, first: Callable[[str], Any] = int) -> Any:
    """The value of a text of CSV as pandas reads it: what is no number and no boolean is a text, and None if
    it is empty."""
    plain = (text or "").strip().replace("_", "x")  # 1_000 is a number to Python alone
    for read in (first, int, BOOLS.__getitem__, _read_float):
        with suppress(ValueError, KeyError):
            return read(plain)
    return text or None


BOOLS: Final = {
    "True": True,
    "TRUE": True,
    "true": True,
    "1": True,
    "False": False,
    "FALSE": False,
    "false": False,
    "0": False,
}
"""Those that pandas reads, and what a column that is declared as one of booleans has beside them."""


def _read_float(text: str) -> float:
    """A number, or an infinity that is written as one. Raises ValueError if no float is that large."""
    if abs(float(text)) == np.inf and "n" not in text.casefold():
        raise ValueError(f"{text[:40]} is out of range for FP64")
    return float(text)


_PLACE: Final = re.compile(
    r"""\A(?:((?:input|column|tensor) (?:'[^']*'|"[^"]*")(?:,|:| cannot [^:]*:) )"""
    r"""(?:(?:row|(?:data: )?element) 0\b|data\[0\](?!\[))|rows\[0\](\.?))"""
)
"""Where the text of an error begins with the row. A refused row was sent alone, so it is the first one
there."""


_ADVICE: Final = re.compile(r"; for (?:a missing value|a missing number|dates)\b[^']*\Z")
"""What a program in Python may write instead."""


class Writer:
    """Writes rows as they are scored, and what was refused beside them. A file beside tells how far that is,
    until the end.

    Args:
        of: What the run is about. Another one cannot go on with it.
    """

    def __init__(self, file: Path, of: Mapping[str, Any], *, goes_on: bool) -> None:
        self.file, self.suffix, self._of, self.reason = file, file.suffix.lower(), of, ""
        self.refused_file = file.with_suffix(".refused.csv" if self.suffix == ".csv" else ".refused.jsonl")
        self._part = file.with_name(f"{file.name}.part.jsonl") if self.suffix == ".parquet" else file
        self._state_file = file.with_name(f"{file.name}.state")
        was_cut = self._state_file.exists()
        if was_cut and not goes_on:
            raise ValueError(
                f"{file}: a run was cut before its end: go on with --resume, or remove {self._state_file}"
            )
        if goes_on and file.exists() and not was_cut:
            raise ValueError(f"--resume: {file} is complete: leave --resume out to score all rows anew")
        state: Any = (
            json.loads(self._state_file.read_text())
            if was_cut
            else {"of": of, "done": 0, "refused": 0, "sizes": [0, 0]}
        )
        if state["of"] != of:
            raise ValueError(
                f"--resume: {file} was begun with {json.dumps(state['of'])}: this is {json.dumps(of)}"
            )
        self.done, self.refused, self._sizes = state["done"], state["refused"], state["sizes"]
        if self._sizes[0] > (self._part.stat().st_size if self._part.exists() else 0):
            raise ValueError(
                f"--resume: {self._part} is shorter than the run has left it: remove {self._state_file} to "
                "begin anew"
            )
        self.write([])

    def write(self, ended: Sequence[tuple[pd.DataFrame, Any]]) -> None:
        """Write what became of some rows, in their order."""
        scored = [answer for _, answer in ended if isinstance(answer, pd.DataFrame)]
        refused = [self._describe(row, answer) for row, answer in ended if isinstance(answer, InferenceError)]
        for place, (file, parts) in enumerate(((self._part, scored), (self.refused_file, refused))):
            with file.open("ab") as opened:
                opened.seek(opened.truncate(self._sizes[place]))  # without what was written after the state
                for part in parts:
                    opened.write(_encode(part, self.suffix, has_names=opened.tell() > 0))
                self._sizes[place] = opened.tell()
        self.done, self.refused = (
            int(ended[-1][0].index[-1]) if ended else self.done,
            self.refused + len(refused),
        )
        new = self._state_file.with_suffix(".new")
        new.write_text(
            json.dumps({"of": self._of, "done": self.done, "refused": self.refused, "sizes": self._sizes})
        )
        new.replace(self._state_file)

    def _describe(self, row: pd.DataFrame, error: InferenceError) -> pd.DataFrame:
        """A row and why it is refused."""
        number, text = int(row.index[0]), getattr(error, "text", None) or _ADVICE.sub("", str(error))
        reason = _PLACE.sub(lambda at: f"{at[1] or ''}row {number}{', ' if at[2] else ''}", text)
        self.reason = self.reason or reason
        if self.suffix == ".csv":
            return pd.DataFrame(
                [[number, reason, *row.iloc[0]]], columns=["row", "reason", *row], dtype=object
            )
        return pd.DataFrame(
            {"row": [number], "reason": [reason], "columns": [row.iloc[0].to_dict()]}, dtype=object
        )

    def finish(self, *, is_complete: bool) -> None:
        if self.refused == 0:
            self.refused_file.unlink()
        if is_complete and self._part != self.file:
            import pyarrow.parquet

            try:
                tables = [
                    # all there is if each row is refused
                    pyarrow.table({"row": pyarrow.nulls(0, pyarrow.int64())}),
                    *(
                        pyarrow.Table.from_pandas(rows, preserve_index=False)
                        for rows in read_rows(self._part, 2**16)
                    ),
                ]
                pyarrow.parquet.write_table(
                    pyarrow.concat_tables(tables, promote_options="permissive"), self.file
                )
            except pyarrow.ArrowException as error:
                raise ValueError(
                    f"{self._part} has a column of several types ({error}): declare the outputs of the model"
                ) from None
            self._part.unlink()
        if is_complete:
            self._state_file.unlink()


def _encode(rows: pd.DataFrame, suffix: str, *, has_names: bool) -> bytes:
    if suffix != ".csv":  # `to_json` writes 15 digits of a number
        return "".join(
            json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows.to_dict("records")
        ).encode()
    options: dict[str, Any] = {"index": False, "header": not has_names, "lineterminator": "\n"}
    text: str = rows.to_csv(**options)
    # which Python quotes since 3.13
    return (rows.to_csv(**options, quoting=1) if "\r" in text else text).encode()
