"""Proposals: what a language model would do where somebody else plays."""

from collections.abc import Sequence
from dataclasses import replace
from math import exp
from typing import Any, NamedTuple

from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.text_env import TextEnv
from tsr_gym.tree import Candidate, Expand, Node, Tree
from tsr_gym.wrappers import AnswerFormat


class Proposal(NamedTuple):
    """A turn that a model would take.

    Attributes:
        action: What it would do; empty where its answers had not the wanted form.
        times: In how many of the samples.
        probability: Of the likeliest of these answers, all tokens together.
    """

    action: str
    times: int
    probability: float


class Proposer:
    """Ask a model for its turns.

    Args:
        player: The model at play.
        base: The environment, for its rules and its form of answers.
        temperature: Of sampling.
    """

    def __init__(self, player: ModelPlayer, base: TextEnv[Any], temperature: float = 1.0) -> None:
        self._chat = player.chat_about(base, temperature=temperature)
        self._plain = base.reads_tags
        self._think = player.think

    def __call__(self, path: Sequence[Node], *, seed: int, samples: int) -> list[Proposal]:
        """Return the turns that the model would take next, the most frequent first, then the likeliest.

        Args:
            path: From the first node to here; what was said in it are bare actions.
            seed: Of the samples.
            samples: How many to draw.

        Raises:
            PromptTooLong: The episode outgrew the model's context.
        """
        tree = Tree(seed=seed)
        for index, node in enumerate(path):
            parent = None if index == 0 else index - 1
            tree.add(replace(node, parent=parent, candidate=Candidate(self._said(node.candidate.text))))
        (candidates,) = self._chat([(tree, Expand(len(path) - 1, samples))])
        found: dict[str, list[float]] = {}
        for candidate in candidates:
            found.setdefault(self._action(candidate.text), []).append(exp(sum(candidate.logprobs)))
        proposals = [Proposal(action, len(all_of), max(all_of)) for action, all_of in found.items()]
        return sorted(proposals, key=lambda one: (-one.times, -one.probability, one.action))

    def _said(self, action: str) -> str:
        """Return an action as the model would have said it."""
        if self._plain:
            return action
        return f"{'<think></think>' if self._think else ''}<answer>{action}</answer>"

    def _action(self, text: str) -> str:
        return text if self._plain else AnswerFormat.parse(text, think=self._think) or ""
