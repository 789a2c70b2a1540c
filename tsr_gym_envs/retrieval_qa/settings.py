"""What decides an episode of retrieval QA: protocol, reward, limits, and which questions and passages there are."""

from dataclasses import dataclass
from typing import Literal, get_args

from tsr_gym import ConfigError
from tsr_gym_envs.retrieval_qa.protocol import Protocol
from tsr_gym_envs.retrieval_qa.reward import Reward

AnswerMatch = Literal["boundary", "substring", "supporting"]
History = Literal["last", "transcript"]
ObservationMode = Literal["protocol", "compact"]
MAX_TOP_K = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalSettings:
    """What decides an episode; `RetrievalQAEnv` documents it.

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
        for name, value, known in (
            ("history", self.history, get_args(History)),
            ("answer_match", self.answer_match, get_args(AnswerMatch)),
            ("observation_mode", self.observation_mode, get_args(ObservationMode)),
        ):
            if value not in known:
                raise ConfigError(f"wanted {name} of {list(known)}, got {value!r}")
        if self.max_turns < 1:
            raise ConfigError(f"wanted max_turns >= 1, got {self.max_turns}")
        if not 1 <= self.top_k <= MAX_TOP_K:
            raise ConfigError(f"wanted top_k from 1 to {MAX_TOP_K}, got {self.top_k}")
