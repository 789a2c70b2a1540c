"""Files of a handful of products in the original's format, written by the tests."""

import json

ITEM = {
    "asin": "B000000001",
    "name": "Soft Shirt",
    "full_description": "A shirt.",
    "small_description": ["Cotton ", ""],
    "pricing": "$12.99",
    "images": ["https://shop.invalid/shirt.jpg"],
    "product_category": "Clothing \u203a Shirts",
    "category": "fashion",
    "query": " Men's Shirts ",
    "customization_options": {"Size": [{"value": "S"}, {"value": "M/L"}], "color": None},
    "average_rating": 4.5,
}
ENTRY = {"attributes": ["soft"], "instruction": "Find me soft shirts", "instruction_attributes": ["soft"]}
ANNOTATION = {
    "asin": "B000000001",
    "instruction": "i want a soft shirt.",
    "attributes": ["soft"],
    "options": ["size: s"],
    "instruction_attributes": ["soft"],
    "instruction_options": ["s"],
}


def item(number=1, **changes):
    """Return a product's record with an id made of a number."""
    return {**ITEM, "asin": f"B{number:09d}", **changes}


def write_files(folder, items, entries=None, annotations=None):
    """Write the three files of a catalogue and return their folder; every product has an instruction by default."""
    folder.mkdir(parents=True, exist_ok=True)
    known = {record["asin"]: ENTRY for record in items} if entries is None else entries
    for name, content in (
        ("items_shuffle.json", items),
        ("items_ins_v2.json", known),
        ("items_human_ins.json", annotations or {}),
    ):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder
