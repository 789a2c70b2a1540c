"""Catalogues as files: the three that the original reads, written product by product."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

from tsr_gym_envs.webshop.generator.products import generate

FILES = ("items_shuffle.json", "items_ins_v2.json", "items_human_ins.json")


def write_catalogue(
    out: str | Path, num_products: int, seed: int = 0, *, progress: Callable[[int, int], None] | None = None
) -> tuple[Path, Path, Path]:
    """Write a catalogue of invented products in the format of the original's files.

    Args:
        out: A folder; it is made where it is missing, and files of these names are replaced.
        num_products: How many products.
        seed: Which catalogue. Of one seed, a smaller catalogue is the beginning of a larger one.
        progress: Called with the number of products written and their total, now and then.

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
