"""RandomPolicy: uniformly random actions, the bar below which nothing was learned, in environments of any text.

The actions are a fixed list, the legal ones of a state, or those that an environment lists in its info.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tsr_gym.agents.policies.chat_policy import sample_seeds
from tsr_gym.errors import TsrGymError
from tsr_gym.state_env import episode_of
from tsr_gym.text_env import TextEnv
from tsr_gym.tree import Candidate, Expand, Tree

# From a node of a tree to the actions that are legal there.
LegalActions = Callable[[Tree, int], Sequence[str]]


@dataclass(frozen=True, slots=True)
class RandomPolicy:
    """Answer every wish with random actions in the wanted form.

    Every number of actions up to `max_actions` is equally likely, then every action. Without any action to choose the
    answer is empty.

    Attributes:
        actions: Names to choose from, or a function that gives those of a node.
        max_actions: Most actions in a turn.
        form: Text around the actions, with ``{}`` where they stand.
        separator: What stands between two actions.
    """

    actions: Sequence[str] | LegalActions
    max_actions: int = 1
    form: str = "<think></think><answer>{}</answer>"
    separator: str = "||"

    def __call__(self, requests: Sequence[tuple[Tree, Expand]]) -> list[list[Candidate]]:
        """Return random candidates for every wish, in order."""
        answers = []
        for (tree, wish), seeds in zip(requests, sample_seeds(requests), strict=True):
            names = self.actions(tree, wish.node) if callable(self.actions) else self.actions
            answers.append([self._candidate(names, seed) for seed in seeds])
        return answers

    def _candidate(self, names: Sequence[str], seed: int) -> Candidate:
        rng = np.random.default_rng(seed)
        picks = rng.integers(len(names), size=rng.integers(1, self.max_actions + 1)) if names else ()
        return Candidate(self.form.format(f" {self.separator} ".join(names[pick] for pick in picks)))


def legal_player(base: TextEnv[Any]) -> RandomPolicy:
    """Return a random player of what is legal in each state of a `TextEnv`.

    Where a turn may hold any number of actions it has one.
    """
    return RandomPolicy(
        lambda tree, node: base.legal_actions(episode_of(tree.nodes[node].snapshot).state),
        max_actions=1 if base.separator is None else base.limits.max_actions_per_turn or 1,
        form="{}" if base.reads_tags else "<think></think><answer>{}</answer>",
        separator=base.separator or "",
    )


def admissible_player(key: str = "admissible_commands", *, form: str = "{}") -> RandomPolicy:
    """Return a random player of the commands that an environment lists in its info, as TextWorld's do.

    Args:
        key: Where the list stands in ``info``, after a reset as after a step.
        form: Text around the command, such as that of an answer where the environment is wrapped in `AnswerFormat`.

    Raises:
        TsrGymError: When it plays, if a node's info has no list of texts there.
    """

    def listed(tree: Tree, node: int) -> Sequence[str]:
        commands = tree.nodes[node].info.get(key)
        if not isinstance(commands, list | tuple) or not all(isinstance(name, str) for name in commands):
            raise TsrGymError(
                f"wanted a list of commands in info[{key!r}] at node {node}, got {commands!r}; info has "
                f"{sorted(tree.nodes[node].info)}: name the key, and ask the environment for the list"
            )
        return commands

    return RandomPolicy(listed, form=form)
