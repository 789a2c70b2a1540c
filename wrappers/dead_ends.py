"""DeadEnds: what is proven to be lost is marked, so that a search leaves it alone."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import gymnasium as gym

from tsr_gym.errors import ConfigError
from tsr_gym.optional import load
from tsr_gym.state_env import StateEnv
from tsr_gym.text_env import TextEnv

Proof = Callable[[Any], str | None]


@runtime_checkable
class ProvesDeadEnds(Protocol):
    """An environment that knows why some states are lost, as every `TextEnv` may."""

    def dead_end(self, state: Any) -> str | None:
        """Return why the task can no longer be solved from a state; None where it can be, or where that is unknown."""


@runtime_checkable
class BoundsActions(Protocol):
    """An environment that knows how many actions a solution takes at least."""

    def fewest_actions(self, state: Any) -> int | None:
        """Return a lower bound on the actions that solve the task from a state; None where nothing does."""


class DeadEnds(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    r"""Write the reason into ``info["dead_end"]`` where the task provably cannot be solved any more.

    Nodes of a tree with this entry are not open (`Node.is_open`), and strategies never expand them. Rewards, scores and
    the end of the episode stay as they are. Only proofs count, so no state that could still be won is ever marked;
    states without a proof are searched. A proof is computed from the rules, and the policy alone does not have it:
    results have to report its use.

    It is asked once for every step. FrozenLake looks into a table of the map. So does Sokoban where the board is small
    enough for a table of all its positions, which takes as long as there are positions, once for every room; every
    dead end is then found. On larger boards it asks the rules of deadlock, whose time grows with the cells and the
    pairs of boxes, and where they find nothing it searches on, for at most 3000 positions; `prove` can name
    something cheaper.

    Args:
        env: A `StateEnv` under any wrappers.
        prove: Returns why a state is lost, None where it is not known to be: a function, or ``"package.module:name"``.
            None asks the environment's own `dead_end`.
        limits: Whether states count as lost, too, where the environment's lower bound on the actions that are still
            needed (`fewest_actions`) exceeds what the limits leave.

    Raises:
        ConfigError: The environment proves nothing of the kind.

    >>> import gymnasium as gym, tsr_gym
    >>> level = "######\n#@$ .#\n#    #\n######"
    >>> env = DeadEnds(gym.make("tsr/Sokoban-v0", level=level, max_actions=4), limits=True)
    >>> _ = env.reset(seed=1)
    >>> [env.step(turn)[4].get("dead_end") for turn in ("Down", "Left")]
    [None, 'needs 3 actions of 2']
    """

    def __init__(self, env: gym.Env[Any, Any], prove: Proof | str | None = None, limits: bool = False) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, prove=prove, limits=limits)
        super().__init__(env)
        base: Any = env.unwrapped
        if not isinstance(base, StateEnv):
            raise ConfigError(f"wanted a StateEnv under the wrappers, got a {type(base).__name__}")
        if prove is None and not isinstance(base, ProvesDeadEnds):
            raise ConfigError(f"{type(base).__name__} has no dead_end(state): give a proof as `prove`")
        if limits and not isinstance(base, BoundsActions):
            raise ConfigError(f"{type(base).__name__} has no fewest_actions(state), which limits=True needs")
        self.limits = limits
        self._prove: Any = load(prove) if isinstance(prove, str) else prove

    @property
    def prunes(self) -> str:
        """The kind of marks, for the facts of a tree: ``"dead ends"`` or ``"dead ends within the limits"``."""
        return "dead ends within the limits" if self.limits else "dead ends"

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; its first state may be lost already."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._mark(info)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a turn and mark the new state if it is lost."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        # An ended episode needs no proof, and proofs are the expensive part of this wrapper.
        if not (terminated or truncated):
            self._mark(info)
        return observation, reward, terminated, truncated, info

    def _mark(self, info: dict[str, Any]) -> None:
        base: Any = self.unwrapped
        reason = base.dead_end(base.state) if self._prove is None else self._prove(base.state)
        if reason is None and self.limits:
            reason = self._too_few_actions(base, info)
        if reason is not None:
            info["dead_end"] = str(reason)

    def _too_few_actions(self, base: Any, info: dict[str, Any]) -> str | None:
        needed, left = base.fewest_actions(base.state), _actions_left(base, info)
        if needed is None:
            return "no number of actions is enough"
        return None if left is None or needed <= left else f"needs {needed} actions of {left}"

    def wrapper_state(self) -> None:
        """Return None: the wrapper holds nothing of the episode."""

    def set_wrapper_state(self, state: None) -> None:
        """Do nothing: see `wrapper_state`."""


def _actions_left(base: Any, info: dict[str, Any]) -> int | None:
    """Return the number of actions that the limits of turns and actions still allow, None for no limit."""
    turns, actions = info.get("turns_left"), info.get("actions_left")
    # Only text with a separator can hold several actions per turn.
    per_turn = base.limits.max_actions_per_turn if isinstance(base, TextEnv) and base.separator else 1
    by_turns = None if turns is None or per_turn is None else turns * per_turn
    return min((left for left in (by_turns, actions) if left is not None), default=None)
