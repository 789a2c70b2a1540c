"""The original's data files: read one record at a time, for files of any size, and checked field by field.

Python's own decoder reads the values, so that they equal those of `json.load`: a file of five gigabytes needs a loop
around the decoder and no other parser.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TextIO

from tsr_gym import InvalidCatalogue
from tsr_gym_envs.webshop.catalogue.product import OptionGroup, Product

# Called with the number of bytes read from a file, and with its size.
Progress = Callable[[int, int], None]
_CHUNK = 1 << 20
# A value that does not end within this number of characters is reported as damage.
MAX_VALUE = 1 << 26
_BLANKS = " \t\n\r"
_decode = json.JSONDecoder().raw_decode


def read_items(path: Path, progress: Progress | None = None) -> Iterator[Any]:
    """Yield the items of a file that holds a list.

    Raises:
        InvalidCatalogue: The file is missing, holds something else, is damaged or ends too early.
    """
    for stream in _members(path, "[", "]", progress):
        yield stream.value()


def read_entries(path: Path, progress: Progress | None = None) -> Iterator[tuple[str, Any]]:
    """Yield the keys and values of a file that holds an object.

    Raises:
        InvalidCatalogue: The file is missing, holds something else, is damaged or ends too early.
    """
    for stream in _members(path, "{", "}", progress):
        key = stream.value()
        if not isinstance(key, str):
            stream.fail(f"wanted a key in quotes, got {key!r}")
        stream.expect(":")
        yield key, stream.value()


def _members(path: Path, begin: str, end: str, progress: Progress | None) -> "Iterator[_Stream]":
    """Yield the stream of a file at the beginning of each member between two brackets."""
    with _open(path) as file:
        stream = _Stream(path, file, progress)
        stream.expect(begin)
        if not stream.skip(end):
            yield stream
            while not stream.skip(end):
                stream.expect(",")
                yield stream
        stream.end()


def _open(path: Path) -> TextIO:
    try:
        return path.open(encoding="utf-8")
    except OSError as error:
        raise InvalidCatalogue(f"cannot read {path}: {error.strerror}") from error


class _Stream:
    """The part of a file that is in memory, and the position in it."""

    def __init__(self, path: Path, file: TextIO, progress: Progress | None) -> None:
        self._path, self._file, self._progress = path, file, progress
        self._size = path.stat().st_size
        self._text, self._at, self._before = "", 0, 0
        self._complete = False

    def value(self) -> Any:
        """Read the next value."""
        self._skip_blanks()
        while True:
            try:
                value, end = _decode(self._text, self._at)
            except (json.JSONDecodeError, RecursionError) as error:
                if self._complete or len(self._text) - self._at > MAX_VALUE:
                    self.fail(f"damaged, or the file ends too early: {error}")
            except ValueError as error:
                # A number with more digits than Python converts; more input would not help.
                self.fail(f"damaged: {error}")
            else:
                # At the end of a chunk a number may be incomplete: "12" of "12.5", or "1" of "1e+5". The value counts
                # only if more than two characters follow, which "e+" could be, or the file has ended.
                if self._complete or len(self._text) - end > 2:
                    self._at = end
                    return value
            self._more()

    def skip(self, mark: str) -> bool:
        """Skip a mark if it comes next, and return whether it did."""
        self._skip_blanks()
        is_next = self._text.startswith(mark, self._at)
        self._at += is_next
        return is_next

    def expect(self, mark: str) -> None:
        """Skip a mark."""
        if not self.skip(mark):
            came = self._text[self._at : self._at + 20]
            self.fail(f"wanted {mark!r}, got {came!r}" if came else f"the file ends too early, wanted {mark!r}")

    def end(self) -> None:
        """Check that the file ends here."""
        self._skip_blanks()
        if self._at < len(self._text):
            self.fail(f"wanted the end of the file, got {self._text[self._at : self._at + 20]!r}")

    def fail(self, what: str) -> Any:
        """Raise InvalidCatalogue with the place in the file."""
        raise InvalidCatalogue(f"{self._path}: {what} (at character {self._before + self._at})")

    def _skip_blanks(self) -> None:
        while True:
            while self._at < len(self._text) and self._text[self._at] in _BLANKS:
                self._at += 1
            if self._at < len(self._text) or self._complete:
                return
            self._more()

    def _more(self) -> None:
        # Every attempt on a long value doubles the amount read, so that the repeated attempts take linear time in all.
        rest = self._text[self._at :]
        try:
            read = self._file.read(max(_CHUNK, len(rest)))
        except UnicodeDecodeError as error:
            self.fail(f"the file is not UTF-8 behind this place: {error.reason}")
        self._before += self._at
        self._text, self._at = rest + read, 0
        self._complete = not read
        if self._progress is not None:
            self._progress(self._file.buffer.tell(), self._size)


# The original's attributes of a product that is missing in the attribute file.
UNKNOWN_ATTRIBUTES = ("DUMMY_ATTR",)
NO_PRICE = ("$100.0", (100.0,))
MAX_ASIN = 10


class OriginalFiles(NamedTuple):
    """The files of a catalogue; `annotations` is None without instructions written by people."""

    products: Path
    instructions: Path
    annotations: Path | None


class Instruction(NamedTuple):
    """A generated instruction and its wanted attributes."""

    text: str
    attributes: tuple[str, ...]


class Annotation(NamedTuple):
    """An instruction by a person, with its wanted attributes and option values."""

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]


class Entry(NamedTuple):
    """A product's entry in the file of attributes; the instruction is None if the product is no target."""

    attributes: tuple[str, ...]
    instruction: Instruction | None


def find_files(where: str | Path | Sequence[str | Path]) -> OriginalFiles:
    """Return the files of a catalogue.

    Args:
        where: Their folder, or the files themselves. Of several in a folder the one without a suffix, such as
            ``items_shuffle.json`` next to ``items_shuffle_1000.json``, is taken.

    Raises:
        InvalidCatalogue: A file is missing, or several files match.
    """
    if isinstance(where, str | Path):
        if not Path(where).exists():
            raise InvalidCatalogue(f"wanted a folder of a catalogue or of the original's files, there is no {where}")
        paths = sorted(Path(where).glob("items_*.json")) or [path for path in [Path(where)] if path.is_file()]
    else:
        paths = [Path(path) for path in where]
    products, instructions = _one_of(paths, "items_shuffle", where), _one_of(paths, "items_ins_v2", where)
    if products is None or instructions is None:
        missing = "items_shuffle*.json" if products is None else "items_ins_v2*.json"
        raise InvalidCatalogue(f"wanted a file {missing} in {where}, got {[path.name for path in paths]}")
    return OriginalFiles(products, instructions, _one_of(paths, "items_human_ins", where))


def _one_of(paths: Sequence[Path], name: str, where: object) -> Path | None:
    matching = [path for path in paths if path.name.startswith(name)]
    plain = [path for path in matching if path.stem == name]
    if len(matching) > 1 and len(plain) != 1:
        names = [path.name for path in matching]
        raise InvalidCatalogue(f"wanted one file {name}*.json in {where}, got {names}: name the files one by one")
    preferred = plain or matching
    return preferred[0] if preferred else None


def read_products(path: Path, num_products: int | None = None, progress: Progress | None = None) -> Iterator[Product]:
    """Yield the products that the original loads, numbered in its order, without their attributes.

    Args:
        path: A file ``items_shuffle*.json``.
        num_products: Number of items to read, skipped ones included; None reads all.
        progress: Called with the bytes read and the size of the file.

    Raises:
        InvalidCatalogue: An item is damaged or lacks a field.
    """
    seen: set[str] = set()
    for number, item in enumerate(read_items(path, progress)):
        if number == num_products:
            break
        asin = _record(path, f"item {number}", item).text("asin")
        # The original skips these items too. Skipped items keep no row, so rows are numbered without gaps.
        if asin == "nan" or len(asin) > MAX_ASIN or asin in seen:
            continue
        yield _product(_record(path, f"product {asin}", item), asin, len(seen))
        seen.add(asin)


def read_attributes(path: Path, progress: Progress | None = None) -> Iterator[tuple[str, Entry]]:
    """Yield the products' ids, attributes and instructions of a file ``items_ins_v2*.json``.

    Raises:
        InvalidCatalogue: An entry is damaged or lacks a field.
    """
    for key, entry in read_entries(path, progress):
        record = _record(path, f"product {key}", entry)
        asin = record.clean("asin", key)
        attributes_of_product = record.texts("attributes") if "attributes" in record.fields else UNKNOWN_ATTRIBUTES
        if record.fields.get("instruction") is None:
            yield asin, Entry(attributes_of_product, None)
            continue
        attributes = record.texts("instruction_attributes")
        if not attributes:
            record.fail("instruction_attributes", "at least one attribute", attributes)
        yield asin, Entry(attributes_of_product, Instruction(record.text("instruction"), attributes))


def read_annotations(path: Path, progress: Progress | None = None) -> Iterator[tuple[str, tuple[Annotation, ...]]]:
    """Yield the products' ids and annotations of a file ``items_human_ins.json``.

    Annotations that ask for no attribute are left out, as the original leaves them out.

    Raises:
        InvalidCatalogue: An entry is damaged or lacks a field.
    """
    for key, entries in read_entries(path, progress):
        whole = _record(path, f"product {key}", {"annotations": entries})
        asin, annotations = whole.clean("asin", key), []
        for number, entry in enumerate(whole.items("annotations")):
            record = _record(path, f"product {key}, annotation {number}", entry)
            if attributes := record.texts("instruction_attributes"):
                options = record.texts("instruction_options")
                annotations.append(Annotation(record.text("instruction"), attributes, options))
        yield asin, tuple(annotations)


def _product(record: "_Record", asin: str, row: int) -> Product:
    price_text, prices = _pricing(record)
    bullets = record.fields.get("small_description")
    images = record.items("images")
    return Product(
        row=row,
        asin=asin,
        title=record.text("name"),
        description=record.text("full_description"),
        bullets=(record.text("small_description"),) if isinstance(bullets, str) else record.texts("small_description"),
        price_text=price_text,
        prices=prices,
        options=_options(record),
        attributes=UNKNOWN_ATTRIBUTES,
        category=record.text("category"),
        query=record.text("query").lower().strip(),
        product_category=record.text("product_category"),
        image=record.clean("images", images[0]) if images else "",
    )


def _pricing(record: "_Record") -> tuple[str, tuple[float, ...]]:
    listed = record.fields.get("pricing")
    if not listed:
        return NO_PRICE
    try:
        # As in the original, "$10.71$18.34" is split at the dollar signs, and everything but digits and points is
        # dropped.
        prices = tuple(float(re.sub(r"[^\d.]", "", part)) for part in record.text("pricing").split("$")[1:3])
    except ValueError:
        prices = ()
    if not prices or not all(map(math.isfinite, prices)):
        record.fail("pricing", "prices such as '$12.99' or '$10.71$18.34'", listed)
    return " to ".join(f"${price}" for price in prices), prices


def _options(record: "_Record") -> tuple[OptionGroup, ...]:
    field = "customization_options"
    groups = record.field(field)
    if not groups:
        return ()
    if not isinstance(groups, dict):
        record.fail(field, "an object", groups)
    options: dict[str, tuple[str, ...]] = {}
    for name, contents in groups.items():
        if contents is None:
            continue
        if not isinstance(contents, list) or not all(isinstance(content, dict) for content in contents):
            record.fail(field, f"a list of objects as {name!r}", contents)
        values = [record.clean(field, content.get("value")) for content in contents]
        # The original's normal form of names and values, which goals and clicks are compared with.
        options[record.clean(field, name).lower()] = tuple(
            value.strip().replace("/", " | ").lower() for value in values
        )
    return tuple(options.items())


class _Record(NamedTuple):
    """An item of a file, and its name in errors."""

    path: Path
    name: str
    fields: dict[str, Any]

    def field(self, field: str) -> Any:
        if field not in self.fields:
            raise InvalidCatalogue(f"{self.path}, {self.name}: the field {field!r} is missing")
        return self.fields[field]

    def text(self, field: str) -> str:
        return self.clean(field, self.field(field))

    def items(self, field: str) -> list[Any]:
        value = self.field(field)
        if not isinstance(value, list):
            self.fail(field, "a list", value)
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        return tuple(self.clean(field, value) for value in self.items(field))

    def clean(self, field: str, value: object) -> str:
        """Return a text; half a surrogate pair, which no page can show, becomes the replacement character."""
        if not isinstance(value, str):
            self.fail(field, "text", value)
        if value.isascii():
            return value
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def fail(self, field: str, wanted: str, got: object) -> NoReturn:
        raise InvalidCatalogue(f"{self.path}, {self.name}: wanted {wanted} as {field!r}, got {_shown(got)}")


def _record(path: Path, name: str, value: object) -> _Record:
    if not isinstance(value, dict):
        raise InvalidCatalogue(f"{path}, {name}: wanted an object, got {_shown(value)}")
    return _Record(path, name, value)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
