"""The contents of a page: its visible texts in the original's order, its clickable names, and its form as text.

A page's instruction is left out, so that pages of different goals are equal values and can be cached.
"""

import json
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple

from tsr_gym_envs.webshop.catalogue.product import Product
from tsr_gym_envs.webshop.state import PageKind, ShopAction, option_labels

Role = Literal["text", "button", "product", "option", "chosen"]

# Stands for all searches among the actions of a page with a search bar.
SEARCH = "search[<keywords>]"
SUB_PAGES = ("Description", "Features", "Reviews", "Attributes")
# Blank space in HTML.
_BLANKS = " \n\t\f\r"
_PRODUCT_FIELDS = ("attrs", "category", "query", "product category")
_TARGET_FIELDS = ("asin", "options", "attrs", "price upper", "instuction text", "category", "product category", "query")


class PageNode(NamedTuple):
    """A visible text.

    Attributes:
        role: "button", "product" (a link to one), "option", "chosen" (the line with the chosen options, shown only
            by the mode ``text_options``) or "text".
        text: The text.
        clicked: The option is chosen, or the product was opened.
    """

    role: Role
    text: str
    clicked: bool = False


class Page(NamedTuple):
    """Everything that determines the contents of a page, except for the instruction.

    Attributes:
        kind: Kind of the page.
        rows: The listed products.
        opened: Those of them that were opened before.
        number: Number of the page of results.
        total: Number of products that the query finds.
        has_next: Whether the page has a button to a next page of results.
        row: The open or bought product, -1 without one.
        options: Chosen (name, value) pairs.
        marks: A text in which a chosen option stands between double quotes; None if `options` holds the choice.
        sub: Name of the sub page.
        reward: Reward of the purchase.
    """

    kind: PageKind
    rows: tuple[int, ...] = ()
    opened: tuple[int, ...] = ()
    number: int = 1
    total: int = 0
    has_next: bool = False
    row: int = -1
    options: tuple[tuple[str, str], ...] = ()
    marks: str | None = None
    sub: str = ""
    reward: float = 0.0


# The target of a click: a catalogue row, or the (name, value) pair of an option; None for buttons.
Target = int | tuple[str, str] | None


class Layout(NamedTuple):
    """The layout of a page.

    Attributes:
        nodes: The visible texts, except for those of `head`.
        targets: The clickable names, in lower case and in the original's order: buttons, products, options.
        actions: The valid actions. A few options have names that no action can contain.
    """

    nodes: tuple[PageNode, ...]
    targets: dict[str, Target]
    actions: tuple[str, ...]


def shown(text: str) -> str | None:
    """Return a text as a browser's text node contains it; None without a text node.

    Blank space alone becomes a single blank, or no node if it contains a line end.
    """
    if text.strip(_BLANKS):
        return text
    return " " if text and "\n" not in text else None


def _texts(*texts: str) -> list[PageNode]:
    return [PageNode("text", seen) for text in texts if (seen := shown(text)) is not None]


def _buttons(*names: str) -> list[PageNode]:
    return [PageNode("button", name) for name in names]


def head(page: PageKind, instruction: str) -> tuple[PageNode, ...]:
    """Return the texts above the page: name of the shop and instruction."""
    if page == "done":
        return ()
    return tuple(
        _texts("WebShop", "Instruction: ", instruction) if page == "index" else _texts("Instruction:", instruction)
    )


def lay_out(
    page: Page,
    product_of: Callable[[int], Product],
    parse: Callable[[str], ShopAction],
    *,
    show_attrs: bool,
    unique: bool,
) -> Layout:
    """Return the layout of a page.

    Args:
        page: The page.
        product_of: A function from a catalogue row to its product.
        parse: The parser of an agent's text.
        show_attrs: Whether products have a sub page of attributes.
        unique: See `option_labels`.
    """
    nodes: list[PageNode] = []
    targets: dict[str, Target] = {}
    if page.kind == "index":
        nodes = _buttons("Search")
    elif page.kind == "search_results":
        nodes = _results(page, product_of)
        targets = {product_of(row).asin.lower(): row for row in page.rows}
    elif page.kind == "item_page":
        product = product_of(page.row)
        nodes = _item(page, product, show_attrs=show_attrs, unique=unique)
        targets = {
            label: (name, value) for name, pairs in option_labels(product, unique=unique) for label, value in pairs
        }
    elif page.kind == "item_sub_page":
        nodes = _sub(page, product_of(page.row))
    else:
        nodes = _texts(*done_texts(page, product_of(page.row)))
    # Buttons come first in the dict and so win over an option with the same name, as in the original.
    buttons: dict[str, Target] = {node.text.lower(): None for node in nodes if node.role == "button"}
    targets = buttons | targets
    # Some names contain brackets or line ends, and their click would be parsed as another action.
    clicks = [text for name in targets if parse(text := f"click[{name}]") == ("click", name)]
    return Layout(tuple(nodes), targets, (SEARCH,) if page.kind == "index" else tuple(clicks))


def _results(page: Page, product_of: Callable[[int], Product]) -> list[PageNode]:
    nodes = _buttons("Back to Search") + _texts(f"Page {page.number} (Total results: {page.total})")
    nodes += _buttons("< Prev") if page.number > 1 else []
    nodes += _buttons("Next >") if page.has_next else []
    for row in page.rows:
        product = product_of(row)
        nodes.append(PageNode("product", product.asin, row in page.opened))
        nodes += _texts(product.title, product.price_text)
    return nodes


def _item(page: Page, product: Product, *, show_attrs: bool, unique: bool) -> list[PageNode]:
    nodes = _buttons("Back to Search", "< Prev")
    for name, pairs in option_labels(product, unique=unique):
        nodes += _texts(name)
        for label, value in pairs:
            if (seen := shown(label)) is not None:
                is_chosen = f'"{seen}"' in page.marks if page.marks is not None else (name, value) in page.options
                nodes.append(PageNode("option", seen, is_chosen))
    nodes += _texts(product.title, f"Price: {product.price_text}", "Rating: N.A.")
    return nodes + _buttons(*SUB_PAGES[: 4 if show_attrs else 3], "Buy Now") + _chosen(page, product)


def _sub(page: Page, product: Product) -> list[PageNode]:
    return _buttons("Back to Search", "< Prev") + _texts(*sub_texts(page.sub, product)) + _chosen(page, product)


def sub_texts(sub: str, product: Product) -> tuple[str, ...]:
    """Return the paragraphs of a sub page; the page of reviews is always empty."""
    if sub == "Description":
        return (product.description,)
    if sub == "Features":
        return tuple(f" {bullet}" for bullet in product.bullets)
    if sub == "Attributes":
        attributes = (f" {attribute}" for attribute in product.attributes)
        return (*attributes, product.category, product.query, product.product_category)
    return ()


def chosen_text(page: Page, product: Product) -> str:
    """Return a line with the choice in each of a product's option groups; "" without groups."""
    values_by_name = dict(page.options)
    choices = "; ".join(f"{name}: {values_by_name.get(name, 'nothing yet')}" for name, _ in product.options)
    return f"You have chosen {choices}" if choices else ""


def _chosen(page: Page, product: Product) -> list[PageNode]:
    text = chosen_text(page, product)
    return [PageNode("chosen", text)] if text else []


def done_texts(page: Page, product: Product) -> tuple[str, ...]:
    """Return the texts of the page after the purchase, which in the original was made for paid participants."""
    fields = (text for name in _PRODUCT_FIELDS for text in (name, "None"))
    return (
        "Thank you for shopping with us!",
        *("Your code: ", "None", " (Paste it in your MTurk interface.)"),
        *("Purchased", "asin", product.asin, "options", options_json(page.options), *fields),
        *("Target", *_TARGET_FIELDS, "Goal ", "None"),
        *("Reward", "Your score (min 0.0, max 1.0)", str(page.reward), "Reward Details ", "None"),
    )


def options_json(options: tuple[tuple[str, str], ...]) -> str:
    r"""Return the chosen options as Flask writes them into a page.

    >>> options_json((("size", "5 < 6"), ("color", "red")))
    '{"color": "red", "size": "5 \\u003c 6"}'
    """
    # Flask's JSON filter sorts the keys and escapes the characters that HTML treats specially.
    text = json.dumps(dict(options), sort_keys=True)
    for sign in "<>&'":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


SEPARATOR = " [SEP] "


class Text(NamedTuple):
    """Part of a page as text; `front` goes before the whole page."""

    front: str
    rest: str


def plain(nodes: Iterable[PageNode]) -> Text:
    """Return the original's ``text``, which does not show the chosen options."""
    return Text("", SEPARATOR.join(node.text.strip() for node in nodes if node.role != "chosen"))


def rich(nodes: Iterable[PageNode]) -> Text:
    """Return the original's ``text_rich``: a line for each text, buttons marked."""
    # Each chosen option adds a line above the whole page, the last option first, as in the original's ``text_rich``.
    front, lines = "", []
    for role, text, clicked in nodes:
        if role == "text":
            lines.append(text)
        elif role != "chosen":
            button = "clicked button" if clicked else "button"
            indent = {"option": "  ", "product": "\n"}.get(role, "")
            lines.append(f"{indent}[{button}] {text} [{button}_]")
            if role == "option" and clicked:
                front = f"You have clicked {text}.\n{front}"
    return Text(front, "".join(f"{line}\n" for line in lines))


# By mode: the function that writes a part of a page, and the separator of parts.
MODES: dict[str, tuple[Callable[[Iterable[PageNode]], Text], str]] = {
    "text": (plain, SEPARATOR),
    "text_options": ((lambda nodes: Text("", SEPARATOR.join(node.text.strip() for node in nodes))), SEPARATOR),
    "rich": (rich, ""),
}


def join(mode: str, head: Text, body: Text) -> str:
    """Return the text of a page from the texts above it and its body."""
    between = MODES[mode][1] if head.rest else ""
    return f"{body.front}{head.rest}{between}{body.rest}"
