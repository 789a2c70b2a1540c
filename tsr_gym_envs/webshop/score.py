"""Proxy scores of a state: milestones reached, and how well the visible page fits the instruction.

All scores read only texts that the shopper can read, never the goal behind the instruction.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from tsr_gym_envs.webshop.catalogue.product import OptionGroup, Product
from tsr_gym_envs.webshop.catalogue.store import FUNCTION_WORDS, word_list
from tsr_gym_envs.webshop.pages import sub_texts
from tsr_gym_envs.webshop.rules import page_of
from tsr_gym_envs.webshop.shop import Shop
from tsr_gym_envs.webshop.state import ShopState

_WORD = re.compile(r"[^\W_]+(?:[.'-][^\W_]+)*")
# Words with which instructions ask; they describe no product.
_ASKING = frozenset(word_list("asking"))
_LIMIT = re.compile(r",? and price lower than (\d+(?:\.\d+)?) dollars\s*$")
_WISH = re.compile(r"(?: with |, and )((?:(?! with )[^:,])+): (.+?)(?=, and [^:,]+: |$)")


class Request(NamedTuple):
    """The wishes of an instruction, extracted by rules.

    Attributes:
        words: Its words without function words, limit and options.
        wishes: The (name, value) pairs of options that it spells out; only generated instructions do.
        limit: Most dollars to pay; infinite without a limit.
        text: The whole instruction, in lower case.
    """

    words: frozenset[str]
    wishes: tuple[tuple[str, str], ...]
    limit: float
    text: str


def spoken(text: str) -> tuple[str, ...]:
    """Return the words of a text in their order, in lower case and without the signs around them.

    >>> spoken("Men's X-Large (2 Pack), 3.5mm")
    ("men's", 'x-large', '2', 'pack', '3.5mm')
    """
    return tuple(_WORD.findall(text.lower()))


@lru_cache(maxsize=4096)
def words_of(text: str) -> frozenset[str]:
    """Return the content words of a text.

    >>> sorted(words_of("Find me a red mug, 12 oz"))
    ['12', 'mug', 'oz', 'red']
    """
    return frozenset(spoken(text)) - FUNCTION_WORDS - _ASKING


@lru_cache(maxsize=4096)
def read_instruction(instruction: str) -> Request:
    """Return the wishes of an instruction.

    >>> request = read_instruction("Find me soft socks with size: 5, and price lower than 20.00 dollars")
    >>> sorted(request.words), request.wishes, request.limit
    (['socks', 'soft'], (('size', '5'),), 20.0)
    """
    # The limit is removed first, because the value of the last option would otherwise include it.
    limit = _LIMIT.search(instruction)
    wanted = instruction[: limit.start()] if limit else instruction
    wishes = tuple((name.strip().lower(), value.strip().lower()) for name, value in _WISH.findall(wanted))
    words = words_of(_WISH.sub("", wanted))
    return Request(words, wishes, float(limit[1]) if limit else float("inf"), instruction.lower())


def progress(shop: Shop, state: ShopState) -> float:
    """Return the share of three milestones: on a product's page, a value chosen in each of its groups, checked out."""
    if state.row < 0:
        return 0.0
    groups = {name for name, _ in shop.product(state.row).options}
    has_chosen = groups <= {name for name, _ in state.options}
    return (1 + has_chosen + (state.page == "done")) / 3


def overlap(shop: Shop, state: ShopState) -> float:
    """Return the share of the instruction's words that occur on the page outside the instruction.

    After a purchase, the page of the bought product counts.
    """
    shown = state._replace(page="item_page", sub="") if state.page == "done" else state
    nodes = shop.layout(page_of(shop, shown)).nodes
    wanted = words_of(shop.goal(state).instruction_text)
    return share(wanted, words_of(" ".join(node.text for node in nodes if node.role != "button")))


def fit(shop: Shop, state: ShopState, *, opens: bool = True) -> float:
    """Return an estimate of the reward from visible texts.

    It is the mean over the price limit, each option, and, counted twice, the share of the other words. For an open or
    bought product, words count on any of its pages, and options count when chosen; on a page of results, the best of
    the listed titles counts.

    Args:
        shop: The shop.
        state: Where the shopper is.
        opens: Whether a product's sub pages can be opened. Compact pages have no link to them and do not compare
            titles with the values of wished options: only the other words of titles count.
    """
    request = read_instruction(shop.goal(state).instruction_text)
    hidden = {word for _, value in request.wishes for word in spoken(value) if not opens}
    if state.row >= 0:
        product = shop.product(state.row)
        words = _readable(shop, state.row) if opens else words_of(product.title) - hidden
        return _fit(request, product, words, dict(state.options))
    goods = map(shop.product, page_of(shop, state).rows)
    return max((_fit(request, product, words_of(product.title) - hidden, {}) for product in goods), default=0.0)


def _fit(request: Request, product: Product, words: frozenset[str], choices: dict[str, str]) -> float:
    wishes = request.wishes or _named(request.text, product.options)
    met = sum(choices.get(name) == value for name, value in wishes)
    return (2 * share(request.words, words) + (product.prices[0] <= request.limit) + met) / (3 + len(wishes))


def share(wanted: frozenset[str], words: frozenset[str]) -> float:
    """Return the share of wanted words that are among some words, 1 where none is wanted."""
    return len(wanted & words) / len(wanted) if wanted else 1.0


def _named(text: str, groups: tuple[OptionGroup, ...]) -> tuple[tuple[str, str], ...]:
    """Return the longest value of each group that a text contains as a separate word."""
    pairs = []
    for name, values in groups:
        named = [value for value in values if re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text)]
        if named:
            pairs.append((name, max(named, key=len)))
    return tuple(pairs)


@lru_cache(maxsize=1024)
def _readable(shop: Shop, row: int) -> frozenset[str]:
    """Return the content words on the pages of a product."""
    product = shop.product(row)
    subs = ("Description", "Features", "Attributes") if shop.show_attrs else ("Description", "Features")
    return words_of(" ".join((product.title, *(text for sub in subs for text in sub_texts(sub, product)))))
