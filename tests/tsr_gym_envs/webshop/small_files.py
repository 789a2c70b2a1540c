"""Data of the tests: small files in the original's format, the real small set, and golden transcripts."""

import json
from itertools import product as combinations
from typing import Any, NamedTuple

import gymnasium as gym

from tsr_gym_envs.webshop.catalogue.original_random import generator_of

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
    entry_of = {record["asin"]: ENTRY for record in items} if entries is None else entries
    for name, content in (
        ("items_shuffle.json", items),
        ("items_ins_v2.json", entry_of),
        ("items_human_ins.json", annotations or {}),
    ):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return folder


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
    for asin, entry in json.loads(path.read_text(encoding="utf-8")).items():
        if "instruction" not in entry:
            continue
        product = products[asin]
        names = sorted(product["options"])
        for values in combinations(*(product["options"][name] for name in names)):
            yield {
                "asin": asin,
                "name": product["name"],
                "query": product["query"],
                "product_category": product["product_category"],
                "attributes": entry["instruction_attributes"],
                "goal_options": dict(zip(names, values, strict=True)),
                "price_upper": 1_000_000,
            }


class Played(NamedTuple):
    """A step of a transcript and what the environment made of it; there is no reward after a reset."""

    row: dict[str, Any]
    wanted: dict[str, Any]
    env: Any
    observation: str
    reward: float | None
    terminated: bool | None
    info: dict[str, Any]

    @property
    def where(self):
        return self.row["id"], self.row["kind"], self.wanted["action"]


def recorded_nouns(rows, catalogue):
    """Return the nouns of every title that was compared, as the original's stand-in for spaCy tagged it."""
    nouns = {}
    for row in rows:
        for step in row["steps"]:
            if "goal_nouns" in step:
                bought = catalogue.product(catalogue.row_of(step["url"].split("/")[5])).title
                for title, tagged in ((row["goal"]["name"], step["goal_nouns"]), (bought, step["product_nouns"])):
                    assert nouns.setdefault(title, tagged) == tagged
    return nouns


def play_transcripts(golden, catalogue):
    """Yield every step of every golden transcript."""
    rows = golden("webshop/transcripts.jsonl")
    noun_fn = recorded_nouns(rows, catalogue).__getitem__
    for row in rows:
        settings = {"catalogue": str(catalogue.path), "rules": "original", "noun_fn": noun_fn, **row["env_kwargs"]}
        env = gym.make("tsr/WebShop-v0", **settings)
        if row["kind"] == "string_digit_session":
            # Its goal is the second that the constructor's random numbers give: another key had come before.
            env.reset(options={"session": "before"})
        yield Played(row, row["steps"][0], env.unwrapped, *begin(env, row))
        for step in row["steps"][1:]:
            if step.get("note", "").startswith("random.seed(99)"):
                reseed(env.unwrapped, 99)
            observation, reward, terminated, truncated, info = env.step(step["action"])
            assert not truncated
            yield Played(row, step, env.unwrapped, observation, reward, terminated, info)


def begin(env, row):
    observation, info = env.reset(options={"session": row["session_arg"]})
    assert env.unwrapped.goals[env.unwrapped.state.goal] == row["goal"] | {"weight": row["goal"]["weight"]}
    return observation, None, None, info


def reseed(env, seed):
    """Put the original's generator where `random.seed` puts it."""
    state = env.state._replace(dice=generator_of(seed).getstate())
    env._episode = env.episode._replace(state=state)


def canonical(value):
    """Return a value in a form that shows the difference between 1, 1.0 and True."""
    return json.dumps(value, sort_keys=True)
