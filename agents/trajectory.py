"""Trajectories and groups: what a search hands to learning, as plain data without torch.

Tokens are exactly those that were sampled; rewards, never scores, are what a trajectory is worth.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import pstdev

from tsr_gym.tree import Quantity, Tree


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of the model and what it earned.

    Attributes:
        prompt_ids: Token ids that the model saw.
        token_ids: Token ids that it said.
        logprobs: Log-probability of each under the distribution it was sampled from.
        reward: Reward of the turn, penalties included.
        is_valid: Whether the answer had the wanted form and meant something.
        num_actions: Actions that were carried out.
    """

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    reward: float
    is_valid: bool
    num_actions: int


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One episode.

    Attributes:
        turns: In order.
        success: Whether the task was solved.
        score: What the search thought of it.
        selected_by: How it came to be: ``"naive"`` for plain play, else the search that chose it.
    """

    turns: tuple[Turn, ...]
    success: bool
    score: float
    selected_by: str

    @property
    def total_reward(self) -> float:
        """The return R: the sum of the turns' rewards (TSR Eq. 1)."""
        return float(sum(turn.reward for turn in self.turns))

    @property
    def num_tokens(self) -> int:
        """How many tokens the model said."""
        return sum(len(turn.token_ids) for turn in self.turns)


@dataclass(frozen=True, slots=True)
class Group:
    """The trajectories of one task instance.

    Attributes:
        task: Seed of the instance.
        trajectories: In a fixed order.
    """

    task: int
    trajectories: tuple[Trajectory, ...]

    @property
    def uncertainty(self) -> float:
        """The standard deviation of the returns (TSR Eq. 10), over the group as a whole population."""
        return pstdev([trajectory.total_reward for trajectory in self.trajectories])

    @property
    def has_mixed_success(self) -> bool:
        """Whether some trajectories solved the task and some did not."""
        return len({trajectory.success for trajectory in self.trajectories}) == 2


def harvest(tree: Tree, keep: int = 1, *, by: Quantity | None = None, selected_by: str = "naive") -> list[Trajectory]:
    """Return the best finished episodes of a tree, best first.

    Args:
        tree: A grown tree; unfinished paths are not episodes and are left out.
        keep: How many at most.
        by: ``"reward"`` ranks by return (best-of-N, TSR Eq. 7), ``"score"`` by summed score; None by the tree's merit.
        selected_by: What the trajectories remember of how they were chosen.
    """
    ends = [leaf for leaf in tree.leaves() if tree.nodes[leaf].done]
    return [trajectory_to(tree, leaf, selected_by=selected_by) for leaf in tree.best(ends, keep, by)]


def harvest_all(tree: Tree) -> list[Trajectory]:
    """Return every finished episode of a tree in the order of its branches: plain play, nothing chosen."""
    return [trajectory_to(tree, leaf, selected_by="naive") for leaf in tree.leaves() if tree.nodes[leaf].done]


def trajectory_to(tree: Tree, leaf: int, *, selected_by: str) -> Trajectory:
    """Return the episode that ends at a leaf."""
    nodes = [tree.nodes[index] for index in tree.path(leaf)[1:]]
    turns = tuple(
        Turn(
            prompt_ids=node.candidate.prompt_ids,
            token_ids=node.candidate.token_ids,
            logprobs=node.candidate.logprobs,
            reward=node.reward,
            is_valid=bool(node.info.get("action_is_valid", True)),
            num_actions=len(node.info.get("executed", ())),
        )
        for node in nodes
    )
    success = bool(nodes and nodes[-1].terminated and nodes[-1].info.get("success", False))
    return Trajectory(turns, success, tree.merit(leaf), selected_by)


def success_rate(trajectories: Sequence[Trajectory]) -> float:
    """Return the share of trajectories that solved their task; 0 for none."""
    return sum(trajectory.success for trajectory in trajectories) / max(len(trajectories), 1)
