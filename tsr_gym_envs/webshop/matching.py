"""How words are compared: token sets, colours and option values.

`token_set_ratio` and `normalize_color` are the original's, number for number; `same_value` and `fits_best` are what the
repaired reward asks instead.
"""

import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from functools import lru_cache

from rapidfuzz import fuzz

# The original's colours. The first one found in a value stands for the value, so the order matters.
_COLOR_WORDS = """
    alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel camo
    caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream crystal
    dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey heather indigo ivory
    ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha multicolor
    mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow red rose royal rust sand
    sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise violet walnut
    wheat white wine yellow
"""
COLORS = tuple(_COLOR_WORDS.split())
# Two phrases match above this ratio.
CLOSE = 85
_LATIN_1 = dict.fromkeys(range(0x80, 0x100))


def normalize_color(value: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """Return the first colour in a value, or the value itself.

    In a str a colour counts anywhere, also inside of a word; in a tuple only as an element. Both are the original's.

    >>> normalize_color("infrared"), normalize_color(("color", "navy blue")), normalize_color(("color", "blue"))
    ('red', ('color', 'navy blue'), 'blue')
    """
    return next((color for color in COLORS if color in value), value)


@lru_cache(maxsize=1 << 16)
def _tokens(text: str) -> frozenset[str]:
    return frozenset(re.sub(r"\W", " ", text.translate(_LATIN_1)).lower().split())


def _as_text(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else str(value)


def _joined(first: str, second: str) -> tuple[str, str, str] | None:
    """Return shared tokens, first and second text as the token set ratio compares them; None where a text is empty."""
    one, two = _tokens(first), _tokens(second)
    if not one or not two:
        return None
    shared = " ".join(sorted(one & two))
    return shared, f"{shared} {' '.join(sorted(one - two))}".strip(), f"{shared} {' '.join(sorted(two - one))}".strip()


def _ratio(first: str, second: str) -> int:
    if not first or not second:
        return 0
    return 100 if first == second else round(100 * SequenceMatcher(None, first, second).ratio())


def token_set_ratio(first: str | tuple[str, ...], second: str | tuple[str, ...]) -> int:
    """Return how alike two phrases are, 0 to 100, whatever the order of their words; 100 where one contains the other.

    thefuzz 0.19 over `difflib`, which the original's numbers come from; later versions differ by some points.

    >>> token_set_ratio("5", ("size", "5.5")), token_set_ratio("light weight", "lightweight")
    (100, 96)
    """
    texts = _joined(_as_text(first), _as_text(second))
    if texts is None:
        return 0
    shared, one, two = texts
    return max(_ratio(shared, one), _ratio(shared, two), _ratio(one, two))


@lru_cache(maxsize=1 << 16)
def _close(first: str, second: str) -> bool:
    texts = _joined(first, second)
    if texts is None:
        return False
    shared, one, two = texts
    # rapidfuzz counts the longest common subsequence, difflib blocks of one: where the first is too short for a match,
    # so is the second, which takes twenty times as long to find.
    pairs = [pair for pair in ((shared, one), (shared, two), (one, two)) if fuzz.ratio(*pair) > CLOSE]
    return any(_ratio(*pair) > CLOSE for pair in pairs)


def close(first: str | tuple[str, ...], second: str | tuple[str, ...]) -> bool:
    """Return whether two phrases match: a token set ratio above 85."""
    return _close(_as_text(first), _as_text(second))


@lru_cache(maxsize=1 << 16)
def _plain(value: str) -> str:
    return " ".join(re.sub(r"[|/]", " | ", value).casefold().split())


def same_value(first: str, second: str) -> bool:
    r"""Return whether two option values are the same but for case, blanks, and "/" written as "|".

    >>> same_value("A2-Army\xa0Green", "a2-army green"), same_value("30/32", "30 | 32"), same_value("5", "5.5")
    (True, True, False)
    """
    return _plain(first) == _plain(second)


@lru_cache(maxsize=1 << 16)
def _words(value: str) -> frozenset[str]:
    return frozenset(re.findall(r"[^\s,;()|]+", _plain(value)))


def fits_best(value: str, wanted: str, offered: Iterable[str]) -> bool:
    """Return whether a value is the best answer to a wish that people have put into words.

    That is the same value; or, where nothing on offer is the same, a value with all words of the wish and no more
    others than any such value has. Words end at blanks, commas and brackets, so that "5.5" and "x-large" are one each.

    >>> fits_best("navy blue", "blue", ["navy blue", "red"]), fits_best("navy blue", "blue", ["navy blue", "blue"])
    (True, False)
    """
    if same_value(value, wanted):
        return True
    words = _words(wanted)
    if not words or not words <= _words(value):
        return False
    rivals = [other for other in offered if words <= _words(other)]
    fewest = min(len(_words(other)) for other in [value, *rivals])
    return len(_words(value)) == fewest and not any(same_value(other, wanted) for other in rivals)
