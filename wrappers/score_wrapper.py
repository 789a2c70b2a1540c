"""ScoreWrapper: a guide for search, written into info and never into the reward."""

from typing import Any, Generic, Literal, NamedTuple, TypeVar, get_args, get_origin

import gymnasium as gym

from tsr_gym.errors import ConfigError
from tsr_gym.ranges import finite
from tsr_gym.state_env import StateEnv

StateT = TypeVar("StateT")


class RatedTurn(NamedTuple):
    """Everything that a score may look at.

    Attributes:
        before: State of the unwrapped `StateEnv` before the turn; the observation for other environments.
        action: The action as the environment was given it, tags removed.
        after: The same as `before`, after the turn.
        reward: The turn's reward, penalties included.
        terminated: The task ended with the turn.
        truncated: A limit ended the episode with the turn.
    """

    before: Any
    action: Any
    after: Any
    reward: float
    terminated: bool = False
    truncated: bool = False


class ScoreWrapper(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs, Generic[StateT]):
    """Score every turn for a search (the paper's S, Eq. 5); a subclass writes `score`.

    Args:
        env: The environment.
        settings: What the subclass was constructed with, for the environment's spec.

    Raises:
        ConfigError: The subclass rates the states of one game, such as `ScoreWrapper[FrozenLakeState]`, and the
            environment has those of another.

    Attributes:
        score_of: Whether scores rate a ``"turn"``, so that a path's scores add up, or the ``"state"`` that it reached,
            so that only the last one counts. A score of states looks at `after` alone.
    """

    score_of: Literal["turn", "state"] = "turn"

    def __init__(self, env: gym.Env[Any, Any], **settings: Any) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, **settings)
        super().__init__(env)
        rated, own = state_of(type(self), ScoreWrapper), state_of(type(env.unwrapped), StateEnv)
        if rated is not None and own is not None and not issubclass(own, rated):
            raise ConfigError(
                f"{type(self).__name__} rates a {rated.__name__}, and {type(env.unwrapped).__name__} has a "
                f"{own.__name__}: choose a score of this game, or RewardScore"
            )
        self._last: Any = None

    def score(self, before: StateT, action: Any, after: StateT, reward: float) -> float:
        """Return the score of a turn; a pure function. The arguments are those of `RatedTurn`."""
        raise NotImplementedError

    def rate_turn(self, turn: RatedTurn) -> float:
        """Return the score of a turn; a subclass that cares whether the episode ended with it overrides this."""
        return self.score(turn.before, turn.action, turn.after, turn.reward)

    def rate_state(self, state: StateT) -> float:
        """Return the worth of a state alone: a potential, and the way to mix scores of states and of turns.

        Raises:
            ConfigError: The score rates turns, or it looks at more than the state that a turn reached.
        """
        name = type(self).__name__
        if self.score_of != "state":
            raise ConfigError(f"{name} rates turns, and a state by itself is wanted: use a score of states")
        # A score that looks at the turn fails on None, or turns the NaN of the reward into its result: neither can pass
        # for a score of the state alone.
        nothing: Any = None
        try:
            worth = float(self.score(nothing, None, state, float("nan")))
        except (AttributeError, TypeError) as error:
            raise ConfigError(f"{name} rates states, but cannot rate one without the turn ({error})") from error
        if worth != worth:
            raise ConfigError(f"{name} rates states, but its score depends on the turn's reward")
        return finite(worth, "the score of a state", type(self))

    def facts(self, turn: RatedTurn) -> dict[str, Any]:
        """Return the entries that are added to `info` for a turn.

        Raises:
            NotFinite: The score is not finite.
        """
        return {"score": finite(self.rate_turn(turn), "the score", type(self))}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._last = observation
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a turn and write its score into ``info["score"]``.

        Raises:
            NotFinite: The reward is no number, as that of an environment with several objectives, or a number is not
                finite.
        """
        # States are immutable values, so the state before the step can be kept without a copy.
        base: Any = self.unwrapped
        has_states = isinstance(base, StateEnv)
        before = base.state if has_states else self._last
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._last = observation
        after = base.state if has_states else observation
        action, number = info.get("action", action), finite(reward, "the reward", type(base))
        info.update(self.facts(RatedTurn(before, action, after, number, bool(terminated), bool(truncated))))
        return observation, number, terminated, truncated, info

    def wrapper_state(self) -> Any:
        """Return the last observation where scores depend on it, None otherwise."""
        return None if isinstance(self.unwrapped, StateEnv) else self._last

    def set_wrapper_state(self, state: Any) -> None:
        """Continue from a state that `wrapper_state` returned."""
        self._last = state


def state_of(owner: type[Any], generic: type[Any]) -> type[Any] | None:
    """Return the state that a class names in its bases, such as `TextEnv[SokobanState]`; None where it names none."""
    # Only the class that wrote `TextEnv[SokobanState]` keeps the argument, so that subclasses are asked through all
    # their ancestors.
    for cls in owner.__mro__:
        for base in vars(cls).get("__orig_bases__", ()):
            first = (*get_args(base), None)[0]
            is_ours = isinstance(get_origin(base), type) and issubclass(get_origin(base), generic)
            if is_ours and isinstance(first, type) and first is not Any:
                return first
    return None


class RewardScore(ScoreWrapper[Any]):
    """Score a turn by its reward, penalties included, as a tree without any scorer does.

    Args:
        env: Any environment.
    """

    score_of = "turn"

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)

    def score(self, before: Any, action: Any, after: Any, reward: float) -> float:
        """Return the reward."""
        return reward
