"""RandomPolicy: uniformly random actions, the bar below which nothing was learned."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tsr_gym.agents.policies.chat_policy import sample_seeds
from tsr_gym.tree import Candidate, Expand, Tree


@dataclass(frozen=True, slots=True)
class RandomPolicy:
    """Answer every wish with random actions in the wanted form.

    Attributes:
        actions: Names to choose from.
        max_actions: Most actions in a turn; every number up to it is equally likely.
        form: Text around the actions, with ``{}`` where they stand.
    """

    actions: tuple[str, ...]
    max_actions: int = 1
    form: str = "<think></think><answer>{}</answer>"

    def __call__(self, requests: Sequence[tuple[Tree, Expand]]) -> list[list[Candidate]]:
        """Return random candidates for every wish, in order."""
        return [[self._candidate(seed) for seed in seeds] for seeds in sample_seeds(requests)]

    def _candidate(self, seed: int) -> Candidate:
        rng = np.random.default_rng(seed)
        picks = rng.integers(len(self.actions), size=rng.integers(1, self.max_actions + 1))
        return Candidate(self.form.format(" || ".join(self.actions[pick] for pick in picks)))
