"""Records of question files: JSON lines, one JSON document, CSV or TSV with a header, or parquet.

Every field is checked when it is read; an error names file, line or record, and key.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tsr_gym.errors import InvalidCorpus
from tsr_gym.records import MAGIC, read_parquet


class PlacedRecord(NamedTuple):
    """A record and where it stands.

    Attributes:
        place: File and line, such as ``"dev.jsonl:12"``, or file and record.
        number: Its place among the records, from 0.
        fields: What it holds.
    """

    place: str
    number: int
    fields: Mapping[str, Any]

    def fault(self, wanted: str, got: object) -> InvalidCorpus:
        """Return the error that names this record."""
        return InvalidCorpus(f"{self.place}: wanted {wanted}, got {shown(got)}")

    def value(self, key: str) -> Any:
        """Return a field that must be there."""
        if key not in self.fields:
            raise self.fault(f"the key {key!r}", sorted(map(str, self.fields)))
        return self.fields[key]

    def text(self, key: str) -> str:
        """Return a field that is a text with something in it."""
        value = self.value(key)
        if not isinstance(value, str) or not value.strip():
            raise self.fault(f"a text under {key!r}", value)
        return self.whole(key, value)

    def whole(self, key: str, text: str) -> str:
        """Return the text of a key; half a character, which JSON can spell and no file holds, is refused."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise self.fault(f"a text without half a character under {key!r}", text) from error
        return text

    def name(self, key: str) -> str:
        """Return a field that is a text or a whole number, as text."""
        value = self.value(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        return self.text(key)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a field that is a text or a list of at least one, each once, in their order."""
        value = self.value(key)
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, Sequence) or not all(isinstance(text, str) for text in listed):
            raise self.fault(f"texts under {key!r}", value)
        texts = tuple(dict.fromkeys(self.whole(key, text) for text in listed if text.strip()))
        if not texts:
            raise self.fault(f"at least one text under {key!r}", value)
        return texts

    def rows(self, key: str) -> list["PlacedRecord"]:
        """Return a field that is a list of records."""
        value = self.value(key)
        if not isinstance(value, Sequence) or not all(isinstance(entry, Mapping) for entry in value):
            raise self.fault(f"a list of records under {key!r}", value)
        return [PlacedRecord(f"{self.place}, {key}[{number}]", number, entry) for number, entry in enumerate(value)]

    def part(self, key: str) -> "PlacedRecord":
        """Return a field that is a record."""
        value = self.value(key)
        if not isinstance(value, Mapping):
            raise self.fault(f"a record under {key!r}", value)
        return PlacedRecord(f"{self.place}, {key}", 0, value)

    def tuples(self, key: str, names: tuple[str, ...]) -> list[tuple[Any, ...]]:
        """Return a field that is a list of lists, such as pairs or triples, or the same as columns under names.

        HotpotQA writes ``[["Title", 0], ...]``; Hugging Face's copies, and FlashRAG's, ``{"title": ["Title", ...],
        "sent_id": [0, ...]}``.
        """
        value = self.value(key)
        if isinstance(value, Mapping):
            columns: list[Any] = [value.get(name) for name in names]
            lengths = {len(column) if isinstance(column, list) else -1 for column in columns}
            value = list(zip(*columns, strict=True)) if len(lengths) == 1 and -1 not in lengths else None
        if not isinstance(value, list) or not all(isinstance(e, list | tuple) and len(e) == len(names) for e in value):
            raise self.fault(f"lists of {len(names)} ({', '.join(names)}) under {key!r}", self.fields[key])
        return [tuple(entry) for entry in value]


def shown(value: object) -> str:
    """Return a value as an error shows it, cut off where it is long."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


# Keys under which whole JSON documents keep their records: SQuAD's, TriviaQA's.
LISTS = ("data", "Data")


class Records(NamedTuple):
    """The records of a file.

    Attributes:
        rows: The records, in their order; at least one.
        about: The other keys of a JSON document, next to its records.
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
        records = Records(_parquet(path), {})
    else:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise InvalidCorpus(f"{path}:{line}: wanted UTF-8, got {error.reason} at byte {error.start}") from error
        records = _json(path, text) if text.lstrip()[:1] in ("{", "[") else Records(_table(path, text), {})
    if not records.rows:
        raise InvalidCorpus(f"{path}: wanted at least one question, got none")
    return records


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
