"""The settings that decide an episode of retrieval QA, and its state: small, immutable, with passages by id."""

from dataclasses import dataclass
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
