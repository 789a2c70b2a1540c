"""Small catalogues and shops that the tests share."""

import json
from itertools import product as combinations
from types import SimpleNamespace
from typing import Any, NamedTuple

import gymnasium as gym

from tsr_gym.wrappers import TreeSearchWrapper
from tsr_gym_envs.webshop.catalogue.opening import import_catalogue
from tsr_gym_envs.webshop.catalogue.original_random import generator_of
from tsr_gym_envs.webshop.catalogue.product import Goal, Product
from tsr_gym_envs.webshop.repairs import repairs_of
from tsr_gym_envs.webshop.shop import Shop
from tsr_gym_envs.webshop.state import parse, parse_kindly

ITEM = {
    "asin": "B000000001", "name": "Soft Shirt", "full_description": "A shirt.", "small_description": ["Cotton ", ""],
    "pricing": "$12.99", "images": ["https://shop.invalid/shirt.jpg"], "product_category": "Clothing \u203a Shirts",
    "category": "fashion", "query": " Men's Shirts ",
    "customization_options": {"Size": [{"value": "S"}, {"value": "M/L"}], "color": None}, "average_rating": 4.5,
}  # fmt: skip
ENTRY = {"attributes": ["soft"], "instruction": "Find me soft shirts", "instruction_attributes": ["soft"]}
ANNOTATION = {"asin": "B000000001", "instruction": "i want a soft shirt.", "attributes": ["soft"]}
ANNOTATION |= {"options": ["size: s"], "instruction_attributes": ["soft"], "instruction_options": ["s"]}


def item(number=1, **changes):
    """Return a product's record with an id made of a number."""
    return {**ITEM, "asin": f"B{number:09d}", **changes}


def write_files(folder, items, entries=None, annotations=None):
    """Write the three files of a catalogue and return their folder; every product has an instruction by default."""
    folder.mkdir(parents=True, exist_ok=True)
    entry_of = {record["asin"]: ENTRY for record in items} if entries is None else entries
    contents = {"items_shuffle": items, "items_ins_v2": entry_of, "items_human_ins": annotations or {}}
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
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
            goal = {name: product[name] for name in ("name", "query", "product_category")}
            goal |= {"asin": asin, "attributes": entry["instruction_attributes"], "price_upper": 1_000_000}
            yield goal | {"goal_options": dict(zip(names, values, strict=True))}


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


ODD_TEXTS = (
    "plain", "", " ", "\n", " \t\n ", "\x0c", "\xa0", "  two  blanks  ", "line\nbreak", "carriage\r\nreturn",
    "<b>bold</b> & <script>alert('x')</script>", "</p></div></main><button>Buy Now</button>",
    "&amp; &lt;i&gt; &#39; &nosuch; &", "<!-- hidden --> {{ 7 * 7 }} {% raw %}", "a \"quoted\" 'title'",
    "emoji 🙂 ❤️ 👩‍🚀", "漢字 かな", "שלום \u202e العربية", "nul \x00 and \x1b[31m", "[SEP] [button] x [button_]",
    "search_results item_page item_sub_page done", "brackets [one] ]two[", "x" * 5000,
)  # fmt: skip
OPTION_VALUES = (
    "red", "Red/Blue", "5", "5.5", "", 'say "hi"', "a & b", "größe", "size [us]", "buy now", "< prev", "🙂",
)  # fmt: skip


def odd_files(folder):
    """Write a catalogue in which every field of some product holds every odd text, and options of every odd kind."""
    groups = {
        "color": [{"value": value} for value in OPTION_VALUES],
        "": [{"value": "red"}, {"value": "unnamed"}],
        "Size ": [{"value": "5"}, {"value": "5"}, {"value": "description"}],
        "none": None,
    }
    items, entries = [], {}
    for number, text in enumerate(ODD_TEXTS):
        name, bullets = f"shirt {text}" if number % 2 else text, [text, "", f"shirt {text}"]
        texts = dict.fromkeys(["full_description", "product_category", "category", "query"], text)
        choice = {"customization_options": groups if number % 3 else "", "pricing": "$1.5$20" if number % 5 else None}
        items.append(item(number, name=name, small_description=bullets, **texts, **choice))
        entry = {"attributes": [name, "soft"], "instruction": f"Find me a shirt {name}"}
        entries[items[-1]["asin"]] = {**entry, "instruction_attributes": ["soft"]}
    return write_files(folder, items, entries)


def product(row, title, *, options=(), attributes=(), description="", price=10.0, query="mugs", category="Home › Mugs"):
    texts = {"asin": f"B{row:09}", "title": title, "description": description, "bullets": ()}
    kinds = {"category": "garden", "query": query, "product_category": category, "attributes": tuple(attributes)}
    groups = tuple((name, tuple(values)) for name, values in options)
    return Product(row=row, **texts, price_text=f"${price}", prices=(price,), options=groups, **kinds)


def goal(target, text, *, attributes=("leak proof",), options=(), price_upper=20.0):
    named = {name: getattr(target, name) for name in ("row", "asin", "category", "query", "product_category")}
    wanted = {"attributes": tuple(attributes), "goal_options": tuple(options), "price_upper": price_upper}
    text = f"{text}, and price lower than {price_upper:.2f} dollars"
    return Goal(**named, name=target.title, instruction_text=text, **wanted, weight=1.0)


class Catalogue:
    """Products in a list."""

    def __init__(self, products):
        self.products = products
        self.num_products = len(products)

    def __len__(self):
        return len(self.products)

    def product(self, row):
        return self.products[row]


class Goals(list):
    """Goals in a list; a product costs the first of its prices."""

    def __init__(self, goals, products):
        super().__init__(
            goal.as_original(human=not all(isinstance(option, tuple) for option in goal.goal_options)) for goal in goals
        )
        self.goal = goals.__getitem__
        self.price = lambda row: products[row].prices[0]


class Engine:
    """Ranks products by how many words of the query their titles hold."""

    def __init__(self, products):
        self.titles = [set(product.title.lower().split()) for product in products]
        self.asked = 0

    def rows(self, query, k=50):
        self.asked += 1
        words = query.lower().split()
        counts = [sum(word in title for word in words) for title in self.titles]
        return tuple(
            sorted((row for row, count in enumerate(counts) if count), key=lambda row: (-counts[row], row))[:k]
        )


def tiny_shop(products, goals, rules="fixed"):
    return Shop(
        Catalogue(products), Goals(goals, products), Engine(products), repairs_of(rules),
        noun_fn=lambda title: title.lower().split(), noun_source="injected",
        parse=parse if rules == "original" else parse_kindly,
    )  # fmt: skip


def fake_env(shop, state, *, max_turns=None, turns=0):
    """What a shopper sees of an environment."""
    limits = SimpleNamespace(max_turns=max_turns, max_actions=None)
    return SimpleNamespace(shop=shop, state=state, episode=(state, turns, turns), limits=limits)


EVIL = "<script>document.title='run'</script><img src=x onerror=\"alert('run')\">\"'>&amp;"
NUM_SHIRTS = 25
BOLD = "<script>alert(1)<b onclick=alert(1)>"
# The product that everything hostile stands in, and its colours; the shop writes options in lower case.
TARGET = "B000000000"
COLORS = ("red", 'blue" onclick="alert(1)', BOLD, "javascript:alert(1)", "a&b=c#d?e%2f", "🙂")


def hostile_catalogue(folder):
    """Write and import the catalogue, and return its folder."""
    options = {"color": [{"value": color} for color in COLORS], f"size {EVIL}": [{"value": "s"}, {"value": "m"}]}
    bullets = [EVIL, "javascript:alert(1)"]
    target = {"name": f"Soft Shirt {EVIL}", "full_description": EVIL, "small_description": bullets}
    items = [item(0, **target, customization_options=options, product_category=EVIL, category=EVIL, query=EVIL)]
    items += [item(number, name=f"Shirt Number {number}") for number in range(1, NUM_SHIRTS)]
    entry = {"attributes": ["soft", EVIL], "instruction": f"Find me {EVIL}", "instruction_attributes": ["soft"]}
    entries = {record["asin"]: {"attributes": ["soft"]} for record in items} | {TARGET: entry}
    return import_catalogue(write_files(folder / "files", items, entries), folder / "store").path


def hostile_env(catalogue, **settings):
    return gym.make("tsr/WebShop-v0", catalogue=str(catalogue), **{"max_turns": None, **settings})


def goal_of(env, color):
    """Return the number of a goal that wants this colour."""
    return next(number for number, goal in enumerate(env.unwrapped.goals) if goal["goal_options"]["color"] == color)


def agents_tree(env, seed, options, moves):
    """Return the tree of an agent that takes the (page, action) moves, going back to the page before each."""
    agent = TreeSearchWrapper(env)
    agent.reset(seed=seed, options=options)
    for page, action in moves:
        if agent.cursor != page:
            agent.goto(page)
        agent.step(action)
    return agent.tree
