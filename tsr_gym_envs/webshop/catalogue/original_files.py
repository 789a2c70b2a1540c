"""The original's data files: found, read one record at a time, and checked field by field."""

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from tsr_gym import InvalidCatalogue
from tsr_gym_envs.webshop.catalogue.json_stream import Progress, read_entries, read_items
from tsr_gym_envs.webshop.catalogue.product import OptionGroup, Product

# What the original says of a product that its attribute file does not know.
UNKNOWN_ATTRIBUTES = ("DUMMY_ATTR",)
NO_PRICE = ("$100.0", (100.0,))
MAX_ASIN = 10


class OriginalFiles(NamedTuple):
    """Where the files of a catalogue are; None where there are no instructions written by people."""

    products: Path
    instructions: Path
    annotations: Path | None


class Instruction(NamedTuple):
    """A generated instruction, and the attributes that it asks for."""

    text: str
    attributes: tuple[str, ...]


class Annotation(NamedTuple):
    """An instruction that a person wrote, with the attributes and the option values that it asks for."""

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...]


class Entry(NamedTuple):
    """What the file of attributes says of a product; no instruction where nobody is asked to find it."""

    attributes: tuple[str, ...]
    instruction: Instruction | None


def find_files(where: str | Path | Sequence[str | Path]) -> OriginalFiles:
    """Return the files of a catalogue.

    Args:
        where: Their folder, or the files themselves. Of several in a folder the one without a suffix, such as
            ``items_shuffle.json`` beside ``items_shuffle_1000.json``, is taken.

    Raises:
        InvalidCatalogue: A file is missing, or it is not clear which one is meant.
    """
    if isinstance(where, str | Path):
        if not Path(where).exists():
            raise InvalidCatalogue(f"wanted the folder of a catalogue or of the original's files, there is no {where}")
        found = sorted(Path(where).glob("items_*.json")) or [path for path in [Path(where)] if path.is_file()]
    else:
        found = [Path(path) for path in where]
    products, instructions = _one_of(found, "items_shuffle", where), _one_of(found, "items_ins_v2", where)
    if products is None or instructions is None:
        missing = "items_shuffle*.json" if products is None else "items_ins_v2*.json"
        raise InvalidCatalogue(f"wanted a file {missing} in {where}, got {[path.name for path in found]}")
    return OriginalFiles(products, instructions, _one_of(found, "items_human_ins", where))


def _one_of(found: Sequence[Path], name: str, where: object) -> Path | None:
    matching = [path for path in found if path.name.startswith(name)]
    plain = [path for path in matching if path.stem == name]
    if len(matching) > 1 and len(plain) != 1:
        names = [path.name for path in matching]
        raise InvalidCatalogue(f"wanted one file {name}*.json in {where}, got {names}: name the files one by one")
    chosen = plain or matching
    return chosen[0] if chosen else None


def read_products(path: Path, num_products: int | None = None, progress: Progress | None = None) -> Iterator[Product]:
    """Yield the products that the original loads, numbered in its order, without their attributes.

    Args:
        path: A file ``items_shuffle*.json``.
        num_products: How many items of the list to read, those that are skipped included; None reads all.
        progress: Called with bytes read and bytes in all.

    Raises:
        InvalidCatalogue: An item is damaged or lacks a field.
    """
    seen: set[str] = set()
    for number, item in enumerate(read_items(path, progress)):
        if number == num_products:
            break
        asin = _record(path, f"item {number}", item).text("asin")
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
        known = record.texts("attributes") if "attributes" in record.fields else UNKNOWN_ATTRIBUTES
        if record.fields.get("instruction") is None:
            yield asin, Entry(known, None)
            continue
        attributes = record.texts("instruction_attributes")
        if not attributes:
            record.fail("instruction_attributes", "at least one attribute", attributes)
        yield asin, Entry(known, Instruction(record.text("instruction"), attributes))


def read_annotations(path: Path, progress: Progress | None = None) -> Iterator[tuple[str, tuple[Annotation, ...]]]:
    """Yield the products' ids and annotations of a file ``items_human_ins.json``.

    Annotations that ask for no attribute are left out, as the original leaves them out.

    Raises:
        InvalidCatalogue: An entry is damaged or lacks a field.
    """
    for key, entries in read_entries(path, progress):
        whole = _record(path, f"product {key}", {"annotations": entries})
        asin, found = whole.clean("asin", key), []
        for number, entry in enumerate(whole.items("annotations")):
            record = _record(path, f"product {key}, annotation {number}", entry)
            if attributes := record.texts("instruction_attributes"):
                found.append(Annotation(record.text("instruction"), attributes, record.texts("instruction_options")))
        yield asin, tuple(found)


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
        options[record.clean(field, name).lower()] = tuple(
            value.strip().replace("/", " | ").lower() for value in values
        )
    return tuple(options.items())


class _Record(NamedTuple):
    """An item of a file, and how errors name it."""

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
        """Return a text; half a surrogate pair, which no page could show, becomes the replacement character."""
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
