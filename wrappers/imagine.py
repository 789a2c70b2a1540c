"""Imagined turns: turns that are tried from a node's state, on dice that are not the episode's own."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from time import perf_counter
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np

from tsr_gym.ranges import finite
from tsr_gym.seeds import derive_seed, numbered_seeds
from tsr_gym.snapshots import Snapshot
from tsr_gym.stack import Noise, Stack
from tsr_gym.state_env import StateEnv
from tsr_gym.tree import Candidate, Node, Tree

Risk = Literal["mean"] | float
# Types of values that cannot be changed.
_FIXED = frozenset((bool, int, float, str, bytes, type(None)))


class ImaginedTurn(NamedTuple):
    """Result of a turn.

    Attributes:
        result: What `step` returned, on the first draw.
        snapshot: Where the stack stood afterwards.
        state_key: Key of the state that the rules depend on; None without one.
        score: Guide of the search, of all draws.
        draws: The score of each draw.
    """

    result: Any
    snapshot: Snapshot
    state_key: bytes | None
    score: float
    draws: tuple[float, ...]


class Imagination:
    """Turns that are tried from one state; the environment stands anywhere afterwards.

    Actions that are tried twice share a step where the outcome could not differ: where the turn drew no random numbers,
    or where both would draw the same ones.

    Args:
        stack: The environment.
        before: The state.
        address: Of the node in that state; the dice of its children derive from it.
        seed: Seed of the tree.
        noise: The dice.
        repeats: Draws on which a turn with a random outcome is tried.
        risk: How the scores of the draws become one: their mean, or a quantile.

    Attributes:
        steps: Steps that were taken.
        seconds: What they took.
    """

    def __init__(
        self,
        stack: Stack,
        before: Snapshot,
        address: tuple[int, ...],
        *,
        seed: int,
        noise: Noise,
        repeats: int,
        risk: Risk,
    ) -> None:
        if noise == "same" and repeats > 1:
            raise ValueError(f'repeats={repeats} needs draws that differ: wanted noise "fresh" or "common"')
        self.steps = 0
        self.seconds = 0.0
        self._stack = stack
        self._base = stack.base
        self._before = before
        self._address = address
        self._seed = seed
        self._noise = noise
        self._repeats = repeats
        self._risk = risk
        self._tried: dict[Any, ImaginedTurn] = {}
        # The seed and the address are hashed once for all children, whose numbers alone differ.
        self._fresh_seed = numbered_seeds(seed, "fresh", *address)

    def turn(self, action: Any, number: int) -> ImaginedTurn:
        """Return the turn that an action leads to.

        Args:
            action: Text, or an action of the space.
            number: Of the child that it would lead to.
        """
        try:
            turn = self._tried.get(action)
        except TypeError:
            # An array, or a tuple with one inside, has no hash.
            return self._try(action, number)[0]
        if turn is not None:
            return turn
        turn, drew_noise = self._try(action, number)
        # With fresh dice a turn that drew numbers would come out otherwise for the next child with this action.
        if self._noise != "fresh" or not drew_noise:
            self._tried[action] = turn
        return turn

    def _try(self, action: Any, number: int) -> tuple[ImaginedTurn, bool]:
        # The first draw is the node's future; the repeats only improve its score.
        result = self._step(action, self._dice(number))
        # This has to come before the snapshot, which reads the random state and so resets the flag.
        drew_noise = not isinstance(self._base, StateEnv) or self._base.drew_noise
        snap, key = self._stack.snapshot(), key_of(self._base)
        first = score_in(result)
        if not drew_noise or self._repeats == 1:
            return ImaginedTurn(result, snap, key, first, (first,)), drew_noise
        # With common noise all siblings are scored on the same draws, so their scores differ only by their actions.
        address = (*self._address, number) if self._noise == "fresh" else self._address
        seeds = [derive_seed(self._seed, "draw", draw, *address) for draw in range(1, self._repeats)]
        draws = (first, *[score_in(self._step(action, seed)) for seed in seeds])
        return ImaginedTurn(result, snap, key, _joined(draws, self._risk), draws), drew_noise

    def _dice(self, number: int) -> int | None:
        if self._noise == "fresh":
            return self._fresh_seed(number)
        # Siblings share common dice, so those derive from the parent's address.
        return None if self._noise == "same" else derive_seed(self._seed, "common", *self._address)

    def _step(self, action: Any, seed: int | None) -> Any:
        self._stack.restore(self._before, seed)
        self.steps += 1
        started = perf_counter()
        result = self._stack.env.step(action)
        self.seconds += perf_counter() - started
        return result


def score_in(result: Any) -> float:
    """Return the score of a turn: that of a scorer, the reward without one.

    Raises:
        NotFinite: The reward or the score is not finite.
    """
    _, reward, _, _, info = result
    paid = finite(reward, "the reward")
    return finite(info["score"], 'info["score"]') if "score" in info else paid


def key_of(base: gym.Env[Any, Any]) -> bytes | None:
    """Return the key of the state that the rules depend on; None for an environment without one."""
    if not isinstance(base, StateEnv):
        return None
    try:
        return base.state_key(base.state)
    except NotImplementedError:
        return None


def _joined(scores: Sequence[float], risk: Risk) -> float:
    return float(np.mean(scores) if isinstance(risk, str) else np.quantile(scores, risk))


def node_of(tree: Tree, parent: int, candidate: Candidate, turn: ImaginedTurn) -> Node:
    """Return the node of a turn from another node of a tree."""
    observation, reward, terminated, truncated, info = turn.result
    # The node's own copies: outer wrappers add to `info`, and users write into arrays.
    info = own_info(info)
    if len(turn.draws) > 1:
        info["score_draws"] = turn.draws
    return Node(
        parent=parent,
        depth=tree.nodes[parent].depth + 1,
        candidate=candidate,
        observation=observation if type(observation) is str else deepcopy(observation),
        reward=float(reward),
        score=turn.score,
        terminated=bool(terminated),
        truncated=bool(truncated),
        info=info,
        snapshot=turn.snapshot,
        state_key=turn.state_key,
    )


def own_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy that shares nothing that can be changed."""
    own = dict(info)
    for name, value in info.items():
        if type(value) not in _FIXED:
            own[name] = _copied(value)
    return own


def _copied(value: Any) -> Any:
    """Return a copy, or the value itself where it is a tuple of values that cannot be changed."""
    return value if type(value) is tuple and _FIXED.issuperset(map(type, value)) else deepcopy(value)
