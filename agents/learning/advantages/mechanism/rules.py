"""Backup and Contrast: the choices that every group-relative estimator is made of."""

from dataclasses import dataclass, field
from typing import Literal

from tsr_gym.agents.learning.advantages.mechanism.comparison import Centre, Scale

Key = Literal["prompt", "tree", "parent", "siblings", "ancestor", "depth", "turn", "state"]
Unit = Literal["trajectory", "step", "token", "node"]
Baseline = Literal["all", "naive", "per_kind"]
Unfinished = Literal["failure", "return", "score", "value", "skip"]


@dataclass(frozen=True, slots=True)
class Backup:
    """The value of a turn before it is compared.

    Attributes:
        rewards: What every turn starts from. ``"return"``: the return of its trajectory. ``"turn"``: its own reward.
            ``"last"``: the reward of the trajectory's last turn, its outcome.
        before: A contrast that these are put through first, such as leaving one out; None for none.
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
            ``"value"``: the critic's value at its last token, which stands for the last turn's reward and all that is
            to come, in place of that reward. ``"skip"``: it is unknown and takes part in nothing.
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
    """A comparison of units that have the same key.

    Attributes:
        key: What units of one group share: the prompt, the tree, the parent node, the parent node where the roots of a
            prompt's trees are one node (siblings), an ancestor, the depth in a tree, the number of the turn in a
            prompt, or the state that the turn was taken in.
        unit: What counts once: a trajectory, a step (a turn of a trajectory), a token of it, or a node.
        centre: What is subtracted: the mean, the mean of the others (leave one out), or nothing.
        scale: What it is divided by: the standard deviation of the group or nothing.
        ddof: 1 for the deviation of a sample, 0 for that of a population.
        eps: Added to the deviation.
        alone: The advantage of a singleton, whose mean is fitted on no other unit: 0, its value (as in published GRPO
            code), or the advantage of the turn before it, because a turn without alternatives goes on with the last
            choice.
        baseline: Which units the mean is fitted on: all, those of naive trajectories (all, where a group has none), or
            those of searched and of naive trajectories apart. The deviation is that of all, see `compare`.
        ragged: With the key ``"turn"``, what a trajectory without that turn counts as: absent, a 0, or its last value.
        on: Which turns are compared and have an advantage: all, all but the last of each trajectory, or those below
            the ancestor.
        depth: With the key ``"ancestor"``, after how many turns it stands; 0 for the root.
        counted: Which units count where several contrasts are averaged: those that have the key, those that are no
            singletons, or those that differ from some other.
        weight: Factor of the advantage.
        of: The values that are compared.

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
