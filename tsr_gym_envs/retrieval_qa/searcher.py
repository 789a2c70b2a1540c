"""Scripted players of retrieval QA: ceilings and floors beside which a trained agent is measured.

All three know labels, and each says which. None answers with anything that does not stand in passages that it was
shown, except yes and no, which no passage says. They are not agents to learn from without saying so.
"""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple, Protocol

import gymnasium as gym

from tsr_gym_envs.retrieval_qa.answers import contains_answer
from tsr_gym_envs.retrieval_qa.plan import queries_of
from tsr_gym_envs.retrieval_qa.protocol import Protocol as Wire
from tsr_gym_envs.retrieval_qa.protocol import write_answer, write_search
from tsr_gym_envs.retrieval_qa.question import Question
from tsr_gym_envs.retrieval_qa.retriever import Retriever

# What a player answers that has not found anything.
UNKNOWN = "unknown"
_TAG = re.compile(r"</?\w{1,40}>")
_REFERENCE = re.compile(r"#(\d+)")
_UNSAID = frozenset({"yes", "no"})


class Player(Protocol):
    """Plays one episode."""

    def act(self, observation: str, info: Mapping[str, Any]) -> str:
        """Return the text of the next turn."""
        ...


class QuestionResult(NamedTuple):
    """How an episode ended.

    Attributes:
        exact_match: The answer is a golden one.
        answer_seen: A golden answer stood in the passages.
        supporting_recall: Share of the supporting passages that were shown; None where they are unknown.
        searches: Searches carried out.
    """

    exact_match: bool
    answer_seen: bool
    supporting_recall: float | None
    searches: int


class ScriptedSearcher:
    """Follow a question's decomposition, with a perfect reader.

    It knows the queries of the decomposition, and recognises the answer to a step where it stands in a passage that it
    was shown. A reference such as ``#1`` is filled with what was read, never with what was not: then it searches for
    the question instead. It answers once every step's answer was read. So it fails exactly where retrieval does. Of a
    question without a decomposition it knows what `SingleQuery` knows.
    """

    def __init__(self, question: Question, protocol: Wire) -> None:
        self._question, self._protocol = question, protocol
        self._texts: list[str] = []
        self._searches = 0

    def act(self, observation: str, info: Mapping[str, Any]) -> str:
        """Return the text of the next turn."""
        if self._searches:
            self._texts.append(legible(observation))
        question = self._question
        if self._searches < max(1, len(question.steps)) and info["turns_left"] > 1:
            self._searches += 1
            return write_search(next_query(question, self._texts), self._protocol)
        if not question.steps:
            return write_answer(_answer(question, self._texts, info), self._protocol)
        knows_all = None not in answers_read(question, self._texts)
        return write_answer(golden_read(question, self._texts) if knows_all else UNKNOWN, self._protocol)


class _Queries:
    """Carry out given searches, then answer if an answer is there."""

    def __init__(self, question: Question, protocol: Wire, queries: Sequence[str]) -> None:
        self._question, self._protocol, self._queries = question, protocol, tuple(queries)
        self._texts: list[str] = []
        self._searches = 0

    def act(self, observation: str, info: Mapping[str, Any]) -> str:
        """Return the text of the next turn."""
        if self._searches:
            self._texts.append(legible(observation))
        if self._searches < len(self._queries) and info["turns_left"] > 1:
            self._searches += 1
            return write_search(self._queries[self._searches - 1], self._protocol)
        return write_answer(_answer(self._question, self._texts, info), self._protocol)


class SingleQuery(_Queries):
    """Search for the question as it is, once, and answer if an answer is there: an upper bound by labels."""

    def __init__(self, question: Question, protocol: Wire) -> None:
        super().__init__(question, protocol, (question.question,))


class Oracle(_Queries):
    """Carry out the searches of `best_searches` and answer if an answer is there: what k searches can reach at all.

    Args:
        question: The question.
        protocol: How turns are written.
        queries: The searches.
    """


def answers_read(question: Question, texts: Sequence[str]) -> tuple[str | None, ...]:
    """Return the answer of each step where it stands in a text; None where it does not."""
    return tuple(answer if _stands_in(texts, answer) else None for _, answer in question.steps)


def next_query(question: Question, texts: Sequence[str]) -> str:
    """Return what the scripted searcher searches for after having read some observations, one per search."""
    if not question.steps:
        return question.question
    read = answers_read(question, texts)
    query = question.steps[len(texts)][0]
    wanted = {int(number) for number in _REFERENCE.findall(query)} & set(range(1, len(texts) + 1))
    if any(read[number - 1] is None for number in wanted):
        return question.question
    return _REFERENCE.sub(lambda found: read[int(found[1]) - 1] or "" if int(found[1]) in wanted else found[0], query)


def best_searches(
    question: Question, retriever: Retriever, titles: Mapping[str, str], *, max_searches: int, top_k: int
) -> tuple[str, ...]:
    """Return the searches that reach most: a golden answer first, then supporting passages, with as few as possible.

    Every set of candidates is tried: the question, the titles of its supporting passages, and the queries of its
    decomposition with the right answers filled in.

    Args:
        question: The question.
        retriever: What is searched.
        titles: Title of each supporting passage, by id.
        max_searches: Most searches.
        top_k: Passages per search.
    """
    supporting = [titles[name] for name in question.supporting if name in titles]
    candidates = list(dict.fromkeys((question.question, *supporting, *queries_of(question))))
    found = retriever.retrieve(candidates, top_k)
    is_unsaid = _UNSAID.issuperset(question.golden_answers)
    reached = [
        (
            frozenset(passage.id for passage in passages) & frozenset(question.supporting),
            any(contains_answer(passage.contents, question.golden_answers) for passage in passages),
        )
        for passages in found
    ]

    def worth(chosen: tuple[int, ...]) -> tuple[bool, int, int]:
        shown = frozenset().union(*(reached[place][0] for place in chosen))
        is_there = len(shown) == len(set(question.supporting)) if is_unsaid else any(reached[p][1] for p in chosen)
        return is_there, len(shown), -len(chosen)

    sizes = range(1, min(max_searches, len(candidates)) + 1)
    best = max((chosen for size in sizes for chosen in combinations(range(len(candidates)), size)), key=worth)
    return tuple(candidates[place] for place in best)


def play(env: gym.Env[Any, Any], question: Question, player: Player) -> QuestionResult:
    """Return how a player's episode of a question ended."""
    options = {"question_id": question.id, "data_source": question.data_source}
    observation, info = env.reset(seed=0, options=options)
    ended = False
    while not ended:
        observation, _, terminated, truncated, info = env.step(player.act(observation, info))
        ended = terminated or truncated
    return QuestionResult(
        bool(info["exact_match"]), info["answer_turn"] is not None, info["supporting_recall"], int(info["searches"])
    )


def legible(observation: str) -> str:
    """Return an observation without its tags, and with the JSON that some protocols put around the passages read.

    Answers are compared without punctuation, so a tag that stays would grow together with the word beside it.
    """
    text = _TAG.sub(" ", observation)
    start, end = text.find("{"), text.rfind("}")
    try:
        found = json.loads(text[start : end + 1])
    except (ValueError, RecursionError):
        return text
    return str(found["result"]) if isinstance(found, dict) and "result" in found else text


def _answer(question: Question, texts: Sequence[str], info: Mapping[str, Any]) -> str:
    """Return a golden answer that was read; yes or no where all supporting passages were."""
    if _UNSAID.issuperset(question.golden_answers):
        return question.golden_answers[0] if info["supporting_recall"] == 1 else UNKNOWN
    return golden_read(question, texts)


def golden_read(question: Question, texts: Sequence[str]) -> str:
    """Return a golden answer that stands in a text; `UNKNOWN` where none does."""
    return next((gold for gold in question.golden_answers if _stands_in(texts, gold)), UNKNOWN)


def _stands_in(texts: Sequence[str], answer: str) -> bool:
    """Return whether a text holds an answer; yes and no stand nowhere and need not."""
    return answer.lower() in _UNSAID or any(contains_answer(text, answer) for text in texts)
