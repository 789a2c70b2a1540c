"""PlacedRecord: one record of a file of questions; its fields are checked as they are read and named when wrong."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tsr_gym.errors import InvalidCorpus


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
        found = self.value(key)
        if not isinstance(found, str) or not found.strip():
            raise self.fault(f"a text under {key!r}", found)
        return self.whole(key, found)

    def whole(self, key: str, text: str) -> str:
        """Return the text of a key; half a character, which JSON can spell and no file holds, is refused."""
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise self.fault(f"a text without half a character under {key!r}", text) from error
        return text

    def name(self, key: str) -> str:
        """Return a field that is a text or a whole number, as text."""
        found = self.value(key)
        if isinstance(found, int) and not isinstance(found, bool):
            return str(found)
        return self.text(key)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a field that is a text or a list of at least one, each once, in their order."""
        found = self.value(key)
        listed = [found] if isinstance(found, str) else found
        if not isinstance(listed, Sequence) or not all(isinstance(text, str) for text in listed):
            raise self.fault(f"texts under {key!r}", found)
        texts = tuple(dict.fromkeys(self.whole(key, text) for text in listed if text.strip()))
        if not texts:
            raise self.fault(f"at least one text under {key!r}", found)
        return texts

    def rows(self, key: str) -> list["PlacedRecord"]:
        """Return a field that is a list of records."""
        found = self.value(key)
        if not isinstance(found, Sequence) or not all(isinstance(entry, Mapping) for entry in found):
            raise self.fault(f"a list of records under {key!r}", found)
        return [PlacedRecord(f"{self.place}, {key}[{number}]", number, entry) for number, entry in enumerate(found)]

    def part(self, key: str) -> "PlacedRecord":
        """Return a field that is a record."""
        found = self.value(key)
        if not isinstance(found, Mapping):
            raise self.fault(f"a record under {key!r}", found)
        return PlacedRecord(f"{self.place}, {key}", 0, found)

    def tuples(self, key: str, names: tuple[str, ...]) -> list[tuple[Any, ...]]:
        """Return a field that is a list of lists, such as pairs or triples, or the same as columns under names.

        HotpotQA writes ``[["Title", 0], ...]``; Hugging Face's copies, and FlashRAG's, ``{"title": ["Title", ...],
        "sent_id": [0, ...]}``.
        """
        found = self.value(key)
        if isinstance(found, Mapping):
            columns: list[Any] = [found.get(name) for name in names]
            lengths = {len(column) if isinstance(column, list) else -1 for column in columns}
            found = list(zip(*columns, strict=True)) if len(lengths) == 1 and -1 not in lengths else None
        if not isinstance(found, list) or not all(isinstance(e, list | tuple) and len(e) == len(names) for e in found):
            raise self.fault(f"lists of {len(names)} ({', '.join(names)}) under {key!r}", self.fields[key])
        return [tuple(entry) for entry in found]


def shown(value: object) -> str:
    """Return a value as an error shows it, cut off where it is long."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
