"""What the parts of retrieval QA exchange: questions, passages, and the interface of a retriever."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Question(NamedTuple):
    """One question with its answers.

    Attributes:
        id: The question's name, unique within its data source.
        data_source: The data set that it comes from, such as ``"hotpotqa"``.
        question: The question itself.
        golden_answers: Texts that count as right answers; at least one.
        supporting: Ids of the passages that together hold the answer; () where unknown.
        split: ``"train"``, ``"dev"`` or ``"test"`` as published; "" where the data set has none.
        hops: How many passages must be combined; None where unknown.
        steps: The decomposition, a (query or sub-question, answer) per step; () where unknown.
    """

    id: str
    data_source: str
    question: str
    golden_answers: tuple[str, ...]
    supporting: tuple[str, ...] = ()
    split: str = ""
    hops: int | None = None
    steps: tuple[tuple[str, str], ...] = ()

    @property
    def group(self) -> tuple[str, str]:
        """The key by which rollouts of this question are grouped; ids repeat across data sources."""
        return self.data_source, self.id


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


class Retriever(Protocol):
    """Anything that finds passages for queries.

    The same query, k and digest always give the same passages: snapshots and caches rely on it.
    """

    @property
    def digest(self) -> str:
        """A name for everything that decides the results: corpus, index, engine and its settings."""
        ...

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return the best `k` passages of each query, best first; fewer only where fewer match.

        Raises:
            RetrievalFailed: The engine could not answer. An empty list always means that nothing matches.
        """
        ...
