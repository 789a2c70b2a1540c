"""Raters without a model: votes of siblings, the environment's own score, weighted sums; and raters by name."""

import inspect
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

from tsr_gym.agents.raters.critic_value import CriticValue
from tsr_gym.codec import encode
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import bind, choose
from tsr_gym.tree import Node, Rater, Tree

if TYPE_CHECKING:
    from tsr_gym.agents.models.critic import Critic
    from tsr_gym.agents.policies.chat_policy import ChatPolicy


def choose_rater(text: str) -> "partial[Any]":
    """Return the class or function that makes the rater of a text; see `make_rater`.

    The model and the critic of a run are not known yet, so they are left open as None.

    Raises:
        ConfigError: There is no such rater, or it does not take these keywords.
    """
    offered = {"chat": None, "critic": None}
    return choose(text, home="tsr_gym.agents.raters", what="rater", takes=0, offered=offered, among=inspect.isclass)


def make_rater(text: str, *, chat: "ChatPolicy | None" = None, critic: "Critic | None" = None) -> Rater:
    """Return the rater that a text names, such as ``"SelfConsistency()"``.

    Args:
        text: A class, or a function that makes a rater, see `tsr_gym.keywords.choose`; bare names are those of
            `tsr_gym.agents.raters`.
        chat: The model as a policy, given to raters that take an argument of this name.
        critic: A run's own critic, given to raters that take an argument of this name and are given none in the text.

    Raises:
        ConfigError: There is no such rater, it does not take these keywords, or it needs a model that is missing.
    """
    bound = bind(text, choose_rater).bound
    own = {"chat": chat, "critic": critic}
    try:
        rater: Rater = bound(**{name: own[name] for name in own if bound.keywords.get(name, ...) is None})
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the rater {text!r} cannot be made: {error}") from error
    if not callable(rater):
        raise ConfigError(f"wanted a rater, {text!r} made a {type(rater).__name__}")
    return rater


class WeightedRater:
    """Score a node by a weighted sum of the scores of several raters.

    Args:
        parts: Rater and weight by name; a rater may be text, as for `make_rater`.
        standardise: Whether each part is brought to mean 0 and standard deviation 1 among the nodes of the same tree
            that grew in the same round; a part with equal scores counts 0. Only differences within a round are left
            then, which suits a beam, and searches whose paths grow at different times badly.
        chat: The model as a policy, for parts that are text and read the model's prompts.
        critic: A run's own critic, for parts that are text and name no other.

    Raises:
        ConfigError: There are no parts, or one of them is no rater.
    """

    def __init__(
        self,
        parts: Mapping[str, tuple[Rater | str, float]],
        *,
        standardise: bool = False,
        chat: Any = None,
        critic: Any = None,
    ) -> None:
        if not parts:
            raise ConfigError("wanted at least one part of the rating, got none")
        self.weights = {name: float(weight) for name, (_, weight) in parts.items()}
        self.raters: dict[str, Rater] = {
            name: make_rater(rater, chat=chat, critic=critic) if isinstance(rater, str) else rater
            for name, (rater, _) in parts.items()
        }
        self.standardise = standardise

    def __call__(self, grown: Sequence[tuple[Tree, int]]) -> list[float]:
        """Return the sums."""
        scores = self.parts(grown)
        return [sum(weight * scores[name][i] for name, weight in self.weights.items()) for i in range(len(grown))]

    def parts(self, grown: Sequence[tuple[Tree, int]]) -> dict[str, list[float]]:
        """Return the scores of each part for each node, before weighting."""
        scores = {name: list(rater(grown)) for name, rater in self.raters.items()}
        if not self.standardise:
            return scores
        trees = [id(tree) for tree, _ in grown]
        return {name: _standardised(values, trees) for name, values in scores.items()}


def goes_by(rater: Rater | None, critic: "Critic | None") -> bool:
    """Return whether a rater, or a part of one, asks this critic."""
    if isinstance(rater, WeightedRater):
        return any(goes_by(part, critic) for part in rater.raters.values())
    return isinstance(rater, CriticValue) and rater.critic is critic


class OwnScore:
    """Score a node as it was when it grew: by the environment's scorer, or by the reward without one."""

    def __call__(self, grown: Sequence[tuple[Tree, int]]) -> list[float]:
        """Return the nodes' own scores."""
        return [tree.nodes[node].score for tree, node in grown]


def _standardised(values: Sequence[float], trees: Sequence[int]) -> list[float]:
    of_tree: dict[int, list[float]] = {}
    for value, tree in zip(values, trees, strict=True):
        of_tree.setdefault(tree, []).append(value)
    centre = {tree: fmean(scores) for tree, scores in of_tree.items()}
    # `pstdev` of equal numbers is not always exactly 0, and would then blow their differences of 0 up to noise.
    spread = {tree: pstdev(scores) if max(scores) > min(scores) else 0.0 for tree, scores in of_tree.items()}
    return [
        (value - centre[tree]) / spread[tree] if spread[tree] else 0.0
        for value, tree in zip(values, trees, strict=True)
    ]


def vote_of(node: Node) -> Hashable | None:
    """Return the key by which a turn votes; None for a turn without meaning, which has no vote.

    The answer where the environment names one (``info["answer"]``, without regard to case and blanks), else the actions
    that were carried out, else the action itself.
    """
    answer = node.info.get("answer")
    if isinstance(answer, str):
        return "answer", " ".join(answer.casefold().split())
    if "executed" in node.info:
        return tuple(node.info["executed"]) or None
    action = node.candidate.text
    return action if isinstance(action, Hashable) else encode(action)


class SelfConsistency:
    """Score a node by the share of its parent's candidates that have the same key.

    Self-consistency (arXiv 2203.11171) takes the majority among sampled answers; here it is a majority turn by turn. It
    needs no label and no other model, and several candidates per node: a single one always agrees with itself. Where
    scores add up along a path, the shares add up.

    Args:
        key: Key of a node: nodes with equal keys agree; None has no vote and gets 0.
    """

    def __init__(self, key: Callable[[Node], Hashable | None] = vote_of) -> None:
        self.key = key

    def __call__(self, grown: Sequence[tuple[Tree, int]]) -> list[float]:
        """Return the share of each node's siblings, itself included, that have its key."""
        votes: dict[tuple[int, int], Counter[Hashable | None]] = {}
        shares = []
        for tree, index in grown:
            node = tree.nodes[index]
            if node.parent is None:
                raise ValueError("the first node of a tree has no siblings: wanted nodes that grew")
            siblings = tree.children(node.parent)
            place = (id(tree), node.parent)
            if place not in votes:
                votes[place] = Counter(self.key(tree.nodes[sibling]) for sibling in siblings)
            key = self.key(node)
            shares.append(0.0 if key is None else votes[place][key] / len(siblings))
        return shares
