"""LegalPolicy: uniformly random among what means something in a state, for environments of any kind of text."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tsr_gym.agents.policies.chat_policy import sample_seeds
from tsr_gym.state_env import episode_of
from tsr_gym.text_env import TextEnv
from tsr_gym.tree import Candidate, Expand, Tree


class LegalPolicy:
    """Answer every wish with random actions that are legal at its node.

    Every number of actions that a turn may hold is equally likely, then every action; where nothing is legal, or a turn
    may hold any number of actions, a turn has one at most.

    Args:
        base: The environment, without its wrappers.
    """

    def __init__(self, base: TextEnv[Any]) -> None:
        self.base = base
        self.form = "{}" if base.reads_tags else "<think></think><answer>{}</answer>"
        self.max_actions = 1 if base.separator is None else base.limits.max_actions_per_turn or 1

    def __call__(self, requests: Sequence[tuple[Tree, Expand]]) -> list[list[Candidate]]:
        """Return random candidates for every wish, in order."""
        answers = []
        for (tree, wish), seeds in zip(requests, sample_seeds(requests), strict=True):
            names = self.base.legal_actions(episode_of(tree.nodes[wish.node].snapshot).state)
            answers.append([self._candidate(names, seed) for seed in seeds])
        return answers

    def _candidate(self, names: Sequence[str], seed: int) -> Candidate:
        rng = np.random.default_rng(seed)
        picks = rng.integers(len(names), size=rng.integers(1, self.max_actions + 1)) if names else ()
        return Candidate(self.form.format(f" {self.base.separator} ".join(names[pick] for pick in picks)))
