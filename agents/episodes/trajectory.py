"""Trajectories and groups: the data that a search hands to learning, without torch; and moves and advantages of trees.

Tokens are exactly those that were sampled; rewards, never scores, make up the return of a trajectory.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from math import isfinite
from statistics import pstdev
from typing import Any, NamedTuple

from tsr_gym.tree import Node, Quantity, Tree


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of the model and what it earned.

    Attributes:
        prompt_ids: Token ids of the prompt.
        token_ids: Token ids of the answer.
        logprobs: Log-probability of each under the distribution it was sampled from.
        reward: Reward of the turn, penalties included.
        is_valid: Whether the answer had the wanted form and meant something.
        num_actions: Actions that were carried out.
        node: Index of the node that it led to in its tree; -1 where there is no tree. Trajectories of one tree that
            share a node share that turn, which was sampled once.
        state: Key of the state in which it was taken (`StateEnv.state_key`); None without one.
        score: What the search's guide thought of it.
        observation: What the environment answered.
        action: The executed action, see `action_of`; None without one.
        golden_answers: Texts that answer the task, where the environment knows them (``info["golden_answers"]``).
        weight_version: Version of the weights that it was sampled by; None where versions are not counted.
    """

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    reward: float
    is_valid: bool
    num_actions: int
    node: int = -1
    state: bytes | None = None
    score: float = 0.0
    observation: Any = None
    action: Hashable = None
    golden_answers: tuple[str, ...] = ()
    weight_version: int | None = None


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One episode.

    Attributes:
        turns: In order.
        success: Whether the task was solved.
        score: What the search thought of it.
        selected_by: How it came to be: ``"naive"`` for plain play, else the search that chose it, or where it branched.
        tree: Which tree of its group it comes from, from 0.
        finished: Whether the episode ended; False for a branch that the search left.
        counts: Weight of the trajectory in a loss.
        selected_for: What its search went by: ``"reward"``, or the scorer or rater as configured, and ``"dead ends"``
            where it left these out; empty for plain play.
        expansions: Expansions of its search, those of a node that was sampled again included; 0 for plain play.
    """

    turns: tuple[Turn, ...]
    success: bool
    score: float
    selected_by: str
    tree: int = 0
    finished: bool = True
    counts: float = 1.0
    selected_for: str = ""
    expansions: int = 0

    @property
    def total_reward(self) -> float:
        """The return R: the sum of the turns' rewards (TSR Eq. 1)."""
        return float(sum(turn.reward for turn in self.turns))

    @property
    def num_tokens(self) -> int:
        """Number of tokens that the model sampled."""
        return sum(len(turn.token_ids) for turn in self.turns)

    @property
    def weight_versions(self) -> frozenset[int]:
        """The versions of the weights of its turns: one within a round; empty where versions are not counted."""
        return frozenset(turn.weight_version for turn in self.turns if turn.weight_version is not None)


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
    def has_success(self) -> bool:
        """Whether some trajectory solved the task."""
        return any(trajectory.success for trajectory in self.trajectories)

    @property
    def has_mixed_success(self) -> bool:
        """Whether some trajectories solved the task and some did not."""
        return len({trajectory.success for trajectory in self.trajectories}) == 2


def harvest(
    tree: Tree, keep: int = 1, *, by: Quantity | None = None, selected_by: str = "naive", number: int = 0
) -> list[Trajectory]:
    """Return the best episodes of a tree, best first.

    Where the last search chose paths (`Tree.chosen`) and `by` is None, these come first, in its order.

    Args:
        tree: A grown tree; paths that could continue are not episodes and are left out. One that stopped at a proven
            dead end comes after all others, because its return lacks the cost of the failure. `to_the_end` plays such
            paths to their ends.
        keep: How many at most.
        by: ``"reward"`` ranks by return (best-of-N, TSR Eq. 7), ``"score"`` by summed score; None by the tree's merit.
        selected_by: What the trajectories remember of how they were chosen.
        number: Which tree of its group this is.
    """
    # Paths that the strategy selected come first, in its order; the others follow by merit, dead ends last.
    ends = _ends(tree)
    selected = [leaf for leaf in tree.chosen if leaf in ends] if by is None else []
    others = [leaf for leaf in ends if leaf not in selected]
    rest = sorted(tree.best(others, len(others), by), key=lambda leaf: not tree.nodes[leaf].done)
    return [trajectory_to(tree, leaf, selected_by=selected_by, number=number) for leaf in [*selected, *rest][:keep]]


def harvest_all(tree: Tree, *, selected_by: str = "naive", number: int = 0) -> list[Trajectory]:
    """Return every episode of a tree in the order of its branches: nothing was chosen.

    Args:
        tree: A grown tree.
        selected_by: What the trajectories remember. Only independent episodes from the root are plain play: where a
            strategy chose the nodes at which to continue, the leaves are no samples of the policy and have its name.
        number: Which tree of its group this is.
    """
    return [trajectory_to(tree, leaf, selected_by=selected_by, number=number) for leaf in _ends(tree)]


def harvest_leaves(tree: Tree, *, selected_by: str = "tree", number: int = 0) -> list[Trajectory]:
    """Return the path to every leaf of a tree, rejected branches too: every sampled candidate lies on one of them.

    Args:
        tree: A grown tree.
        selected_by: What the trajectories remember; the way to a leaf was chosen even where the leaf was not.
        number: Which tree of its group this is.
    """
    leaves = [leaf for leaf in tree.leaves() if leaf != tree.root]
    return [trajectory_to(tree, leaf, selected_by=selected_by, number=number) for leaf in leaves]


def trajectory_to(tree: Tree, leaf: int, *, selected_by: str, number: int = 0) -> Trajectory:
    """Return the path from the root of a tree to a node as an episode."""
    # The root has no turn: a trajectory of n turns is a path of n + 1 nodes.
    path = tree.path(leaf)
    turns = tuple(_turn(tree, before, after) for before, after in pairwise(path))
    end = tree.nodes[leaf]
    # A search can begin at a state that is solved; a path without a turn did not solve it.
    return Trajectory(turns, bool(turns) and end.solved, tree.merit(leaf), selected_by, number, end.done)


def _ends(tree: Tree) -> list[int]:
    return [leaf for leaf in tree.leaves() if not tree.nodes[leaf].is_open]


def _turn(tree: Tree, before: int, after: int) -> Turn:
    node = tree.nodes[after]
    return Turn(
        prompt_ids=node.candidate.prompt_ids,
        token_ids=node.candidate.token_ids,
        logprobs=node.candidate.logprobs,
        reward=node.reward,
        is_valid=bool(node.info.get("action_is_valid", True)),
        num_actions=len(_listed(node, "executed")),
        node=after,
        state=tree.nodes[before].state_key,
        score=node.score,
        observation=node.observation,
        action=action_of(node),
        golden_answers=_listed(node, "golden_answers"),
        weight_version=node.candidate.weight_version,
    )


def _listed(node: Node, name: str) -> tuple[Any, ...]:
    """Return a list among the facts of a turn; () where an environment of others means something else by the name."""
    values = node.info.get(name)
    return tuple(values) if isinstance(values, list | tuple) else ()


def action_of(node: Node) -> Hashable:
    """Return the executed action that led to a node; answers in other words with the same effect have the same one.

    It is the answer itself where the environment does not report ``info["executed"]``; None where that has no hash.
    """
    action = node.info.get("executed", node.candidate.text)
    return action if isinstance(action, Hashable) else None


def success_rate(trajectories: Sequence[Trajectory]) -> float:
    """Return the share of trajectories that solved their task; 0 for none."""
    return sum(trajectory.success for trajectory in trajectories) / max(len(trajectories), 1)


NAME = "advantages"


class Learned(NamedTuple):
    """The advantages of the turns of a tree, as training used them.

    Attributes:
        estimator: Name of the estimator.
        of: By node, one number per sampled token of the turn that led to it; 0 where it carried no policy gradient.
            A turn that trajectories share has their mean. Nodes that were not learned from are missing.
    """

    estimator: str
    of: Mapping[int, tuple[float, ...]]


def keep_learned(tree: Tree, learned: Learned) -> None:
    """Write advantages into the facts of a tree, and so into its file."""
    of = {str(node): [round(advantage, 6) for advantage in tokens] for node, tokens in sorted(learned.of.items())}
    tree.about[NAME] = {"estimator": learned.estimator, "of": of}


def learned_from(tree: Tree) -> Learned:
    """Return the advantages that a tree keeps; empty ones where its facts have none, or have another form."""
    # The facts come from a file, which may be of another version or edited by hand, so every part is checked.
    facts = tree.about.get(NAME)
    of = facts.get("of") if isinstance(facts, Mapping) else None
    if not isinstance(facts, Mapping) or not isinstance(of, Mapping):
        return Learned("", {})
    nodes = {str(index): index for index in range(len(tree.nodes))}
    by_node = {nodes[name]: tuple(tokens) for name, tokens in of.items() if name in nodes and _are_numbers(tokens)}
    return Learned(str(facts.get("estimator", "")), by_node)


def _are_numbers(values: object) -> bool:
    return isinstance(values, Sequence) and all(type(value) in (int, float) and isfinite(value) for value in values)


class Edge(NamedTuple):
    """A move from a state, as it was tried once.

    Attributes:
        state: Key of the state in which it was made (`StateEnv.state_key`).
        action: What was carried out.
        after: Key of the state that it led to; None without one.
        actions: How many actions it took.
        solved: Whether it solved the task.
        ended: Whether nothing can follow: the task or a limit ended the episode, or the task is proven lost. A move
            that did not end the episode and was not continued leads to an unknown state.
    """

    state: bytes
    action: Hashable
    after: bytes | None
    actions: int
    solved: bool
    ended: bool


def harvest_edges(trees: Iterable[Tree]) -> list[Edge]:
    """Return every move that some trees tried, rejected candidates too, in the order in which they grew.

    Moves from states without a key are left out, because they are in no graph.
    """
    return [edge for tree in trees for edge in _edges_of(tree)]


def _edges_of(tree: Tree) -> Iterator[Edge]:
    for index in sorted(tree.below()):
        node = tree.nodes[index]
        state = None if node.parent is None else tree.nodes[node.parent].state_key
        if state is not None and index != tree.root:
            actions = len(_listed(node, "executed"))
            yield Edge(state, action_of(node), node.state_key, actions, node.solved, not node.is_open)


def edges_along(trajectories: Sequence[Trajectory]) -> list[Edge]:
    """Return the moves of some trajectories of one task, for where there are no trees; a shared turn counts once."""
    edges: dict[tuple[int, ...], Edge] = {}
    for number, trajectory in enumerate(trajectories):
        for place, (turn, then) in enumerate(zip_longest(trajectory.turns, trajectory.turns[1:])):
            if turn.state is None or turn.action is None:
                continue
            # Without a node a turn is identified by its place, because nothing shows whether two are the same.
            key = (trajectory.tree, turn.node) if turn.node >= 0 else (-1, number, place)
            after, last = (None, True) if then is None else (then.state, False)
            solved, ended = last and trajectory.success, last and trajectory.finished
            edges.setdefault(key, Edge(turn.state, turn.action, after, turn.num_actions, solved, ended))
    return list(edges.values())
