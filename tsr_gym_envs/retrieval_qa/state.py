"""The settings that decide an episode of retrieval QA, its state with passages by id, and proxies for its progress."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

from tsr_gym import ConfigError
from tsr_gym_envs.retrieval_qa.grading import Reward
from tsr_gym_envs.retrieval_qa.protocol import Protocol

AnswerMatch = Literal["boundary", "substring", "supporting"]
History = Literal["last", "transcript"]
ObservationMode = Literal["protocol", "compact"]
MAX_TOP_K = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalSettings:
    """The settings of an episode; `RetrievalQAEnv` documents them.

    Questions and passages stand here by their digests, so that a snapshot of other ones is foreign.
    """

    questions: str
    retriever: str
    protocol: Protocol
    reward: Reward
    max_turns: int = 4
    top_k: int = 3
    split: str = "all"
    history: History = "last"
    answer_match: AnswerMatch = "boundary"
    observation_mode: ObservationMode = "protocol"

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("history", self.history, get_args(History)),
            ("answer_match", self.answer_match, get_args(AnswerMatch)),
            ("observation_mode", self.observation_mode, get_args(ObservationMode)),
        ):
            if value not in choices:
                raise ConfigError(f"wanted {name} of {list(choices)}, got {value!r}")
        if self.max_turns < 1:
            raise ConfigError(f"wanted max_turns >= 1, got {self.max_turns}")
        if not 1 <= self.top_k <= MAX_TOP_K:
            raise ConfigError(f"wanted top_k from 1 to {MAX_TOP_K}, got {self.top_k}")


class RetrievalTurn(NamedTuple):
    """One turn of an episode.

    Attributes:
        text: What the agent wrote, up to where the protocol stops reading.
        kind: Its action; ``"late"`` is a search in the last turn, which is not carried out.
        queries: The queries of a search.
        passages: Ids of the passages that it was shown, in their order.
    """

    text: str
    kind: Literal["search", "answer", "invalid", "late"]
    queries: tuple[str, ...] = ()
    passages: tuple[str, ...] = ()


class RetrievalState(NamedTuple):
    """The state of an episode.

    Attributes:
        question: The question's number in its file.
        turns: The turns so far; their number is the number of the turn.
        answer: The final answer; None until it is given.
        answer_turn: The first turn, counted from 1, whose passages hold a golden answer (t* of TSPO's FOLR, arXiv
            2601.22776); None before that turn.
        found: Ids of the supporting passages that were shown so far, in the order of the question's.
    """

    question: int
    turns: tuple[RetrievalTurn, ...] = ()
    answer: str | None = None
    answer_turn: int | None = None
    found: tuple[str, ...] = ()


def first_occurrence(state: RetrievalState, *, alpha: float) -> float:
    """Return alpha once a passage with a golden answer was shown, 0 before (after TSPO's FOLR, arXiv 2601.22776).

    FOLR gives alpha to the turns up to that one where the final answer is wrong. Uses the golden answers.
    """
    return 0.0 if state.answer_turn is None else alpha


def supporting_coverage(state: RetrievalState, supporting: Sequence[str]) -> float:
    """Return the share of the supporting passages that were shown; 0 where none is known. Uses their ids."""
    return len(state.found) / len(supporting) if supporting else 0.0


def search_promise(question: str, queries: Sequence[str], new: Sequence[str], read: Sequence[str]) -> float:
    """Return the share of the question in the new passages, times the share of the query that is grounded.

    Novelty is that only passages count that were not shown before; overlap is the share of the question's words in
    them. The second factor is the share of the query's words that stand in the question or in passages read before.
    Words are analysed as the index analyses them. Uses no label.

    Args:
        question: The question.
        queries: The queries of the turn.
        new: The texts of the passages that this turn showed for the first time.
        read: The texts of the passages of earlier turns.
    """
    asked, query = words(question), words(" ".join(queries))
    seen = asked.union(*map(words, read))
    return _share(asked, frozenset().union(*map(words, new))) * _share(query, seen)


def answer_promise(question: str, answer: str, read: Sequence[str]) -> float:
    """Return the share of the answer in the passages read, times that of the question; uses no label."""
    seen = frozenset().union(*map(words, read))
    return _share(words(answer), seen) * _share(words(question), seen)


# Passages are read again at every later turn, and in every branch.
@lru_cache(maxsize=8192)
def words(text: str) -> frozenset[str]:
    """Return the words of a text, stemmed and without stop words."""
    # Imported here, so that importing the scorers does not load the analyser's libraries.
    from tsr_gym_envs.lucene_bm25 import analyse

    return frozenset(analyse(text))


def _share(part: frozenset[str], whole: frozenset[str]) -> float:
    return len(part & whole) / len(part) if part else 0.0
