"""Retriever: what an environment asks for passages, whatever engine stands behind it."""

from collections.abc import Sequence
from typing import Protocol

from tsr_gym_envs.retrieval_qa.passage import Passage


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
