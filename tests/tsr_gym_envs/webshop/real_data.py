"""The real small set with the original's field names, read straight from its files."""

import json
from itertools import product as combinations


def real_products(shared):
    """Return asin -> product as the original's loader makes it, for the tests that must not trust ours."""
    folder = shared / "data" / "webshop"
    records = json.loads((folder / "items_shuffle_1000.json").read_text(encoding="utf-8"))
    instructions = json.loads((folder / "items_ins_v2_1000.json").read_text(encoding="utf-8"))
    products = {}
    for record in records:
        bullets, options = record["small_description"], record["customization_options"] or {}
        products[record["asin"]] = {
            **record,
            "Title": record["name"],
            "Description": record["full_description"],
            "BulletPoints": bullets if isinstance(bullets, list) else [bullets],
            "Attributes": instructions[record["asin"]]["attributes"],
            "query": record["query"].lower().strip(),
            "options": {
                name.lower(): [value["value"].strip().replace("/", " | ").lower() for value in values]
                for name, values in options.items()
                if values
            },
        }
    return products


def synthetic_goals(shared, products):
    """Yield every synthetic goal of the small set, without price and text, in no particular order."""
    path = shared / "data" / "webshop" / "items_ins_v2_1000.json"
    for asin, said in json.loads(path.read_text(encoding="utf-8")).items():
        if "instruction" not in said:
            continue
        product = products[asin]
        names = sorted(product["options"])
        for values in combinations(*(product["options"][name] for name in names)):
            yield {
                "asin": asin,
                "name": product["name"],
                "query": product["query"],
                "product_category": product["product_category"],
                "attributes": said["instruction_attributes"],
                "goal_options": dict(zip(names, values, strict=True)),
                "price_upper": 1_000_000,
            }
