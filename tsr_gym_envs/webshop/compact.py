"""The shop in a few words, for very small models: pages of lower-case words between blanks, short names to click.

A page says of each product what its title shares with the instruction, and lists only the options that share a word
with it. Nothing is added to what the other modes show, and every action is one of the shop's own under another name.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from tsr_gym_envs.lucene_bm25.analysis import term_of
from tsr_gym_envs.webshop.pages import Page
from tsr_gym_envs.webshop.rules import follow, page_of
from tsr_gym_envs.webshop.score import read_instruction, spoken
from tsr_gym_envs.webshop.shop import Shop
from tsr_gym_envs.webshop.state import ShopAction, ShopState, parse_kindly

# What buttons are called here.
BUTTONS = {"buy now": "buy", "back to search": "back", "< prev": "prev", "next >": "next"}
# What begins all that a title adds to the name of a product.
_HEAD_END = re.compile(r"\s[-–|]\s|[,;|(:]")
# How many words of a title are shown that the instruction does not have, and among how many at the end of the name:
# names of brands stand before them, and there are as many of these as products.
_NUM_OTHERS, _NAME_WORDS = 2, 4
_ANYTHING = ("product",)


class Want(NamedTuple):
    """What an instruction asks for, in plain words.

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
        """The words by which to search: all that is wanted, each once; any word where nothing is."""
        wished = (word for _, value in self.wishes for word in value.split())
        return tuple(dict.fromkeys((*self.words, *wished))) or _ANYTHING


class CompactPage(NamedTuple):
    """A page in a few words.

    Attributes:
        text: What is shown.
        names: What can be clicked, and what the shop's own page calls it; also options that are not listed.
        shown: The names that can be read off the page.
        values: The names of the listed options by their group, for groups in which nothing is chosen.
        chosen: The name of what is chosen in a group.
        unopened: The names of products that were not opened yet: affordable ones first, of these those first whose
            titles share a word with the instruction.
    """

    text: str
    names: Mapping[str, str] = MappingProxyType({})
    shown: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    chosen: Mapping[str, str] = MappingProxyType({})
    unopened: tuple[str, ...] = ()

    @property
    def actions(self) -> tuple[str, ...]:
        """The texts by which an agent acts on the page, as far as they can be read off it."""
        return tuple(f"click [ {name} ]" for name in self.shown)


@lru_cache(maxsize=4096)
def want_of(instruction: str) -> Want:
    """Return what an instruction asks for.

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
    """Return the page on which a shopper stands."""
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


class _Row(NamedTuple):
    """What a listed product says: words of the instruction in its title, what else it is called, and ok or dear."""

    shared: tuple[str, ...]
    others: tuple[str, ...]
    price: str

    @property
    def text(self) -> str:
        return " ".join((*self.shared, *((",", *self.others) if self.others else ()), "|", self.price))


def _results(shop: Shop, want: Want, page: Page, buttons: dict[str, str]) -> CompactPage:
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
    # Words are compared by their stems and shown as the instruction has them, so that they can be recognised.
    title, wanted = shop.product(row).title, {_stem(word): word for word in want.words}
    shared = dict.fromkeys(wanted[stem] for word in spoken(title) if (stem := _stem(word)) in wanted)
    return _Row(tuple(shared), _others(title, frozenset(wanted)), _price(shop, want, row))


def _others(title: str, stems: frozenset[str]) -> tuple[str, ...]:
    """Return the last words of a product's name that are not wanted: what it is stands at the end.

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
    # The page shows both ends of a range; what it will cost, it does not say.
    return "ok" if shop.product(row).prices[0] <= want.limit else "dear"


def _item(shop: Shop, want: Want, page: Page, buttons: dict[str, str]) -> CompactPage:
    wanted, chosen = set(want.query), dict(page.options)
    names: dict[str, str] = {}
    values: dict[str, tuple[str, ...]] = {}
    taken: dict[str, str] = {}
    for label, target in shop.layout(page).targets.items():
        if not isinstance(target, tuple):
            continue
        group, name = _plain(target[0]), _free(_plain(label), {*names, *BUTTONS.values()})
        names[name] = label
        if chosen.get(target[0]) == target[1]:
            taken[group] = name
        elif target[0] not in chosen and not wanted.isdisjoint(name.split()):
            values[group] = (*values.get(group, ()), name)
    groups = dict.fromkeys(_plain(name) for name, _ in shop.product(page.row).options)
    said = (
        f"; {group} = {taken[group]}" if group in taken else f"; {group} ? {' / '.join(values[group])}"
        for group in groups
        if group in taken or group in values
    )
    listed = tuple(name for found in values.values() for name in found)
    text = " ".join(("item", _price(shop, want, page.row), *said))
    return CompactPage(text, names | buttons, (*listed, *buttons), values, taken)


def _plain(text: str) -> str:
    """Return a text as words between blanks; one without any word has a name, too."""
    return " ".join(spoken(text)) or "other"


def _free(name: str, taken: Iterable[str]) -> str:
    """Return a name that is not taken, numbered from 2 where it is."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name} {number}"
    return free


def read_compact(shop: Shop, state: ShopState, text: str) -> ShopAction:
    """Return the shop's own action that a text asks for; a click without argument where nothing is called so."""
    asked = parse_kindly(text)
    if asked.name != "click" or asked.argument is None:
        return asked
    name = " ".join(asked.argument.lower().split())
    return ShopAction("click", compact_page(shop, state).names.get(name))


def write_compact(shop: Shop, state: ShopState, actions: Iterable[str]) -> list[str]:
    """Return what the shop's own actions, one after the other, are called on compact pages."""
    said = []
    for action in actions:
        asked = shop.parse(action)
        own = {label: name for name, label in compact_page(shop, state).names.items()}
        argument = (asked.argument or "").lower()
        said.append(f"{asked.name} [ {own[argument] if asked.name == 'click' else argument} ]")
        state = follow(shop, state, asked) or state
    return said


def compact_actions(shop: Shop, state: ShopState) -> tuple[str, ...]:
    """Return every action that can be read off a page; on the search page, all that is wanted as a query, and less."""
    if state.page != "index":
        return compact_page(shop, state).actions
    want = want_of(shop.goal(state).instruction_text)
    queries = dict.fromkeys(" ".join(words) for words in (want.query, want.words) if words)
    return tuple(f"search [ {query} ]" for query in queries)


def vocabulary_of(shop: Shop) -> frozenset[str]:
    """Return every word of instructions, titles and options that a compact page or a query made of it may say."""
    found = set(_ANYTHING)
    for number in range(len(shop.goals)):
        want = want_of(shop.goals.goal(number).instruction_text)
        found.update(want.query, *(name.split() for name, _ in want.wishes))
    goods = (shop.product(row) for row in range(len(shop.catalogue)))
    for product in goods:
        found.update(_name(product.title))
        for name, values in product.options:
            found.update(*(_plain(text).split() for text in (name, *values)))
    return frozenset(found)
