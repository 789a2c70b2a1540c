"""Pages: what an environment shows to a model, laid out for people who read it in a terminal."""

import re
import textwrap
from collections.abc import Collection

WIDTH = 100
_INFORMATION = re.compile(r"<information>(.*?)</information>", re.DOTALL)
_PASSAGE = re.compile(r'^Doc (\d+)\(Title: "?(.*?)"?\) (.*)$', re.DOTALL)
# The id of a product, as a button; and a price, which stands behind a title.
_PRODUCT = re.compile(r"\[B0[A-Z0-9]{8}\]")
_PRICE = re.compile(r" \[SEP\] (\$\d)")


def readable(text: str, *, asked: str = "", buttons: Collection[str] = ()) -> str:
    """Return an observation as a page: passages with their titles, parts of a shop's page as lines, others as they are.

    Args:
        text: What the environment showed.
        asked: The question, which stands above passages.
        buttons: What can be clicked, in small letters; it stands in brackets.
    """
    if _INFORMATION.search(text):
        return "\n\n".join(filter(None, [textwrap.fill(asked, WIDTH), *_passages(text)]))
    return _shop_page(text, buttons) if " [SEP] " in text else text


def _passages(text: str) -> list[str]:
    parts = _INFORMATION.split(text)
    blocks: list[str] = []
    for number, part in enumerate(parts):
        inside = re.split(r"\n(?=Doc \d+\()", part) if number % 2 else [part]
        blocks += [_passage(one.strip()) for one in inside if one.strip()]
    return blocks


def _passage(text: str) -> str:
    found = _PASSAGE.match(text)
    if found is None:
        return textwrap.fill(text, WIDTH)
    number, title, body = found.groups()
    return f"[{number}] {title}\n{textwrap.fill(body, WIDTH, initial_indent='    ', subsequent_indent='    ')}"


def _shop_page(text: str, buttons: Collection[str]) -> str:
    """Return a page with a line per part; neighbouring buttons share lines."""
    lines: list[str] = []
    row: list[str] = []
    for part in _PRICE.sub(r" \1", text).split(" [SEP] "):
        if part.strip().lower() in buttons:
            row.append(f"[{part.strip()}]")
        elif part.strip():
            # A product's title stands behind its id.
            own = row.pop() if row and _PRODUCT.fullmatch(row[-1]) else ""
            lines += _row(row)
            row = []
            lines += textwrap.wrap(f"{own} {part.strip()}".strip(), WIDTH, subsequent_indent="  ")
    return "\n".join([*lines, *_row(row)])


def _row(names: list[str]) -> list[str]:
    # Blanks inside a name are no place to break it.
    lines = textwrap.wrap(" ".join(name.replace(" ", "\u00a0") for name in names), WIDTH, break_on_hyphens=False)
    return [line.replace("\u00a0", " ") for line in lines]
