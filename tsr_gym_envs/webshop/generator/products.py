"""Generated products as records of the original's files, and the files themselves."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from tsr_gym_envs.webshop.generator.draws import Draws, asin_of
from tsr_gym_envs.webshop.generator.prose import (
    choose_attributes,
    write_annotations,
    write_bullets,
    write_description,
    write_instruction,
    write_title,
)
from tsr_gym_envs.webshop.generator.sketch import Groups, Sketch, draw_sketch, lower

# Shares of products without a price, with a price range, without a path of categories, without a rating, with
# features in one text instead of a list, and with the noun of their kind among their attributes.
NO_PRICE, PRICE_RANGE, NO_PATH, NO_RATING, JOINED_BULLETS, NAMES_KIND = 0.09, 0.093, 0.022, 0.36, 0.016, 0.12
RATINGS = (2.5, 3.7, 3.9, 4.1, 4.3, 4.4, 4.5, 4.6, 4.7, 4.9, 5.0)
CENTS = (0.99, 0.99, 0.99, 0.95, 0.98, 0.0)


class Record(NamedTuple):
    """A product in the original's three files.

    Attributes:
        item: Its item of ``items_shuffle.json``.
        entry: Its entry of ``items_ins_v2.json``.
        annotations: Its entry of ``items_human_ins.json``; may be empty.
    """

    item: dict[str, Any]
    entry: dict[str, Any]
    annotations: list[dict[str, Any]]


def generate(num_products: int, seed: int) -> Iterator[Record]:
    """Yield products; each depends on the seed and its number only, so fewer products are the first of more."""
    return (record(row, seed) for row in range(num_products))


def record(row: int, seed: int) -> Record:
    """Return the product with a number."""
    # All draws come from one stream in a fixed order. A new draw must be added at the end, or every catalogue changes.
    draws = Draws("product", seed, row)
    sketch = draw_sketch(draws, seed)
    asin = asin_of(seed, row)
    wanted = choose_attributes(draws, sketch)
    attributes = [attribute.phrase for attribute in sketch.attributes]
    if attributes and draws.chance(NAMES_KIND):
        attributes.append(lower(sketch.noun).lower())
    entry: dict[str, Any] = {"attributes": attributes}
    if wanted:
        entry |= {
            "instruction": write_instruction(draws, sketch, wanted),
            "instruction_attributes": [attribute.phrase for attribute in wanted],
        }
    item = _item(draws, sketch, asin)
    return Record(item, entry, write_annotations(draws, sketch, asin, wanted, shown_options(sketch.options)))


def _item(draws: Draws, sketch: Sketch, asin: str) -> dict[str, Any]:
    bullets = write_bullets(draws, sketch)
    path = (sketch.category.prefix, sketch.family.path, sketch.kind.leaf)
    return {
        "name": write_title(draws, sketch),
        "full_description": write_description(draws, sketch),
        "pricing": _pricing(draws, sketch),
        "images": [],
        "product_category": "" if draws.chance(NO_PATH) else " › ".join(path),
        "average_rating": "" if draws.chance(NO_RATING) else round(draws.quantile(RATINGS), 1),
        "small_description": " ".join(bullets) if draws.chance(JOINED_BULLETS) else bullets,
        "customization_options": _customization(sketch.options),
        "asin": asin,
        "category": sketch.category.name,
        "query": sketch.kind.query,
        "page": 1 + draws.below(400),
    }


def _pricing(draws: Draws, sketch: Sketch) -> str:
    if draws.chance(NO_PRICE):
        return ""
    price = int(draws.quantile(sketch.family.price)) + draws.pick(CENTS)
    if draws.chance(PRICE_RANGE):
        return f"${price:.2f}${price * (1.1 + draws.below(150) / 100):.2f}"
    return f"${price:.2f}"


def _customization(groups: Groups) -> dict[str, Any] | str:
    if not groups:
        return ""
    return {
        name: None if values is None else [{"value": value, "image": None} for value in values]
        for name, values in groups.items()
    }


def shown_options(groups: Groups) -> dict[str, list[str]]:
    """Return options as a page shows them.

    >>> shown_options({"Color": ["Black/White"], "Size": None})
    {'color': ['black | white']}
    """
    return {
        name.lower(): [value.strip().replace("/", " | ").lower() for value in values]
        for name, values in groups.items()
        if values is not None
    }


FILES = ("items_shuffle.json", "items_ins_v2.json", "items_human_ins.json")


def write_catalogue(
    out: str | Path, num_products: int, seed: int = 0, *, progress: Callable[[int, int], None] | None = None
) -> tuple[Path, Path, Path]:
    """Write a catalogue of invented products in the format of the original's files.

    Args:
        out: A folder; it is created if missing, and its files of these names are replaced.
        num_products: Number of products.
        seed: Seed of the catalogue. With the same seed, a smaller catalogue is the beginning of a larger one.
        progress: Called once in a while with the number of products written and the total.

    Returns:
        The paths of the products, of the instructions, and of the instructions that people would write.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    products, instructions, annotations = (folder / name for name in FILES)
    with ExitStack() as stack:
        items, entries, notes = (
            stack.enter_context(path.open("w", encoding="utf-8")) for path in (products, instructions, annotations)
        )
        items.write("[")
        entries.write("{")
        notes.write("{")
        num_notes = 0
        for row, record in enumerate(generate(num_products, seed)):
            asin = json.dumps(record.item["asin"])
            _append(items, row, json.dumps(record.item, ensure_ascii=False))
            _append(entries, row, f"{asin}: {json.dumps(record.entry, ensure_ascii=False)}")
            if record.annotations:
                _append(notes, num_notes, f"{asin}: {json.dumps(record.annotations, ensure_ascii=False)}")
                num_notes += 1
            if progress is not None and (row + 1) % 1000 == 0:
                progress(row + 1, num_products)
        items.write("\n]\n")
        entries.write("\n}\n")
        notes.write("\n}\n")
    return products, instructions, annotations


def _append(file: TextIO, number: int, text: str) -> None:
    file.write((",\n" if number else "\n") + text)
