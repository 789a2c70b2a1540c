"""Files of records: JSON lines and Parquet, the latter through pyarrow, which is imported here and nowhere else."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from tsr_gym.errors import TsrGymError, shown
from tsr_gym.files import write_atomically
from tsr_gym.optional import require

# The first bytes of every Parquet file.
MAGIC = b"PAR1"
PARQUET = ".parquet"


def read_records(path: Path, *, error: type[TsrGymError]) -> list[dict[str, Any]]:
    """Return the records of a file of JSON lines or of a Parquet file; its content decides, not its name.

    Args:
        path: The file.
        error: What is raised where it cannot be read.

    Raises:
        TsrGymError: The file is damaged or has no records; it is an `error`, and names the line.
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
    """Write records as Parquet where the name ends in .parquet, else as JSON lines.

    An older file is replaced only when all is written.

    Args:
        path: The file.
        records: At least one.
        like: The class whose annotations say what the columns hold; only Parquet asks.

    Raises:
        MissingExtra: pyarrow is needed and not installed.
    """
    if path.suffix == PARQUET:
        write_parquet(path, records, like=like)
    else:
        write_atomically(path, "".join(f"{json.dumps(record)}\n" for record in records).encode())


def read_parquet(path: Path, *, error: type[TsrGymError]) -> list[dict[str, Any]]:
    """Return the records of a Parquet file, in their order.

    Args:
        path: The file.
        error: What is raised where it cannot be read.

    Raises:
        TsrGymError: The file is damaged, or a value is none that Python holds; it is an `error`.
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
    """Return the record of a table of one row, or raise the error that names it."""
    try:
        row: dict[str, Any] = table.to_pylist()[0]
    except (ValueError, OverflowError) as problem:
        wanted = "UTF-8" if isinstance(problem, UnicodeDecodeError) else "values that Python holds"
        raise error(f"{place}: wanted {wanted}, got {problem}") from problem
    return row


def write_parquet(path: Path, records: Sequence[dict[str, Any]], *, like: type) -> None:
    """Write records as a Parquet file; an older file is replaced only when all is written.

    Args:
        path: The file.
        records: At least one.
        like: The class whose annotations say what the columns hold, so that a column of empty lists has its type, too;
            columns that it does not name are typed by their values.

    Raises:
        MissingExtra: pyarrow is not installed.
    """
    require("pyarrow", "parquet")
    import pyarrow
    import pyarrow.parquet

    hints = get_type_hints(like)
    columns = {}
    for name in records[0]:
        values = [record[name] for record in records]
        columns[name] = pyarrow.array(values, type=_type(hints[name], pyarrow) if name in hints else None)
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
    write_atomically(path, buffer.getvalue())


def _type(hint: Any, pyarrow: Any) -> Any:
    """Return the column's type for an annotation; None leaves it to the values."""
    if get_origin(hint) is tuple:
        inner = _type(get_args(hint)[0], pyarrow)
        return None if inner is None else pyarrow.list_(inner)
    # bool stands before int, whose subclass it is.
    types = {bool: pyarrow.bool_, int: pyarrow.int64, float: pyarrow.float64, str: pyarrow.string}
    kinds = [one for one in get_args(hint) if one is not type(None)] or [hint]
    return types[kinds[0]]() if len(kinds) == 1 and kinds[0] in types else None
