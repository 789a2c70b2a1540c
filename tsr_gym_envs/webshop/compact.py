"""Compact pages for very small models: lower-case words between blanks, and short names to click.

A page shows the words that each product's title shares with the instruction, and only the options that share a word
with it. It contains no facts that the other modes hide, and every action is an action of the shop under another name.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from tsr_gym_envs.lucene_bm25.analysis import term_of
from tsr_gym_envs.webshop.pages import Page
from tsr_gym_envs.webshop.rules import follow, page_of
from tsr_gym_envs.webshop.score import read_instruction, share, spoken, words_of
from tsr_gym_envs.webshop.shop import Shop
from tsr_gym_envs.webshop.state import ShopAction, ShopState, parse_kindly

# Names of buttons on compact pages.
BUTTONS = {"buy now": "buy", "back to search": "back", "< prev": "prev", "next >": "next"}
# The end of a product's name within its title.
_HEAD_END = re.compile(r"\s[-–|]\s|[,;|(:]")
# Number of words shown that are not in the instruction, and number of words at the end of a name from which they are
# taken. Brand names stand before these; they are as many as products, and would make the vocabulary as large.
_NUM_OTHERS, _NAME_WORDS = 2, 4
_ANYTHING = ("product",)


class Want(NamedTuple):
    """The wishes of an instruction, as plain words.

    Attributes:
        words: Its words in their order, each once, without those of `wishes`.
        wishes: The (name, value) pairs of options that it spells out.
        limit: Most dollars to pay.
    """

    words: tuple[str, ...]
    wishes: tuple[tuple[str, str], ...]
    limit: float

    @property
    def query(self) -> tuple[str, ...]:
        """The words to search for: all wanted words, each once; "product" without any."""
        wished = (word for _, value in self.wishes for word in value.split())
        return tuple(dict.fromkeys((*self.words, *wished))) or _ANYTHING


class CompactPage(NamedTuple):
    """A compact page.

    Attributes:
        text: The text.
        names: The clickable names and their names on the shop's page, including options that are not listed.
        shown: The names that the text contains.
        values: The names of the listed options by group, for groups without a choice.
        chosen: The name of the chosen option by group.
        unopened: The names of products that have not been opened: affordable ones first, and among them those first
            whose titles share a word with the instruction.
    """

    text: str
    names: Mapping[str, str] = MappingProxyType({})
    shown: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    chosen: Mapping[str, str] = MappingProxyType({})
    unopened: tuple[str, ...] = ()

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions whose names the page shows."""
        return tuple(f"click [ {name} ]" for name in self.shown)


@lru_cache(maxsize=4096)
def want_of(instruction: str) -> Want:
    """Return the wishes of an instruction.

    >>> want = want_of("Find me soft socks, blue, with size: 5 & up, and price lower than 20.00 dollars")
    >>> want.words, want.wishes, want.limit
    (('soft', 'socks', 'blue'), (('size', '5 up'),), 20.0)
    """
    request = read_instruction(instruction)
    wishes = tuple((_plain(name), _plain(value)) for name, value in request.wishes)
    wished = {word for _, value in wishes for word in value.split()}
    words = dict.fromkeys(word for word in spoken(instruction) if word in request.words and word not in wished)
    return Want(tuple(words), wishes, request.limit)


def compact_page(shop: Shop, state: ShopState) -> CompactPage:
    """Return the compact page of a state."""
    return _compact(shop, state.goal, page_of(shop, state))


@lru_cache(maxsize=2048)
def _compact(shop: Shop, goal: int, page: Page) -> CompactPage:
    want = want_of(shop.goals.goal(goal).instruction_text)
    buttons = {short: name for name, short in BUTTONS.items() if name in shop.layout(page).targets}
    if page.kind == "index":
        wishes = (f"; {name} : {value}" for name, value in want.wishes)
        return CompactPage(" ".join(("want", *want.words, *wishes, "index")))
    if page.kind == "search_results":
        return _results(shop, want, page, buttons)
    if page.kind == "done":
        return CompactPage("bought")
    return _item(shop, want, page, buttons)


def shown_overlap(shop: Shop, state: ShopState) -> float:
    """Return the share of the instruction's words that compact pages show outside the instruction.

    Of an open or bought product these are the words of its page and of its line of results.
    """
    instruction = shop.goal(state).instruction_text
    product = state._replace(page="item_page", sub="") if state.row >= 0 else state
    texts = [compact_page(shop, product).text] if state.page != "index" else []
    texts += [_row(shop, want_of(instruction), state.row).text] if state.row >= 0 else []
    return share(words_of(instruction), words_of(" ".join(texts)))


class _Row(NamedTuple):
    """A line of results: words of the instruction in the title, other words of the name, and "ok" or "dear"."""

    shared: tuple[str, ...]
    others: tuple[str, ...]
    price: str

    @property
    def text(self) -> str:
        return " ".join((*self.shared, *((",", *self.others) if self.others else ()), "|", self.price))


def _results(shop: Shop, want: Want, page: Page, buttons: dict[str, str]) -> CompactPage:
    # Products have position names such as r3, because an id is many tokens that a small model would have to copy.
    names = {f"r{number}": shop.product(row).asin.lower() for number, row in enumerate(page.rows, 1)}
    rows = {name: _row(shop, want, row) for name, row in zip(names, page.rows, strict=True) if row not in page.opened}
    listed = (f"{name} | {rows[name].text if name in rows else 'seen'}" for name in names)
    turns = [name for name in ("prev", "next") if name in buttons]
    return CompactPage(
        " ".join((f"page {page.number}", *(listed if names else ("nothing",)), *turns)),
        names | buttons,
        (*names, *turns, "back"),
        unopened=tuple(sorted(rows, key=lambda name: (rows[name].price != "ok", not rows[name].shared))),
    )


def _row(shop: Shop, want: Want, row: int) -> _Row:
    # Words are compared by their stems and shown in the instruction's form, so that a model can copy them.
    title, wanted = shop.product(row).title, {_stem(word): word for word in want.words}
    shared = dict.fromkeys(wanted[stem] for word in spoken(title) if (stem := _stem(word)) in wanted)
    return _Row(tuple(shared), _others(title, frozenset(wanted)), _price(shop, want, row))


def _others(title: str, stems: frozenset[str]) -> tuple[str, ...]:
    """Return the last words of a product's name that are not wanted: the noun stands at the end.

    >>> _others("Beldora Men's Casual Jacket - Wool Blend", frozenset({"jacket"}))
    ("men's", 'casual')
    """
    return tuple(word for word in _name(title) if _stem(word) not in stems)[-_NUM_OTHERS:]


def _name(title: str) -> dict[str, None]:
    """Return the last words of a title's first part, each once."""
    return dict.fromkeys(spoken(_HEAD_END.split(title)[0])[-_NAME_WORDS:])


def _stem(word: str) -> str:
    return term_of(word) or word


def _price(shop: Shop, want: Want, row: int) -> str:
    # The page shows both ends of a price range, but not the price that will be charged.
    return "ok" if shop.product(row).prices[0] <= want.limit else "dear"


def _item(shop: Shop, want: Want, page: Page, buttons: dict[str, str]) -> CompactPage:
    wanted, choices = set(want.query), dict(page.options)
    names: dict[str, str] = {}
    values: dict[str, tuple[str, ...]] = {}
    taken: dict[str, str] = {}
    for label, target in shop.layout(page).targets.items():
        if not isinstance(target, tuple):
            continue
        # Names must be unique on a page, and different from buttons, because a click is looked up by name.
        group, name = _plain(target[0]), _free(_plain(label), {*names, *BUTTONS.values()})
        names[name] = label
        if choices.get(target[0]) == target[1]:
            taken[group] = name
        elif target[0] not in choices and not wanted.isdisjoint(name.split()):
            values[group] = (*values.get(group, ()), name)
    groups = dict.fromkeys(_plain(name) for name, _ in shop.product(page.row).options)
    lines = (
        f"; {group} = {taken[group]}" if group in taken else f"; {group} ? {' / '.join(values[group])}"
        for group in groups
        if group in taken or group in values
    )
    listed = tuple(name for group in values.values() for name in group)
    text = " ".join(("item", _price(shop, want, page.row), *lines))
    return CompactPage(text, names | buttons, (*listed, *buttons), values, taken)


def _plain(text: str) -> str:
    """Return the words of a text between blanks; "other" for a text without words."""
    return " ".join(spoken(text)) or "other"


def _free(name: str, taken: Iterable[str]) -> str:
    """Return a free name: the name itself, or the name with a number from 2."""
    # Numbering keeps names unique; it depends only on the order of the page, so a name is stable.
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name} {number}"
    return free


def read_compact(shop: Shop, state: ShopState, text: str) -> ShopAction:
    """Return the shop's action for a text; a click without argument for an unknown name."""
    asked = parse_kindly(text)
    if asked.name != "click" or asked.argument is None:
        return asked
    name = " ".join(asked.argument.lower().split())
    return ShopAction("click", compact_page(shop, state).names.get(name))


def write_compact(shop: Shop, state: ShopState, actions: Iterable[str]) -> list[str]:
    """Return the texts of consecutive actions of the shop on compact pages."""
    texts = []
    for action in actions:
        asked = shop.parse(action)
        own = {label: name for name, label in compact_page(shop, state).names.items()}
        argument = (asked.argument or "").lower()
        texts.append(f"{asked.name} [ {own[argument] if asked.name == 'click' else argument} ]")
        state = follow(shop, state, asked) or state
    return texts


def compact_actions(shop: Shop, state: ShopState) -> tuple[str, ...]:
    """Return the actions shown on a page; on the search page, queries for all wanted words and for fewer."""
    if state.page != "index":
        return compact_page(shop, state).actions
    want = want_of(shop.goal(state).instruction_text)
    queries = dict.fromkeys(" ".join(words) for words in (want.query, want.words) if words)
    return tuple(f"search [ {query} ]" for query in queries)


def vocabulary_of(shop: Shop) -> frozenset[str]:
    """Return the words of instructions, titles and options that compact pages and their queries can contain."""
    words = set(_ANYTHING)
    for number in range(len(shop.goals)):
        want = want_of(shop.goals.goal(number).instruction_text)
        words.update(want.query, *(name.split() for name, _ in want.wishes))
    goods = (shop.product(row) for row in range(len(shop.catalogue)))
    for product in goods:
        words.update(_name(product.title))
        for name, values in product.options:
            words.update(*(_plain(text).split() for text in (name, *values)))
    return frozenset(words)
