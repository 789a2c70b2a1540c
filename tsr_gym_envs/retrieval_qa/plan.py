"""Searches as an agent reads them, each retrieved once and then remembered, and sensible turns.

Sensible turns are those of a plain reader and those of a question's decomposition.
"""

import re
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from tsr_gym import RetrievalFailed
from tsr_gym.text_env import MAX_TEXT
from tsr_gym_envs.retrieval_qa.contract import Passage, Question, Retriever
from tsr_gym_envs.retrieval_qa.grading import Match, contains_answer, exact_match
from tsr_gym_envs.retrieval_qa.protocol import NOTHING, Protocol, parse, plain_passage, show, write_answer, write_search

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

    def __reduce__(self) -> tuple[Any, ...]:
        # Without what is remembered, which is found again.
        arguments = (self.retriever, self._protocol, self._top_k, self.find.cache_parameters()["maxsize"])
        return partial(Searches, compact=self._compact), arguments

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


_NAME = re.compile(r"[A-Z][\w'’.-]*(?:\s+(?:(?:of|the|and|de|von|van|in)\s+)*[A-Z0-9][\w'’.-]*)*")
_REFERENCE = re.compile(r"#(\d+)")


@lru_cache(maxsize=4096)
def sensible_turns(question: str, titles: tuple[str, ...], protocol: Protocol) -> tuple[str, ...]:
    """Return searches for the question, for the names in it and for the titles, and answers that are a title.

    Without titles the answers are yes and no.
    """
    # A first word alone is no name: it is "Who" or "Which".
    names = [match[0].rstrip(".'’-") for match in _NAME.finditer(question) if match.start() or " " in match[0]]
    queries = dict.fromkeys(query for query in (question, *names, *titles) if query)
    answers = dict.fromkeys(title for title in titles if title) or ("yes", "no")
    return (
        *(write_search(query, protocol) for query in queries),
        *(write_answer(answer, protocol) for answer in answers),
    )


def queries_of(question: Question) -> tuple[str, ...]:
    """Return the queries of a question's decomposition, with references such as ``#1`` to earlier answers filled in."""

    def answer(reference: re.Match[str]) -> str:
        number = int(reference[1])
        return question.steps[number - 1][1] if 0 < number <= len(question.steps) else reference[0]

    return tuple(_REFERENCE.sub(answer, query).strip() for query, _ in question.steps)


def next_turn(
    question: Question,
    asked: Collection[str],
    protocol: Protocol,
    *,
    may_search: bool,
    structured: bool,
    same: Callable[[str], str] = str,
) -> str | None:
    """Return the next turn of a question's decomposition.

    Args:
        question: The question.
        asked: Queries that were already searched for.
        protocol: How turns are written.
        may_search: Whether a later turn is left in which to answer.
        structured: Whether a thought must come first.
        same: Maps a query to the text by which two queries are compared.

    Returns:
        A search for the first query that is missing, else the golden answer; None without a decomposition.
    """
    if not question.steps:
        return None
    missing = [query for query in queries_of(question) if same(query) not in asked]
    action = (
        write_search(missing[0], protocol)
        if missing and may_search
        else write_answer(question.golden_answers[0], protocol)
    )
    if not structured:
        return action
    thought = f"I look for: {missing[0]}" if missing and may_search else "I know the answer."
    return f"<{protocol.think_tag}>{thought}</{protocol.think_tag}>\n{action}"


# Maps the titles that were read last to the turns of random play.
Turns = Callable[[tuple[str, ...]], tuple[str, ...]]


def random_success(question: Question, searches: Searches, turns: Turns, protocol: Protocol, num_turns: int) -> float:
    """Return the probability that uniformly drawn turns end in a golden answer.

    ``V_n(q) = mean_a V(q, a)``: an answer is worth 1 or 0, a search for q' is worth ``V_{n-1}(q')``, and 0 in the last
    turn, which never searches.

    Args:
        question: The question.
        searches: The remembered searches.
        turns: Maps the titles read last to the turns of random play.
        protocol: How turns are read.
        num_turns: Turns of an episode.
    """
    # The turns on offer depend on the question and the titles read last alone, so a search leads back to few states.
    values: dict[tuple[tuple[str, ...], int], float] = {}

    def value(titles: tuple[str, ...], left: int) -> float:
        key = (titles, left)
        if key not in values:
            offered = turns(titles)
            values[key] = sum(worth(turn, left) for turn in offered) / len(offered)
        return values[key]

    def worth(turn: str, left: int) -> float:
        action = parse(turn, protocol)
        if action.kind == "answer":
            return float(exact_match(action.answer, question.golden_answers))
        return value(searches.find(action.queries).titles, left - 1) if left > 1 else 0.0

    return value((), num_turns)
