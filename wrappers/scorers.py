"""Scorers by name: what one score is made of, written as a configuration writes it."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Literal, get_args

import gymnasium as gym

from tsr_gym.errors import ConfigError
from tsr_gym.keywords import Call, bind, choose
from tsr_gym.ranges import check_range, finite
from tsr_gym.registration import env_class
from tsr_gym.wrappers.score_wrapper import RatedTurn, ScoreWrapper, state_of

HOME = "tsr_gym.wrappers"
Scorer = str | Callable[[gym.Env[Any, Any]], ScoreWrapper[Any]]


def choose_scorer(text: str) -> "partial[Any]":
    """Return the scorer that a text such as ``"SokobanScore(potential='estimate')"`` names, for an environment.

    The text ``"reward"`` stands for no scorer: a search is then guided by the reward itself.

    Raises:
        ConfigError: There is no such scorer, or it does not take these keywords.
    """
    if text == "reward":
        return partial(_unscored)
    return choose(text, home=HOME, what="scorer", among=_is_scorer)


def known_scorers() -> dict[str, tuple[type[ScoreWrapper[Any]], str]]:
    """Return the scorers of this package by name, each with the world whose states it rates, ``"any"`` for all."""
    named = vars(import_module(HOME))
    scorers = {name: named[name] for name in named["__all__"] if _is_scorer(named[name])}
    states = {name: state_of(scorer, ScoreWrapper) for name, scorer in scorers.items()}
    return {
        name: (scorer, "any" if (state := states[name]) is None else state.__module__.rpartition(".")[0])
        for name, scorer in scorers.items()
    }


def _unscored(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    return env


def _is_scorer(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, ScoreWrapper) and value is not ScoreWrapper


def make_scorer(scorer: Scorer, env: gym.Env[Any, Any]) -> ScoreWrapper[Any]:
    """Return a scorer around an environment.

    Args:
        scorer: A class or function that takes the environment, or the text of `choose_scorer`.
        env: What it wraps.

    Raises:
        ConfigError: There is no such scorer, it does not take these keywords, or what it makes is no `ScoreWrapper`.
    """
    make = bind(scorer, choose_scorer).bound if isinstance(scorer, str) else scorer
    try:
        made = make(env)
    except TypeError as error:
        raise ConfigError(f"the scorer {scorer!r} cannot be made: {error}") from error
    if not isinstance(made, ScoreWrapper):
        raise ConfigError(f"wanted a scorer that makes a ScoreWrapper, {scorer!r} made a {type(made).__name__}")
    return made


class WeightedScore(ScoreWrapper[Any]):
    """Score a turn by a weighted sum of other scores.

    ``info["scores"]`` holds the scores of the parts. Where all parts rate states, so does the sum. Where some
    rate turns, the sum rates turns, and a state counts by what the turn gained, ``score(after) - score(before)``. Along
    a path this adds up to the last state's score but for a constant, so paths from one root are ranked as by the sum
    of what each kind of score means by itself.

    Args:
        env: The environment that all parts rate.
        parts: Scorer and weight by name. A scorer is a class or function that takes the environment, or text such as
            ``"SokobanScore(potential='estimate')"``.

    Raises:
        ConfigError: There are no parts, or a scorer cannot be made; from `step`: a score of states is mixed with one
            of turns and looks at more than the state.

    >>> import gymnasium as gym, tsr_gym
    >>> parts = {"reward": ("tsr_gym.wrappers.score_wrapper:RewardScore", 10), "near": ("FrozenLakeScore", 0.5)}
    >>> env = WeightedScore(gym.make("tsr/FrozenLake-v0", desc=["SFG"], is_slippery=False), parts)
    >>> _ = env.reset(seed=1)
    >>> info = env.step("Right")[4]
    >>> info["scores"], info["score"]
    ({'reward': 0.0, 'near': -1.0}, 0.5)
    """

    def __init__(self, env: gym.Env[Any, Any], parts: Mapping[str, tuple[Scorer, float]]) -> None:
        if not parts:
            raise ConfigError("wanted at least one part of the score, got none")
        super().__init__(env, parts=dict(parts))
        self.weights = {name: finite(weight, f"the weight of {name}") for name, (_, weight) in parts.items()}
        self.parts = {name: make_scorer(scorer, env) for name, (scorer, _) in parts.items()}
        kinds = {part.score_of for part in self.parts.values()}
        self.score_of = "state" if kinds == {"state"} else "turn"
        # In a sum over turns, a score of states counts by its gain: else a path would collect it again at every turn.
        self._gains = {name for name, part in self.parts.items() if part.score_of != self.score_of}

    def facts(self, turn: RatedTurn) -> dict[str, Any]:
        """Return the sum and its parts."""
        scores = {
            name: finite(part.rate_turn(turn), f"the part {name!r} of the score", type(part))
            for name, part in self.parts.items()
        }
        total = 0.0
        for name, score in scores.items():
            start = self.parts[name].rate_state(turn.before) if name in self._gains else 0.0
            total += self.weights[name] * (score - start)
        return {"score": total, "scores": scores}

    def rate_turn(self, turn: RatedTurn) -> float:
        """Return the weighted sum."""
        return float(self.facts(turn)["score"])

    def score(self, before: Any, action: Any, after: Any, reward: float) -> float:
        """Return the score of a turn that does not end the episode."""
        return self.rate_turn(RatedTurn(before, action, after, reward))


End = Literal["done", "terminated"]


class PotentialScore(ScoreWrapper[Any]):
    """Score a turn by ``reward + gamma * Phi(after) - Phi(before)``, with Phi = 0 where the episode is over.

    Shaping of this form leaves the optimal policy unchanged, and no other form does so for all environments (Ng, Harada
    and Russell 1999). It needs the zero at every end that the optimum takes into account: limits of turns and actions
    belong to the task here, so a truncated episode has ended too (Grzes 2017).

    ``Phi(s) = weight * (potential(s) + offset)``. A guide works best where Phi is about the return that is still to be
    earned. Where it is negative, any end gains by getting rid of it, so that a hole may look better than a step towards
    the goal while the search is under way; `offset` raises it.

    Args:
        env: Any environment.
        potential: A function of the state (of the observation, where the environment is no `StateEnv`); or a score that
            can rate a state, in the words of a configuration: ``"SokobanScore(potential='estimate')"``.
        gamma: Discount per turn. A tree adds scores up without any, so leave it at 1 for a search.
        reward: Whether the reward is part of the score.
        weight: What a unit of potential is worth in reward.
        offset: Added to the potential, before it is weighted.
        end: Where Phi is 0: where the episode is ``"done"``, or only where the task ``"terminated"``.

    Raises:
        ConfigError: The potential is not one, or a number is out of range.

    >>> import gymnasium as gym, tsr_gym
    >>> lake = gym.make("tsr/FrozenLake-v0", desc=["SFF", "FHF", "FFG"], is_slippery=False)
    >>> env = PotentialScore(lake, "FrozenLakeScore", weight=0.25, offset=4)
    >>> _ = env.reset(seed=1)
    >>> [env.step(turn)[4]["score"] for turn in ("Right", "Left", "Down || Right")]
    [0.25, -0.25, 0.0]
    """

    score_of = "turn"

    def __init__(
        self,
        env: gym.Env[Any, Any],
        potential: str | Callable[[Any], float],
        gamma: float = 1.0,
        *,
        reward: bool = True,
        weight: float = 1.0,
        offset: float = 0.0,
        end: End = "done",
    ) -> None:
        check_range(least=0, most=1, gamma=gamma)
        check_range(weight=weight, offset=offset)
        if end not in get_args(End):
            raise ConfigError(f"wanted end of {list(get_args(End))}, got {end!r}")
        super().__init__(env, potential=potential, gamma=gamma, reward=reward, weight=weight, offset=offset, end=end)
        self.gamma = gamma
        self.reward = reward
        self.weight = weight
        self.offset = offset
        self.end = end
        self._potential = make_scorer(potential, env).rate_state if isinstance(potential, str) else potential

    def phi(self, state: Any) -> float:
        """Return the potential of a state of a running episode."""
        return self.weight * (finite(self._potential(state), "the potential", self._potential) + self.offset)

    def rate_turn(self, turn: RatedTurn) -> float:
        """Return the reward and the gain of the potential."""
        # By default Phi is 0 after truncation, too: limits are part of the task here, so the optimum knows them.
        over = turn.terminated or (turn.truncated and self.end == "done")
        gain = (0.0 if over else self.gamma * self.phi(turn.after)) - self.phi(turn.before)
        return gain + (turn.reward if self.reward else 0.0)

    def score(self, before: Any, action: Any, after: Any, reward: float) -> float:
        """Return the score of a turn that does not end the episode."""
        return self.rate_turn(RatedTurn(before, action, after, reward))


def public_guide(env: str) -> str | None:
    """Return the public scorer of an environment as the setting ``score`` writes it; None where it has none.

    >>> public_guide("sokoban")
    "SokobanScore(potential='next_push')"
    """
    world = env_class(env)
    guide = None if world is None else world.guide
    if guide is None:
        return None
    module, _, name = guide.scorer.partition(":")
    return str(Call(name if module == HOME else guide.scorer, dict(guide.numbers)))
