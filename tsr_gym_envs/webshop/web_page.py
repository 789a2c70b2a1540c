"""The shop as web pages, and web pages as text.

People shop in the pages of the templates. `nodes_of` derives the text modes from a page; `rules.page_text` gives the
same text faster, without templates.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jinja2
from bs4 import BeautifulSoup
from bs4.element import Comment, NavigableString, Tag

from tsr_gym_envs.webshop.catalogue.product import Product
from tsr_gym_envs.webshop.pages import MODES, SUB_PAGES, Page, PageNode, chosen_text, done_texts, join, shown, sub_texts
from tsr_gym_envs.webshop.rules import BASE_URL, click, page_of, url
from tsr_gym_envs.webshop.shop import Shop
from tsr_gym_envs.webshop.state import ShopState, option_labels

# Style sheet and pictures.
STATIC = Path(__file__).parent / "html" / "static"
# Number of colours of the boxes that replace pictures; the style sheet has a class for each.
NUM_HUES = 12
_UNSEEN = ("style", "script", "head", "title", "meta", "[document]")


class Links(Protocol):
    """The addresses of a page's links and forms."""

    def home(self) -> str:
        """Return the address of the shop's name at the top."""

    def search(self) -> str:
        """Return the address of searches, which takes the query as ``keywords``."""

    def click(self, name: str) -> str:
        """Return the address of a click; `name` as in `tsr_gym_envs.webshop.rules.click`."""

    def static(self, name: str) -> str:
        """Return the address of a file in the folder ``static``."""


class OriginalLinks:
    """The original's addresses: every link leads to the state that its click leads to.

    Args:
        shop: The shop.
        state: The state of the page.
    """

    def __init__(self, shop: Shop, state: ShopState) -> None:
        self._shop, self._state = shop, state

    def home(self) -> str:
        """Return the address of the search page."""
        return f"{BASE_URL}/{self._state.session}"

    def search(self) -> str:
        """Return the address of the search page, where the original sends searches."""
        return self.home()

    def click(self, name: str) -> str:
        """Return the address of the next page."""
        following = click(self._shop, self._state, name)
        return "" if following is None else url(self._shop, following)

    def static(self, name: str) -> str:
        """Return the address of a file."""
        return f"{BASE_URL}/static/{name}"


class Card(NamedTuple):
    """A product in a list."""

    product: Product
    hue: int
    opened: bool
    href: str


class Chip(NamedTuple):
    """An option that can be chosen."""

    label: str
    chosen: bool
    href: str


class ChipGroup(NamedTuple):
    """A group of options, of which one can be chosen."""

    name: str
    chips: tuple[Chip, ...]


def page_html(
    shop: Shop, state: ShopState, links: Links | None = None, template: str | None = None, **more: Any
) -> str:
    """Return a state's page in HTML.

    Args:
        shop: The shop.
        state: The state.
        links: Addresses of links and forms; None for the original's.
        template: Name of a template that extends the page's template; None for the latter.
        more: Further variables of the template.
    """
    links = links or OriginalLinks(shop, state)
    page = page_of(shop, state)
    context: dict[str, Any] = {"links": links, "kind": page.kind, "page": page, "query": " ".join(state.keywords)}
    context["instruction"] = shop.goal(state).instruction_text
    if page.kind == "search_results":
        context["cards"] = [_card(shop, page, row, links) for row in page.rows]
    elif page.kind != "index":
        context |= _about_product(shop, state, page, links)
    return templates().get_template(template or f"{page.kind}.html").render(context | more)


def _about_product(shop: Shop, state: ShopState, page: Page, links: Links) -> dict[str, Any]:
    """Return the template variables of the pages of a product."""
    product = shop.product(page.row)
    context = {"product": product, "hue": _hue(product), "chosen": chosen_text(page, product)}
    if page.kind == "item_page":
        sub_pages = SUB_PAGES[: 4 if shop.show_attrs else 3]
        return context | {"groups": _groups(shop, page, product, links), "sub_pages": sub_pages}
    if page.kind == "item_sub_page":
        return context | {"texts": [text for text in sub_texts(page.sub, product) if text]}
    return context | {"texts": done_texts(page, product), "parts": shop.purchase(state)}


@lru_cache(maxsize=1)
def templates() -> jinja2.Environment:
    """Return the shop's templates, with automatic escaping."""
    loader = jinja2.PackageLoader("tsr_gym_envs.webshop", "html/templates")
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["initial"] = lambda title: next((letter.upper() for letter in title if letter.isalnum()), "?")
    return environment


def _hue(product: Product) -> int:
    return sum(product.asin.encode()) % NUM_HUES


def _card(shop: Shop, page: Page, row: int, links: Links) -> Card:
    product = shop.product(row)
    return Card(product, _hue(product), row in page.opened, links.click(product.asin.lower()))


def _groups(shop: Shop, page: Page, product: Product, links: Links) -> list[ChipGroup]:
    # The layout decides which options are marked, including the original's defects; its option nodes are in the same
    # order as the chips.
    clicked = iter([node.clicked for node in shop.layout(page).nodes if node.role == "option"])
    return [
        ChipGroup(
            name,
            tuple(Chip(label, next(clicked), links.click(label)) for label, _ in pairs if shown(label) is not None),
        )
        for name, pairs in option_labels(product, unique=shop.repairs.symmetric_options)
    ]


def nodes_of(html: str) -> tuple[PageNode, ...]:
    """Return the texts of a page that are visible to an agent."""
    strings = BeautifulSoup(html, "html.parser").find_all(string=True)
    return tuple(node for string in strings if (node := _node(string)) is not None)


def _node(string: NavigableString) -> PageNode | None:
    parent: Any = string.parent
    # The parser turns blank space with a line end into a single line end; such space only separates tags.
    if isinstance(string, Comment) or parent.name in _UNSEEN or string == "\n" or _is_hidden(parent):
        return None
    return PageNode(parent.get("data-agent", "text"), str(string), parent.has_attr("data-clicked"))


def _is_hidden(tag: Tag) -> bool:
    return any(parent.get("data-agent") == "hidden" for parent in (tag, *tag.parents))


def text_of(html: str, mode: str) -> str:
    """Return a page in HTML as text.

    Args:
        html: The page.
        mode: A key of `MODES`.
    """
    write = MODES[mode][0]
    return join(mode, write(()), write(nodes_of(html)))
