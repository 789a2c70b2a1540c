"""What shoppers are asked for: generated instructions, and sentences as people write them."""

from collections.abc import Sequence
from typing import Any

from tsr_gym_envs.webshop.generator.draws import Draws
from tsr_gym_envs.webshop.generator.sketch import Sketch, lower
from tsr_gym_envs.webshop.generator.vocabulary import ROLES, Attribute, is_plural, vocabulary

# How many attributes of its product an instruction leaves out, as equally spaced quantiles; two stay.
LEFT_OUT = (0, 0, 0, 0, 0.6, 1, 1, 1, 2, 3, 5)
# How likely a product with 2, 3, 4, ... attributes has an instruction, and the same with 0, 1, ... option groups.
HAS_INSTRUCTION = (0.6, 0.82, 0.92, 0.97, 1.0)
WITH_OPTIONS = (0.45, 1.12, 1.28, 1.3)
# The share of products with an instruction that people wrote about as well.
ANNOTATED = 0.25


def choose_attributes(draws: Draws, sketch: Sketch) -> tuple[Attribute, ...]:
    """Return what an instruction asks for: two or more attributes, or none where there is no instruction."""
    count = len(sketch.attributes)
    groups = sum(values is not None for values in sketch.options.values())
    if count < 2 or not draws.chance(HAS_INSTRUCTION[min(count, 6) - 2] * WITH_OPTIONS[groups]):
        return ()
    return sketch.attributes[: max(2, count - int(draws.quantile(LEFT_OUT) + 0.5))]


def write_instruction(draws: Draws, sketch: Sketch, wanted: Sequence[Attribute]) -> str:
    """Return a sentence that asks for a product by its query and attributes, ready for options and price to follow."""
    return f"{draws.pick(vocabulary().openers)} {_wish(draws, sketch, wanted)}"


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
    """Return words in a row, the last one behind a comma or behind "and"."""
    if len(words) < 2:
        return "".join(words)
    last = last or draws.pick((", ", " and "))
    return f"{', '.join(words[:-1])}{last}{words[-1]}"


def write_annotations(
    draws: Draws, sketch: Sketch, asin: str, chosen: Sequence[Attribute], options: dict[str, list[str]]
) -> list[dict[str, Any]]:
    """Return what people wrote who were shown a product, most often nothing.

    Args:
        draws: Where choices come from.
        sketch: The product.
        asin: Its id.
        chosen: What its instruction asks for.
        options: Its options as its page shows them.
    """
    if not chosen or not draws.chance(ANNOTATED):
        return []
    return [_annotation(draws, sketch, asin, chosen, options) for _ in range(1 + draws.below(2))]


def _annotation(
    draws: Draws, sketch: Sketch, asin: str, chosen: Sequence[Attribute], options: dict[str, list[str]]
) -> dict[str, Any]:
    wanted = draws.sample(chosen, 1 + draws.below(2))
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
