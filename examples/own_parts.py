"""Policy, strategy and scorer of your own, on any Gymnasium environment: CartPole, with a search before every turn.

python -m examples.own_parts
"""

from collections.abc import Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from tsr_gym.seeds import derive_seed
from tsr_gym.tree import Candidate, Expand, Tree
from tsr_gym.wrappers import ScoreWrapper, TreeSearchWrapper


class Upright(ScoreWrapper[Any]):
    """Score the state that a turn reached: the straighter the pole and the nearer to the middle, the better."""

    score_of = "state"

    def score(self, before: Any, action: Any, after: Any, reward: float) -> float:
        place, _, angle, _ = after
        return -abs(float(angle)) - 0.05 * abs(float(place))


def random_pushes(requests: Sequence[tuple[Tree, Expand]]) -> list[list[Candidate]]:
    """Answer every wish with pushes to either side, drawn by the tree's seed and the node's address."""
    answers = []
    for tree, wish in requests:
        rng = np.random.default_rng(derive_seed(tree.seed, "pushes", *tree.branch(wish.node)))
        answers.append([Candidate(int(push)) for push in rng.integers(2, size=wish.samples)])
    return answers


def look_ahead(tree: Tree, *, width: int = 4, turns: int = 4) -> Iterator[list[Expand]]:
    """Keep the best few paths for some turns, and choose the best end."""
    kept = [tree.root]
    for _ in range(turns):
        kept = [node for node in kept if tree.nodes[node].is_open]
        if not kept:
            break
        yield [Expand(node, width) for node in kept]
        grown = [child for node in kept for child in tree.children(node)]
        kept = tree.best(grown, width)
    return kept[:1]


def turns_played(search: bool, seed: int = 0, most: int = 60) -> int:
    """Return how many turns an episode lasts, at most so many."""
    env = TreeSearchWrapper(Upright(gym.make("CartPole-v1", max_episode_steps=most)))
    env.reset(seed=seed)
    strategy = look_ahead if search else lambda tree: look_ahead(tree, width=1, turns=1)
    return len(env.rollout(random_pushes, strategy).played) - 1


if __name__ == "__main__":
    print(f"random pushes: {turns_played(search=False)} turns; with a search: {turns_played(search=True)} turns")
