"""Read the records of a file: JSON lines, one JSON document, CSV or TSV with a header, or parquet."""

import csv
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

from tsr_gym.errors import InvalidCorpus
from tsr_gym.records import MAGIC, read_parquet
from tsr_gym_envs.retrieval_qa.loaders.placed_record import PlacedRecord, shown

# Keys under which whole JSON documents keep their records: SQuAD's, TriviaQA's.
LISTS = ("data", "Data")


class Records(NamedTuple):
    """The records of a file.

    Attributes:
        rows: The records, in their order; at least one.
        about: What a JSON document says beside its records.
    """

    rows: list[PlacedRecord]
    about: dict[str, Any]


def read_records(path: Path) -> Records:
    """Return the records of a file; its content decides how it is read, not its name.

    Raises:
        InvalidCorpus: The file is missing, damaged or without records.
        MissingExtra: It is a parquet file, and pyarrow is not installed.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidCorpus(f"wanted a file of questions, got {path} ({error.strerror})") from error
    if content[:4] == MAGIC:
        found = Records(_parquet(path), {})
    else:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise InvalidCorpus(f"{path}:{line}: wanted UTF-8, got {error.reason} at byte {error.start}") from error
        found = _json(path, text) if text.lstrip()[:1] in ("{", "[") else Records(_table(path, text), {})
    if not found.rows:
        raise InvalidCorpus(f"{path}: wanted at least one question, got none")
    return found


def _json(path: Path, text: str) -> Records:
    """Return the records of JSON lines where the first line is a record by itself, else those of one document."""
    first = text.lstrip().partition("\n")[0]
    try:
        opening = json.loads(first)
    except (ValueError, RecursionError):
        opening = None
    if isinstance(opening, dict) and not any(isinstance(opening.get(key), list) for key in LISTS):
        return Records(_lines(path, text), {})
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _broken(path, text, error) from error
    return _document(path, document)


def _document(path: Path, document: Any) -> Records:
    about: dict[str, Any] = {}
    if isinstance(document, dict):
        key = next((key for key in LISTS if isinstance(document.get(key), list)), None)
        if key is None:
            raise InvalidCorpus(
                f"{path}: wanted a list of records, or one under {LISTS}, got keys {shown(list(document))}"
            )
        about = {name: value for name, value in document.items() if name != key}
        document = document[key]
    return Records([_row(f"{path}, record {n + 1}", n, entry) for n, entry in enumerate(document)], about)


def _broken(path: Path, text: str, error: Exception) -> InvalidCorpus:
    line = error.lineno if isinstance(error, json.JSONDecodeError) else text.count("\n") + 1
    return InvalidCorpus(f"{path}:{line}: wanted JSON, got {error}")


def _lines(path: Path, text: str) -> list[PlacedRecord]:
    rows: list[PlacedRecord] = []
    # Not splitlines(): JSON may hold other line ends inside its texts.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidCorpus(f"{path}:{number}: wanted a JSON record, got {shown(line)} ({error})") from error
        rows.append(_row(f"{path}:{number}", len(rows), entry))
    return rows


def _row(place: str, number: int, entry: Any) -> PlacedRecord:
    if not isinstance(entry, dict):
        raise InvalidCorpus(f"{place}: wanted a record, got {shown(entry)}")
    return PlacedRecord(place, number, entry)


def _table(path: Path, text: str) -> list[PlacedRecord]:
    header = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter="\t" if "\t" in header else ",", strict=True)
    rows: list[PlacedRecord] = []
    names: list[str] = []
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise InvalidCorpus(f"{path}:{line}: wanted a table row, got {error}") from error
        if cells is None:
            return rows
        if not names:
            names = cells
        elif len(cells) == len(names):
            rows.append(PlacedRecord(f"{path}:{line}", len(rows), dict(zip(names, cells, strict=True))))
        elif cells:
            raise InvalidCorpus(f"{path}:{line}: wanted {len(names)} columns ({', '.join(names)}), got {len(cells)}")


def _parquet(path: Path) -> list[PlacedRecord]:
    entries = read_parquet(path, error=InvalidCorpus)
    return [PlacedRecord(f"{path}, record {n + 1}", n, entry) for n, entry in enumerate(entries)]
