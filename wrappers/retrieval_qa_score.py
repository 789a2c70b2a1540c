"""RetrievalQAScore: guides for searching with a search engine, with labels and without."""

from typing import Any, Literal, get_args

import gymnasium as gym

from tsr_gym.errors import ConfigError
from tsr_gym.wrappers.score_wrapper import ScoreWrapper
from tsr_gym_envs.retrieval_qa.state import (
    RetrievalState,
    answer_promise,
    first_occurrence,
    search_promise,
    supporting_coverage,
)

Kind = Literal["first_occurrence", "supporting", "novelty"]


class RetrievalQAScore(ScoreWrapper[RetrievalState]):
    """Score a turn of retrieval QA.

    | kind | rates | uses labels | score |
    |---|---|---|---|
    | ``first_occurrence`` | the state | golden answers | `alpha` once a golden answer was shown, 0 before |
    | ``supporting`` | the state | ids of supporting passages | the share of them that was shown |
    | ``novelty`` | the turn | none | new passages that speak of the question, found by words that were read |

    Once the episode is over, the kinds that rate the state give 1 for a right answer and 0 otherwise, so a search that
    is guided by them has seen the labels: for training, and as a ceiling. Results that use them must report it.

    Args:
        env: A retrieval QA environment, under any wrappers.
        kind: Which score.
        alpha: What evidence is worth where the answer is 1, for ``first_occurrence``. The paper's value is not known.

    Raises:
        ConfigError: There is no such kind, or the environment is another one.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        kind: Kind = "first_occurrence",
        alpha: float = 0.5,
    ) -> None:
        if kind not in get_args(Kind):
            raise ConfigError(f"wanted kind of {list(get_args(Kind))}, got {kind!r}")
        # Imported here, so that this module can be imported without the libraries of the environment.
        from tsr_gym_envs.retrieval_qa.env import RetrievalQAEnv

        if not isinstance(env.unwrapped, RetrievalQAEnv):
            raise ConfigError(f"wanted a RetrievalQAEnv under the wrappers, got a {type(env.unwrapped).__name__}")
        super().__init__(env, kind=kind, alpha=alpha)
        self.score_of = "turn" if kind == "novelty" else "state"
        self.kind = kind
        self.alpha = alpha
        self._base: RetrievalQAEnv = env.unwrapped

    def score(self, before: RetrievalState, action: str, after: RetrievalState, reward: float) -> float:
        """Return the score of the kind that was chosen."""
        if self.kind == "novelty":
            return self._novelty(before, after)
        if after.answer is not None or len(after.turns) == self._base.limits.max_turns:
            return float(self._base.is_success(after))
        if self.kind == "supporting":
            return supporting_coverage(after, self._base.question(after).supporting)
        return first_occurrence(after, alpha=self.alpha)

    def _novelty(self, before: RetrievalState, after: RetrievalState) -> float:
        turn, find = after.turns[-1], self._base.searches.find
        question = self._base.question(after).question
        read = [text for past in before.turns if past.kind == "search" for text in find(past.queries).documents]
        if turn.kind == "answer":
            return answer_promise(question, after.answer or "", read)
        if turn.kind != "search":
            return 0.0
        results = find(turn.queries)
        seen = {name for past in before.turns for name in past.passages}
        new = [text for name, text in zip(results.ids, results.documents, strict=True) if name not in seen]
        return search_promise(question, turn.queries, new, read)
