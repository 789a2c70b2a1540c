"""Passage: one piece of a corpus, as a search returns it."""

from typing import NamedTuple


class Passage(NamedTuple):
    """A passage and how well it matched the query.

    Attributes:
        id: The passage's name in its corpus.
        title: Title without quotation marks; "" where the corpus has none.
        text: The passage without its title.
        score: The retriever's score; higher is better.
    """

    id: str
    title: str
    text: str
    score: float = 0.0

    @property
    def contents(self) -> str:
        r"""Title and text in one string, ``'"Title"\ntext'``, as Search-R1's corpora hold them."""
        return f'"{self.title}"\n{self.text}'
