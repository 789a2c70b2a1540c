"""Generated products: their texts, their records in the original's format, and the files of a catalogue."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from tsr_gym_envs.webshop.generator.sketch import Groups, Sketch, draw_sketch, fitting_styles, lower
from tsr_gym_envs.webshop.generator.vocabulary import ARTICLES, ROLES, Attribute, Draws, asin_of, is_plural, vocabulary

# Equally spaced quantiles of lengths in characters, and of the number of bullets.
TITLE_LENGTHS = (24, 50, 68, 84, 102, 118, 133, 150, 166, 184, 205)
DESCRIPTION_LENGTHS = (20, 110, 210, 320, 440, 560, 720, 900, 1150, 1500, 2300)
BULLET_LENGTHS = (10, 30, 50, 75, 100, 130, 160, 200, 260, 350, 520)
NUM_BULLETS = (1, 3, 4, 5, 5, 5, 5, 5, 6, 7, 8)
# The shares of products without a description, with a very long one, and with nothing but an empty bullet.
NO_DESCRIPTION, LONG_DESCRIPTION, EMPTY_BULLET = 0.34, 0.004, 0.07
# The shares of titles that begin with a brand, name the target group, and have a second noun.
BRANDED, FOR_WHOM, SYNONYM = 0.88, 0.65, 0.15
# The share of descriptions that refer to other products.
RELATED = 0.6
# The probabilities that an attribute is mentioned in the title, in a bullet and in the description.
IN_TITLE, IN_BULLETS, IN_DESCRIPTION = 0.3, 0.55, 0.65
# The share of products with a list of search terms instead of a description, the quantiles of its length, and the
# length of the list after a very long description.
STUFFED, NUM_KEYWORDS, MANY = 0.055, (18, 35, 55, 80), 400
# Parts of attributes that are written in capitals.
ACRONYMS = frozenset(("bpa", "gmo", "led", "usb", "usda"))
# Words that headings leave in lower case.
SMALL = frozenset(("and", "at", "for", "in", "of", "to"))

# A headword and a sentence.
Point = tuple[str, str]


def write_title(draws: Draws, sketch: Sketch) -> str:
    """Return a title in the style of a shop: brand, kind and as many further parts as fit its length."""
    length = draws.quantile(TITLE_LENGTHS)
    mentioned = [attribute for attribute in sketch.attributes if draws.chance(IN_TITLE)]
    before = next((attribute for attribute in mentioned if attribute.role == "adj"), None)
    head = [sketch.brand.name] if draws.chance(BRANDED) else []
    head += [sketch.family.who] if sketch.family.who and draws.chance(FOR_WHOM) else []
    head += [capitals(before.words)] if before else []
    head += [] if before and sketch.style in capitals(before.words) else [sketch.style]
    title = " ".join([*head, sketch.noun])
    for part in _title_parts(draws, sketch, [attribute for attribute in mentioned if attribute is not before]):
        text = part.format_map(sketch.slots) if "{" in part else part
        if len(title) + len(text) <= length and text.strip() not in title:
            title += text if text.startswith(" ") else sketch.brand.separator + text
    return title


def _title_parts(draws: Draws, sketch: Sketch, mentioned: Sequence[Attribute]) -> list[str]:
    """Return the parts that can follow the head of a title; parts that begin with a blank need no separator."""
    product_kind = sketch.kind
    parts = [capitals(attribute.words) for attribute in mentioned if attribute.role == "adj"]
    parts += draws.sample(product_kind.details, 5) + draws.sample(sketch.category.extras, 4)
    if draws.chance(SYNONYM):
        noun = draws.pick([noun for noun in product_kind.nouns if noun != sketch.noun])
        parts.append(f"{draws.pick(fitting_styles(product_kind, noun))} {noun}")
    parts.append(capitals(sketch.material))
    parts = draws.sample(parts, len(parts))
    features, uses = ([attribute for attribute in mentioned if attribute.role == role] for role in ("with", "for"))
    with_, for_ = (" and ".join(capitals(attribute.words) for attribute in part[:2]) for part in (features, uses))
    parts += [f" with {with_}"] if with_ else []
    parts += [f" for {for_}"] if for_ else []
    groups = [values for values in sketch.options.values() if values]
    return [*parts, f" ({draws.pick(groups[0])})"] if groups and draws.chance(0.25) else parts


def write_bullets(draws: Draws, sketch: Sketch) -> list[str]:
    """Return the list of features."""
    if draws.chance(EMPTY_BULLET):
        return [""]
    mentioned = [attribute for attribute in sketch.attributes if draws.chance(IN_BULLETS)]
    # Attributes come first and always fit, so that the bullets mention what an instruction may ask for; the other
    # sentences only fill up.
    points = [(capitals(attribute.phrase), draws.pick(attribute.says)) for attribute in mentioned]
    points += [_split(text) for text in draws.sample(sketch.family.says, len(sketch.family.says))]
    points += [("Please note", text) for text in draws.sample(vocabulary().closing, 6)]
    count = int(draws.quantile(NUM_BULLETS) + 0.5)
    heads, rest = points[:count], iter(points[count:])
    return [_bullet(draws, sketch, point, rest) for point in draws.sample(heads, len(heads))]


def _bullet(draws: Draws, sketch: Sketch, point: Point, rest: Iterator[Point]) -> str:
    """Return a bullet: a point, with more points if its drawn length is not reached."""
    length = draws.quantile(BULLET_LENGTHS)
    head, text = point[0], sentence(point[1], sketch)
    while len(text) < length and (more := next(rest, None)) is not None:
        text = f"{text} {sentence(more[1], sketch)}"
    brand = sketch.brand
    return brand.bullet.format(head=head.upper() if brand.shouts else head, text=text)


def write_description(draws: Draws, sketch: Sketch) -> str:
    """Return the description, may be ""."""
    if draws.chance(STUFFED):
        return write_keywords(draws, sketch, int(draws.quantile(NUM_KEYWORDS)))
    if draws.chance(NO_DESCRIPTION):
        return ""
    length = draws.quantile(DESCRIPTION_LENGTHS)
    mentioned = [attribute for attribute in sketch.attributes if draws.chance(IN_DESCRIPTION)]
    texts = [draws.pick(attribute.says) for attribute in mentioned]
    texts += [_split(text)[1] for text in draws.sample(sketch.family.says, len(sketch.family.says))]
    texts += [related(draws, sketch)] if draws.chance(RELATED) else []
    texts = [draws.pick(sketch.family.intro), *draws.sample(texts, len(texts))]
    texts += draws.sample(vocabulary().closing, len(vocabulary().closing))
    written = ""
    for text in texts:
        if len(written) >= length:
            break
        written = f"{written} {sentence(text, sketch)}" if written else sentence(text, sketch)
    return f"{written} {write_keywords(draws, sketch, MANY)}" if draws.chance(LONG_DESCRIPTION) else written


def write_keywords(draws: Draws, sketch: Sketch, count: int) -> str:
    """Return a list of words that shoppers may search for, including words that do not fit the product."""
    families = [family for family in sketch.category.families if family.who == sketch.family.who]
    kinds = [product_kind for family in families for product_kind in family.kinds]
    words = [f"{sketch.family.who} {noun}".strip() for product_kind in kinds for noun in product_kind.nouns]
    words += [attribute.phrase for attribute in sketch.kind.attributes] * 2
    words += [product_kind.query for product_kind in kinds]
    return "Search terms: " + " ".join(draws.sample(words, count)).lower()


def related(draws: Draws, sketch: Sketch) -> str:
    """Return a sentence that names other kinds of products."""
    families = [family for family in sketch.category.families if family.who == sketch.family.who]
    other, third = (draws.pick(draws.pick(families).kinds).query for _ in range(2))
    return draws.pick(vocabulary().related).format(other=other, third=third, Brand=sketch.brand.name)


def sentence(text: str, sketch: Sketch) -> str:
    """Return a sentence about a product with its names filled in and a capital first letter."""
    text = text.format_map(sketch.slots) if "{" in text else text
    return text[:1].upper() + text[1:]


def capitals(phrase: str) -> str:
    """Return a phrase in title case, without its article.

    >>> capitals("a rubber sole"), capitals("easy to clean"), capitals("bpa free")
    ('Rubber Sole', 'Easy to Clean', 'BPA Free')
    """
    article, _, rest = phrase.partition(" ")
    return " ".join(_capital(word) for word in (rest if article in ARTICLES else phrase).split(" "))


def _capital(word: str) -> str:
    if word in ACRONYMS:
        return word.upper()
    return word if word in SMALL else word[:1].upper() + word[1:]


def _split(text: str) -> Point:
    head, _, rest = text.partition(": ")
    return head, rest


# Number of attributes that an instruction omits, as equally spaced quantiles; at least two stay.
LEFT_OUT = (0, 0, 0, 0, 0.6, 1, 1, 1, 2, 3, 5)
# Probability of an instruction for products with 2, 3, 4, ... attributes, and its factor for 0, 1, ... option groups.
HAS_INSTRUCTION = (0.6, 0.82, 0.92, 0.97, 1.0)
WITH_OPTIONS = (0.45, 1.12, 1.28, 1.3)
# The share of products with an instruction that also have annotations by people.
ANNOTATED = 0.25


def choose_attributes(draws: Draws, sketch: Sketch) -> tuple[Attribute, ...]:
    """Return the attributes that an instruction wants: at least two, or none without an instruction."""
    count = len(sketch.attributes)
    groups = sum(values is not None for values in sketch.options.values())
    if count < 2 or not draws.chance(HAS_INSTRUCTION[min(count, 6) - 2] * WITH_OPTIONS[groups]):
        return ()
    return sketch.attributes[: max(2, count - int(draws.quantile(LEFT_OUT) + 0.5))]


def _wish(draws: Draws, sketch: Sketch, wanted: Sequence[Attribute]) -> str:
    query = sketch.kind.query
    adjectives, features, uses = ([part.words for part in wanted if part.role == role] for role in ROLES)
    having = f" with {listed(draws, features)}" if features else ""
    serving = f" for {listed(draws, uses)}" if uses else ""
    plainly = f"{listed(draws, adjectives, last=', ')} {query}".strip()
    are, have = ("is", "has") if sketch.kind.is_mass else ("are", "have")
    form = draws.below(5)
    if form == 0 and adjectives:
        return f"{query} that {are} {listed(draws, adjectives)}{having}{serving}"
    if form == 1 and adjectives:
        also = f" and {have} {listed(draws, features)}" if features else ""
        return f"{query}{serving} that {are} {listed(draws, adjectives)}{also}"
    if form == 2:
        return plainly + serving + having
    return plainly + having + serving


def listed(draws: Draws, words: Sequence[str], last: str | None = None) -> str:
    """Return words as a list in a sentence, with a comma or "and" before the last one."""
    if len(words) < 2:
        return "".join(words)
    last = last or draws.pick((", ", " and "))
    return f"{', '.join(words[:-1])}{last}{words[-1]}"


def write_annotations(
    draws: Draws, sketch: Sketch, asin: str, wanted: Sequence[Attribute], options: dict[str, list[str]]
) -> list[dict[str, Any]]:
    """Return people's annotations of a product, usually none.

    Args:
        draws: The source of choices.
        sketch: The product.
        asin: Its id.
        wanted: The attributes that its instruction wants.
        options: Its options as on its page.
    """
    if not wanted or not draws.chance(ANNOTATED):
        return []
    return [_annotation(draws, sketch, asin, wanted, options) for _ in range(1 + draws.below(2))]


def _annotation(
    draws: Draws, sketch: Sketch, asin: str, attributes: Sequence[Attribute], options: dict[str, list[str]]
) -> dict[str, Any]:
    wanted = draws.sample(attributes, 1 + draws.below(2))
    picked = {name: draws.pick(values) for name, values in options.items() if draws.chance(0.8)}
    text = draws.pick(vocabulary().requests).format(
        thing=_thing(sketch),
        that=_that(sketch, wanted),
        it="them" if is_plural(sketch.noun) else "it",
        options="".join(_choice(name, value) for name, value in picked.items()),
    )
    return {
        "asin": asin,
        "instruction": text.lower(),
        "attributes": [attribute.phrase for attribute in sketch.attributes],
        "options": [f"{name}: {value}" for name, value in picked.items()],
        "instruction_attributes": [attribute.phrase for attribute in wanted],
        "instruction_options": list(picked.values()),
        "assignment_id": f"{draws.below(10**9):09d}",
        "worker_id": f"writer-{draws.below(40):02d}",
    }


def _thing(sketch: Sketch) -> str:
    noun = " ".join(part for part in (sketch.family.who, lower(sketch.noun)) if part)
    return noun if is_plural(sketch.noun) or sketch.kind.is_mass else with_article(noun)


def with_article(noun: str) -> str:
    """Return a noun with "a" or "an" as it is spoken.

    >>> with_article("USB cable"), with_article("LED TV"), with_article("ottoman")
    ('a USB cable', 'an LED TV', 'an ottoman')
    """
    first = noun.split(" ")[0]
    vowels = "AEFHILMNORSX" if first.isupper() else "aeiouAEIOU"
    return f"an {noun}" if noun[0] in vowels else f"a {noun}"


def _that(sketch: Sketch, wanted: Sequence[Attribute]) -> str:
    is_, has = ("are", "have") if is_plural(sketch.noun) else ("is", "has")
    verbs = {"adj": f"{is_} ", "with": f"{has} ", "for": f"{is_} for "}
    return f" that {' and '.join(verbs[attribute.role] + attribute.words for attribute in wanted)}"


def _choice(name: str, value: str) -> str:
    return {"color": f" in {value}", "size": f" in size {value}"}.get(name, f" with the {name} {value}")


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
            "instruction": f"{draws.pick(vocabulary().openers)} {_wish(draws, sketch, wanted)}",
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
