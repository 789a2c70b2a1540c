"""Backup and Contrast: the choices of which every group-relative estimator is made."""

from dataclasses import dataclass, field
from typing import Literal

from tsr_gym.agents.learning.advantages.mechanism.comparison import Centre, Scale

Key = Literal["prompt", "tree", "parent", "siblings", "ancestor", "depth", "turn", "state"]
Unit = Literal["trajectory", "step", "token", "node"]
Baseline = Literal["all", "naive", "per_kind"]
Unfinished = Literal["failure", "return", "score", "value", "skip"]


@dataclass(frozen=True, slots=True)
class Backup:
    """What a turn is worth before it is compared.

    Attributes:
        rewards: ``"return"``: every turn begins with the return of its trajectory. ``"turn"``: with its own reward.
            ``"last"``: with the reward of the trajectory's last turn, its outcome.
        before: A contrast that these are put through first, such as leaving one out; None for as they are.
        kind: ``"none"``: they stay. ``"return_to_go"``: each turn adds what its trajectory earns later, discounted.
            ``"leaf_mean"``: the mean over all trajectories through its node. ``"child_mean"``: the mean over its
            node's children of their values, down to the leaves. ``"child_softmax"``: the same, children weighted by
            ``exp(by / tau)``.
        gamma: Discount per turn of ``"return_to_go"``.
        by: What weighs children in ``"child_softmax"``: mean surprisal of their tokens, or the search's score.
        tau: Its temperature.
        unfinished: What completes the return of a trajectory that was left unfinished. ``"failure"``: the mean of
            what the failures of its group that went on earned after its last turn, 0 where none did; a branch that was
            left stopped paying for its actions, and would otherwise be worth more than one that went on and failed.
            ``"return"``: nothing. ``"score"``: the score of its last turn, for scores that rate what is to come.
            ``"value"``: the critic's value at its last token. ``"skip"``: it is unknown and takes part in nothing.
    """

    rewards: Literal["return", "turn", "last"] = "return"
    before: "Contrast | None" = None
    kind: Literal["none", "return_to_go", "leaf_mean", "child_mean", "child_softmax"] = "none"
    gamma: float = 1.0
    by: Literal["surprisal", "score"] = "surprisal"
    tau: float = 1.0
    unfinished: Unfinished = "failure"


@dataclass(frozen=True, slots=True)
class Contrast:
    """Who is compared with whom, and how.

    Attributes:
        key: Those of one prompt, of one tree, with the same parent node, the same with the roots of a prompt's trees as
            one node (siblings), below the same ancestor, at the same depth of a tree, at the same turn of a prompt, or
            taken in the same state.
        unit: What counts once: a trajectory, a step (a turn of a trajectory), a token of it, or a node.
        centre: What is subtracted: the mean, the mean of the others (leave one out), or nothing.
        scale: What it is divided by: the standard deviation or nothing.
        ddof: 1 for the deviation of a sample, 0 for that of a population.
        eps: Added to the deviation.
        alone: What a unit with nobody to be compared with has: 0, its raw value (as published GRPO code), or the
            advantage of the turn before it, because a turn without alternatives goes on with the last choice.
        baseline: On whom mean and deviation are fitted: on all, on the naive trajectories (on all, where a group has
            none), or on the searched and on the naive ones apart.
        ragged: With key ``"turn"``, what a trajectory without that turn is: not there, a 0, or its last value.
        on: Which turns are compared and receive an advantage: all, all but the last of each trajectory, or those below
            the ancestor.
        depth: With key ``"ancestor"``, after how many turns it stands; 0 for the root.
        counted: Which units count where several contrasts are averaged: those that have the key, those that were
            compared with somebody, or those with somebody who differs.
        weight: Factor of the advantage.
        of: What is compared.

    Raises:
        ValueError: The choices contradict each other.
    """

    key: Key = "prompt"
    unit: Unit = "trajectory"
    centre: Centre = "mean"
    scale: Scale = "none"
    ddof: int = 1
    eps: float = 1e-6
    alone: Literal["zero", "raw", "inherit"] = "zero"
    baseline: Baseline = "all"
    ragged: Literal["present", "zero", "last"] = "present"
    on: Literal["all", "not_last", "below"] = "all"
    depth: int = 0
    counted: Literal["present", "compared", "varied"] = "compared"
    weight: float = 1.0
    of: Backup = field(default_factory=Backup)

    def __post_init__(self) -> None:
        if self.unit == "trajectory" and (self.of.kind != "none" or self.of.rewards == "turn"):
            raise ValueError(
                "a trajectory as a whole has a return or an outcome: wanted unit 'step' for values of turns"
            )
        if self.unit == "trajectory" and self.key not in ("prompt", "tree", "ancestor"):
            raise ValueError(f"wanted unit 'step', 'token' or 'node' with the key {self.key!r}, which differs by turn")
        if self.unit == "node" and self.of.kind in ("none", "return_to_go"):
            raise ValueError(
                "a node has a value only after a backup: wanted 'leaf_mean', 'child_mean', 'child_softmax'"
            )
        if self.ragged != "present" and (self.key, self.unit) != ("turn", "step"):
            raise ValueError("ragged is a matter of turns: wanted the key 'turn' and the unit 'step'")
