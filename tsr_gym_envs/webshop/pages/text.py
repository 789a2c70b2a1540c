"""Pages as text: the original's two modes, and one that also says which options are chosen."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tsr_gym_envs.webshop.pages.layout import PageNode

SEPARATOR = " [SEP] "


class Text(NamedTuple):
    """Part of a page as text; `front` goes before the whole page."""

    front: str
    rest: str


def plain(nodes: Iterable[PageNode]) -> Text:
    """Return the original's ``text``, in which chosen options cannot be seen."""
    return Text("", SEPARATOR.join(node.text.strip() for node in nodes if node.role != "chosen"))


def with_options(nodes: Iterable[PageNode]) -> Text:
    """Return ``text`` with a line that says which options are chosen."""
    return Text("", SEPARATOR.join(node.text.strip() for node in nodes))


def rich(nodes: Iterable[PageNode]) -> Text:
    """Return the original's ``text_rich``: a line for each text, buttons marked."""
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


# How each mode writes a part of a page, and what it puts between parts.
MODES: dict[str, tuple[Callable[[Iterable[PageNode]], Text], str]] = {
    "text": (plain, SEPARATOR),
    "text_options": (with_options, SEPARATOR),
    "rich": (rich, ""),
}


def join(mode: str, head: Text, body: Text) -> str:
    """Return a page of the texts above it and its own."""
    between = MODES[mode][1] if head.rest else ""
    return f"{body.front}{head.rest}{between}{body.rest}"
