"""Values as JSON, and files of records: JSON lines and Parquet, the latter through pyarrow, imported here alone."""

import io
import json
import os
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from tsr_gym.errors import ConfigError, TsrGymError, shown
from tsr_gym.files import write_atomically
from tsr_gym.optional import require

# The first bytes of every Parquet file.
MAGIC = b"PAR1"
PARQUET = ".parquet"


def plain(value: Any) -> Any:
    """Return the JSON form of a numpy value or a path.

    Raises:
        TypeError: The value has none.
    """
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"a {type(value).__name__} in a node's observation or info has no JSON form")


def to_json(value: Any, *, indent: int | None = None, unknown: Callable[[Any], Any] = plain) -> str:
    """Return a value as JSON that every program reads; numbers that JSON lacks, NaN and infinite ones, are null.

    Args:
        value: Types of JSON, tuples included, and what `unknown` makes into them.
        indent: Blanks per level; None for one line.
        unknown: Called with values of other types.

    Raises:
        TypeError: A value has no JSON form.

    >>> to_json({"gap": float("nan"), "scores": (1.5, float("inf"))})
    '{"gap": null, "scores": [1.5, null]}'
    """
    write = _encoder(indent, unknown).encode
    try:
        return write(value)
    except ValueError:
        return write(_without_nan(value))


@lru_cache(maxsize=16)
def _encoder(indent: int | None, unknown: Callable[[Any], Any]) -> json.JSONEncoder:
    return json.JSONEncoder(indent=indent, default=unknown, allow_nan=False)


def _without_nan(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {name: _without_nan(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(part) for part in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def read_records(path: Path, *, error: type[TsrGymError]) -> list[dict[str, Any]]:
    """Return the records of a file of JSON lines or Parquet; the content decides which, not the name.

    Args:
        path: The file.
        error: The class of error to raise if it cannot be read.

    Raises:
        TsrGymError: The file is damaged or has no records; of class `error`, with the line.
        MissingExtra: It is a Parquet file, and pyarrow is not installed.
        OSError: There is no such file.
    """
    content = path.read_bytes()
    rows = read_parquet(path, error=error) if content[:4] == MAGIC else _lines(path, content, error)
    if not rows:
        raise error(f"{path}: wanted at least one record, got none")
    return rows


def _lines(path: Path, content: bytes, error: type[TsrGymError]) -> list[dict[str, Any]]:
    lines = enumerate(content.split(b"\n"), start=1)
    return [_line(f"{path}:{number}", line, error) for number, line in lines if line.strip()]


def _line(place: str, line: bytes, error: type[TsrGymError]) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise error(f"{place}: wanted a record in JSON, got {shown(line)} ({problem})") from problem
    if not isinstance(row, dict):
        raise error(f"{place}: wanted a record, got {shown(row)}")
    return row


def write_records(path: Path, records: Sequence[dict[str, Any]], *, like: type) -> None:
    """Write records as Parquet if the name ends in .parquet, else as JSON lines.

    An older file is replaced only when the new one is complete.

    Args:
        path: The file.
        records: At least one.
        like: The class whose annotations give the types of the columns; used only for Parquet.

    Raises:
        ConfigError: Parquet cannot hold a value; JSON lines can.
        MissingExtra: pyarrow is needed and not installed.
    """
    if path.suffix == PARQUET:
        write_parquet(path, records, like=like)
    else:
        write_atomically(path, "".join(f"{to_json(record)}\n" for record in records).encode())


def read_parquet(path: Path, *, error: type[TsrGymError]) -> list[dict[str, Any]]:
    """Return the records of a Parquet file, in their order.

    Args:
        path: The file.
        error: The class of error to raise if it cannot be read.

    Raises:
        TsrGymError: The file is damaged, or a value has no Python form; of class `error`.
        MissingExtra: pyarrow is not installed.
    """
    require("pyarrow", "parquet")
    import pyarrow  # type: ignore[import-untyped, import-not-found, unused-ignore]
    import pyarrow.parquet  # type: ignore[import-untyped, import-not-found, unused-ignore]

    try:
        table = pyarrow.parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as problem:
        raise error(f"{path}: wanted a parquet file, got {problem}") from problem
    try:
        rows: list[dict[str, Any]] = table.to_pylist()
    except (ValueError, OverflowError):
        rows = [_row(f"{path}, record {n + 1}", table.slice(n, 1), error) for n in range(table.num_rows)]
    return rows


def _row(place: str, table: Any, error: type[TsrGymError]) -> dict[str, Any]:
    """Return the record of a table with one row, or raise an error that names its place."""
    try:
        row: dict[str, Any] = table.to_pylist()[0]
    except (ValueError, OverflowError) as problem:
        wanted = "UTF-8" if isinstance(problem, UnicodeDecodeError) else "values that Python holds"
        raise error(f"{place}: wanted {wanted}, got {problem}") from problem
    return row


def write_parquet(path: Path, records: Sequence[dict[str, Any]], *, like: type) -> None:
    """Write records as a Parquet file; an older file is replaced only when the new one is complete.

    Args:
        path: The file.
        records: At least one.
        like: The class whose annotations give the types of the columns, so that a column of empty lists has a type,
            too. The types of other columns are inferred from their values.

    Raises:
        ConfigError: A value has no form in its column, such as a whole number of more than 64 bits.
        MissingExtra: pyarrow is not installed.
    """
    require("pyarrow", "parquet")
    import pyarrow
    import pyarrow.parquet

    hints = get_type_hints(like)
    columns = {}
    for name in records[0]:
        values = [record[name] for record in records]
        column = _type(hints[name], pyarrow) if name in hints else None
        try:
            columns[name] = pyarrow.array(values, type=column)
        except (pyarrow.ArrowException, OverflowError, UnicodeError) as error:
            number = _first_unfit(values, column, pyarrow)
            raise ConfigError(
                f"{path}, record {number + 1}: Parquet cannot hold {name}={shown(values[number])} ({error}): give a "
                "file name that does not end in .parquet, for JSON lines"
            ) from error
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
    write_atomically(path, buffer.getvalue())


def _first_unfit(values: Sequence[Any], column: Any, pyarrow: Any) -> int:
    """Return the number of the first value at which a column cannot be made."""

    def is_unfit(number: int) -> bool:
        try:
            pyarrow.array(values[: number + 1], type=column)
        except (pyarrow.ArrowException, OverflowError, UnicodeError):
            return True
        return False

    return bisect_left(range(len(values) - 1), True, key=is_unfit)


def _type(hint: Any, pyarrow: Any) -> Any:
    """Return the column type of an annotation; None to infer it from the values."""
    if get_origin(hint) is tuple:
        inner = _type(get_args(hint)[0], pyarrow)
        return None if inner is None else pyarrow.list_(inner)
    types = {bool: pyarrow.bool_, int: pyarrow.int64, float: pyarrow.float64, str: pyarrow.string}
    members = [member for member in get_args(hint) if member is not type(None)] or [hint]
    return types[members[0]]() if len(members) == 1 and members[0] in types else None
