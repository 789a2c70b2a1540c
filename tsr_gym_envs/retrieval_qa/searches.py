"""Searches: a retriever's passages as an agent reads them; each query is retrieved once and then remembered."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from tsr_gym import RetrievalFailed
from tsr_gym.text_env import MAX_TEXT
from tsr_gym_envs.retrieval_qa.contract import Passage, Retriever
from tsr_gym_envs.retrieval_qa.grading import Match, contains_answer
from tsr_gym_envs.retrieval_qa.protocol import NOTHING, Protocol, plain_passage, show

# An engine never sees more of a query; encoders read less, and no sensible query is as long.
MAX_QUERY = 2_000


class Found(NamedTuple):
    """The result of a search, as the agent sees it.

    Attributes:
        ids: Ids of the passages, in the order shown.
        titles: Their titles.
        observation: What the agent reads.
        documents: Title and text of each passage, cut as in the observation.
    """

    ids: tuple[str, ...]
    titles: tuple[str, ...]
    observation: str
    documents: tuple[str, ...]


class Searches:
    """A retriever behind a memory that an environment shares with its clones.

    Retrieval is a pure function of query, k and the retriever's digest. So a remembered result is never out of date,
    and states hold ids only. A failure is not remembered.

    Args:
        retriever: Where passages come from.
        protocol: How they are written.
        top_k: Passages per query.
        max_remembered: Searches that are remembered, those used least recently forgotten first.
        compact: Whether passages are shown in plain words.
    """

    def __init__(
        self, retriever: Retriever, protocol: Protocol, top_k: int, max_remembered: int, *, compact: bool = False
    ) -> None:
        self.retriever = retriever
        self._compact = compact
        self._protocol = protocol
        self._top_k = top_k
        self.find = lru_cache(maxsize=max_remembered)(self._find)
        self.holds_answer = lru_cache(maxsize=max_remembered)(self._holds_answer)

    def _find(self, queries: tuple[str, ...]) -> Found:
        # One call for all queries; blank ones are left out, because they match nothing.
        asked = [_clean(query) for query in queries]
        hits = iter(self._retrieve([query for query in asked if query]))
        per_query = [next(hits) if query else [] for query in asked]
        if self._compact:
            per_query = [[plain_passage(passage) for passage in passages] for passages in per_query]
        shown = show(per_query, self._protocol, MAX_TEXT)
        if self._compact and not shown.observation:
            shown = shown._replace(observation=NOTHING)
        passages = [passage for hits in per_query for passage in hits]
        return Found(tuple(passage.id for passage in passages), tuple(passage.title for passage in passages), *shown)

    def _retrieve(self, queries: Sequence[str]) -> list[list[Passage]]:
        if not queries:
            return []
        hits = self.retriever.retrieve(queries, self._top_k)
        if len(hits) != len(queries):
            raise RetrievalFailed(f"wanted passages for {len(queries)} queries, got {len(hits)} lists of them")
        return [list(passages[: self._top_k]) for passages in hits]

    def _holds_answer(self, queries: tuple[str, ...], golds: tuple[str, ...], match: Match) -> bool:
        return any(contains_answer(document, golds, match=match) for document in self.find(queries).documents)


def _clean(query: str) -> str:
    """Return a query that any engine can take: of bounded length, and without halves of characters."""
    return query[:MAX_QUERY].encode("utf-8", "replace").decode("utf-8").strip()
