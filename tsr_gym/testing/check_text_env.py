"""check_text_env: check that a text environment keeps the contracts of `TextEnv` and of Gymnasium."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from operator import attrgetter
from typing import Any, NamedTuple, NoReturn

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

from tsr_gym.codec import decode, encode
from tsr_gym.errors import CheckFailed, EpisodeOver, SnapshotError
from tsr_gym.foreign.play import difference
from tsr_gym.state_env import Episode, StateEnv, left, unbegun
from tsr_gym.testing.facts import name_of, returned
from tsr_gym.testing.recording import JUNK, draw_turn
from tsr_gym.text_env import TextEnv


class TriedTurn(NamedTuple):
    """One turn of the bare environment: the episode before it, the action, the results, and the episode after it."""

    before: Episode
    action: str
    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: Any
    after: Episode


@dataclass(frozen=True, slots=True)
class TextTrial:
    """The argument of a rule about text environments.

    Attributes:
        env: The stack under test.
        base: Its environment, without wrappers.
        seeds: Seeds of the episodes to play.
        steps: Most turns of an episode.
        junk: Texts that are not actions.
    """

    env: gym.Env[Any, Any]
    base: TextEnv[Any]
    seeds: tuple[int, ...]
    steps: int
    junk: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the environment in messages."""
        return name_of(self.base)

    def fail(self, check: str, message: str) -> NoReturn:
        """Raise CheckFailed with the environment's name in the message."""
        raise CheckFailed(check, f"{self.name}: {message}")

    def turns(self) -> Iterator[TriedTurn]:
        """Play one episode per seed on the bare environment, mostly legal turns, and yield every turn."""
        for seed in self.seeds:
            self.base.reset(seed=seed)
            yield from self.on(seed)

    def on(self, seed: int) -> Iterator[TriedTurn]:
        """Continue the episode of the bare environment, and yield every turn."""
        rng = np.random.default_rng(seed)
        for _ in range(self.steps):
            episode = self.base.episode
            if episode.terminated or episode.truncated:
                return
            junk = bool(self.junk) and rng.random() < 0.15
            action = self.junk[int(rng.integers(len(self.junk)))] if junk else draw_turn(self.base, rng)
            yield self.step(action)

    def step(self, action: str) -> TriedTurn:
        """Take one turn of the bare environment."""
        before = self.base.episode
        return TriedTurn(before, action, *self.base.step(action), self.base.episode)


# Warnings of Gymnasium that do not apply to text environments.
_ADVICE = ("No render fps was declared", "Not able to test alternative render modes")
_TRUNCATES_AT_ONCE = "truncates after 1 step"
_OPTIONAL_INT = (int, type(None))
_RESET_TYPES: dict[str, Any] = {"success": bool, "turns_left": _OPTIONAL_INT, "actions_left": _OPTIONAL_INT}
_STEP_TYPES: dict[str, Any] = {"action_is_valid": bool, "action_is_effective": bool, "executed": tuple, **_RESET_TYPES}


def gymnasium_is_satisfied(trial: TextTrial) -> None:
    """Gymnasium's own checker finds no fault and warns of nothing."""
    limits = trial.base.limits
    at_once = 1 in (limits.max_turns, limits.max_actions)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(trial.base)
        except CheckFailed:
            raise
        except Exception as error:
            # Gymnasium treats an episode of one turn as a mistake, but a limit of one turn is allowed here.
            if not (at_once and _TRUNCATES_AT_ONCE in str(error)):
                raise CheckFailed("gymnasium", f"{trial.name}: Gymnasium's check_env failed: {error}") from error
    for warning in caught:
        text = str(warning.message)
        if issubclass(warning.category, UserWarning) and not any(advice in text for advice in _ADVICE):
            trial.fail("gymnasium", f"Gymnasium's check_env warns: {text}")


def any_text_is_an_action(trial: TextTrial) -> None:
    """No text raises, and junk is reported as an invalid action."""
    for env in {id(env): env for env in (trial.env, trial.base)}.values():
        for text in trial.junk:
            env.reset(seed=trial.seeds[0])
            label = repr(text if len(text) < 40 else f"{text[:8]}... ({len(text)} characters)")
            try:
                observation, *_, info = env.step(text)
            except Exception as error:
                raise CheckFailed(
                    "any_text", f"{trial.name}: the action {label} raised {error!r}: a bad move is data, never an error"
                ) from error
            if info.get("action_is_valid") is not False:
                value = info.get("action_is_valid", "missing")
                trial.fail(
                    "action_is_valid", f"the action {label} means nothing, yet info['action_is_valid'] is {value!r}"
                )
            if observation not in env.observation_space:
                trial.fail("observation", f"the observation after {label} is not in {env.observation_space}")


def infos_are_complete(trial: TextTrial) -> None:
    """Observations are text, and infos are new dictionaries with the entries that `TextEnv` promises."""
    for seed in trial.seeds:
        observation, info = trial.base.reset(seed=seed)
        _expect_text(trial, observation, "reset()")
        _expect_types(trial, info, _RESET_TYPES, "reset()")
        given = [info]
        for turn in trial.on(seed):
            _expect_text(trial, turn.observation, "step()")
            _expect_types(trial, turn.info, _STEP_TYPES, "step()")
            _expect_meaning(trial, turn)
            if any(turn.info is other for other in given):
                trial.fail("fresh_info", "step() returned an info dictionary that was returned before: make a new one")
            given.append(turn.info)


def _expect_text(trial: TextTrial, observation: Any, call: str) -> None:
    if not (isinstance(observation, str) and observation in trial.base.observation_space):
        space = trial.base.observation_space
        trial.fail("observation", f"{call} returned {repr(observation)[:60]}: wanted text in {space}")


def _expect_types(trial: TextTrial, info: dict[str, Any], types: dict[str, Any], call: str) -> None:
    for name, wanted in types.items():
        if name not in info:
            trial.fail("info", f"the info of {call} lacks {name!r}: leave infos to TextEnv, add to them in Step.info")
        # To isinstance a bool is an int, and numpy's bool is not a bool.
        if not isinstance(info[name], wanted) or (wanted is _OPTIONAL_INT and isinstance(info[name], bool)):
            trial.fail("info", f"info[{name!r}] of {call} is {info[name]!r}: wanted {wanted}")
    try:
        encode(info)
    except SnapshotError as error:
        raise CheckFailed("info", f"{trial.name}: the info of {call} is not plain data: {error}") from error


def _expect_meaning(trial: TextTrial, turn: TriedTurn) -> None:
    """Compare the entries of an info with the episodes before and after the turn."""
    base, before, after, info = trial.base, turn.before, turn.after, turn.info
    limits = base.limits
    wanted = {
        "success": base.is_success(after.state),
        "action_is_effective": after.state != before.state,
        "turns_left": None if limits.max_turns is None else limits.max_turns - before.turns - 1,
        "actions_left": None
        if limits.max_actions is None
        else limits.max_actions - before.actions - len(info["executed"]),
    }
    for name, value in wanted.items():
        if info[name] != value or type(info[name]) is not type(value):
            trial.fail("info", f"info[{name!r}] is {info[name]!r} after {turn.action[:40]!r}: wanted {value!r}")
    if not all(isinstance(name, str) for name in info["executed"]):
        trial.fail("info", f"info['executed'] is {info['executed']!r}: wanted a tuple of str")


def limits_cut_exactly(trial: TextTrial) -> None:
    """An episode is truncated at the limit of turns or actions, not before, not later, and not where it terminates."""
    limits = trial.base.limits
    episodes = [trial.turns(), *(_idle(trial, seed) for seed in trial.seeds[:1])]
    for episode in episodes:
        for turn in episode:
            turns, actions = turn.before.turns + 1, turn.before.actions + len(turn.info["executed"])
            # Equal, not at least: an episode that passes a limit is truncated too late.
            reached = turns == limits.max_turns or actions == limits.max_actions
            if (turn.after.turns, turn.after.actions) != (turns, actions):
                trial.fail("limits", f"turn {turns} counts {turn.after.turns} turns and {turn.after.actions} actions")
            if turn.truncated is not (reached and not turn.terminated):
                trial.fail(
                    "limits",
                    f"turn {turns} with {actions} actions under {limits} has truncated={turn.truncated!r} and "
                    f"terminated={turn.terminated!r}",
                )
            executed = len(turn.info["executed"])
            if limits.max_actions_per_turn is not None and executed > limits.max_actions_per_turn:
                trial.fail("limits", f"{executed} actions were executed in a turn under {limits}")


def _idle(trial: TextTrial, seed: int) -> Any:
    """Play empty turns up to the limit of turns, at most 100."""
    trial.base.reset(seed=seed)
    for _ in range(min(trial.base.limits.max_turns or 0, 100)):
        turn = trial.step("")
        yield turn
        if turn.terminated:
            break


def the_seed_decides(trial: TextTrial) -> None:
    """The same seed gives the same episode again, and the same next one."""
    for seed in trial.seeds:
        episodes = []
        for _ in range(2):
            shots = [returned(trial.base, trial.base.reset(seed=seed))]
            shots += [returned(trial.base, tuple(turn)[2:-1]) for turn in trial.on(seed)]
            shots.append(returned(trial.base, trial.base.reset()))
            episodes.append(shots)
        for first, second in zip(*episodes, strict=False):
            if text := difference(first, second):
                trial.fail("same_seed", f"after reset(seed={seed}) once more, {text}")


def an_episode_begins_and_ends(trial: TextTrial) -> None:
    """A step before reset raises ResetNeeded, one after the end EpisodeOver."""
    _expect_error(trial, unbegun(trial.base), ResetNeeded, "before reset()")
    for seed in trial.seeds:
        trial.base.reset(seed=seed)
        for turn in trial.on(seed):
            if turn.terminated or turn.truncated:
                _expect_error(trial, trial.base, EpisodeOver, "after the end of an episode")


def _expect_error(trial: TextTrial, env: StateEnv[Any, Any, Any], wanted: type[Exception], when: str) -> None:
    try:
        env.step("")
    except wanted:
        return
    except Exception as error:
        trial.fail("episode", f"step() {when} raised {error!r}: wanted {wanted.__name__}")
    trial.fail("episode", f"step() {when} was accepted: wanted {wanted.__name__}")


def states_are_values(trial: TextTrial) -> None:
    """States hash, have canonical bytes, and have no mutable part."""
    for turn in trial.turns():
        state = turn.after.state
        if path := _mutable_part(state, "state"):
            trial.fail("immutable_state", f"{path}: states are NamedTuples or frozen dataclasses of immutable parts")
        try:
            twin = decode(encode(state))
        except SnapshotError as error:
            trial.fail("immutable_state", f"the state has no canonical bytes: {error}")
        try:
            same = twin == state and hash(twin) == hash(state)
        except (TypeError, ValueError) as error:
            trial.fail("immutable_state", f"the state cannot be compared or hashed ({error})")
        if not same:
            trial.fail(
                "immutable_state", "a state that was written and read is not equal to the original, or has another hash"
            )


def _mutable_part(value: Any, path: str) -> str | None:
    """Return a description of the first mutable part of a value; None if all parts are immutable."""
    if isinstance(value, list | dict | set | bytearray):
        return f"{path} is a {type(value).__name__}, which can be changed in place"
    if isinstance(value, np.ndarray):
        return f"{path} is an array that can be written to" if value.flags.writeable else None
    held = vars(type(value))
    params = held.get("__dataclass_params__")
    if params is not None and not params.frozen:
        return f"{path} is a {type(value).__name__}, a dataclass that is not frozen"
    names = held.get("_fields") or held.get("__dataclass_fields__") or ()
    parts = [(f".{name}", attrgetter(name)(value)) for name in names]
    if not names and isinstance(value, tuple):
        parts = [(f"[{index}]", item) for index, item in enumerate(value)]
    return next((text for name, part in parts if (text := _mutable_part(part, path + name))), None)


def observing_is_pure(trial: TextTrial) -> None:
    """`observe` depends only on its argument, and `step` returns its result."""
    seen = []
    for turn in trial.turns():
        before = encode(turn.after)
        if (again := trial.base.observe(turn.after.state)) != turn.observation:
            trial.fail(
                "observe", f"observe(state) returns {again[:60]!r}, and step() returned {turn.observation[:60]!r}"
            )
        if encode(trial.base.episode) != before:
            trial.fail("observe", "observe(state) changed the state of the environment")
        seen.append(turn)
    for turn in reversed(seen):
        if trial.base.observe(turn.after.state) != turn.observation:
            trial.fail("observe", "observe(state) returns another text later: it depends on more than the state")


def keys_know_only_the_state(trial: TextTrial) -> None:
    """`state_key` returns bytes that depend only on the state, and states with equal keys behave the same."""
    base, seen = trial.base, []
    for turn in trial.turns():
        key = base.state_key(turn.after.state)
        if not isinstance(key, bytes):
            trial.fail("state_key", f"state_key(state) returned a {type(key).__name__}: wanted bytes")
        seen.append((key, turn.after))
    base.reset(seed=trial.seeds[-1] + 1)
    for key, episode in seen:
        if base.state_key(decode(encode(episode.state))) != key:
            trial.fail("state_key", "equal states have other keys later: the key depends on more than the state")
    # States with equal keys must have equal futures; terminated ones have none.
    groups: dict[bytes, dict[bytes, Any]] = {}
    for key, episode in seen:
        if not episode.terminated:
            groups.setdefault(key, {})[encode(episode.state)] = episode.state
    for states in groups.values():
        _expect_equal_futures(trial, list(states.values()))


def _expect_equal_futures(trial: TextTrial, states: list[Any]) -> None:
    """Take each action in each of the states with equal random numbers, and compare the results."""
    first, *others = states
    for other in others:
        for action in trial.base.legal_actions(first)[:8]:
            steps = [trial.base.transition(state, action, np.random.default_rng(5)) for state in (first, other)]
            ends = [(step.reward, step.terminated, trial.base.state_key(step.state)) for step in steps]
            if ends[0] != ends[1]:
                trial.fail(
                    "state_key",
                    f"two states have the same key, but {action!r} leads to different results: {ends}"[:400],
                )


def legal_actions_are_legal(trial: TextTrial) -> None:
    """Every action that `legal_actions` lists is understood in that state."""
    base = trial.base
    for turn in trial.turns():
        state = turn.before.state
        actions = base.legal_actions(state)
        if not (isinstance(actions, tuple) and all(isinstance(action, str) for action in actions)):
            trial.fail("legal_actions", f"legal_actions(state) returned {actions!r}: wanted a tuple of str")
        if base.actions and not set(actions) <= set(base.actions):
            trial.fail("legal_actions", f"legal_actions(state) lists {actions!r}, which are not all in `actions`")
        for action in actions[:32]:
            step = base.transition(state, action, np.random.default_rng(0))
            if not step.info.get("action_is_valid", True):
                trial.fail("legal_actions", f"legal_actions(state) lists {action!r}, which transition() does not know")


def optimal_turns_are_valid(trial: TextTrial) -> None:
    """The result of `optimal_turn` is a turn that the environment understands and that the limits allow."""
    base = trial.base
    for seed in trial.seeds:
        base.reset(seed=seed)
        for _ in range(trial.steps):
            turns_left, actions_left = left(base)
            text = base.optimal_turn(base.state, turns_left, actions_left)
            if text is None:
                break
            if not isinstance(text, str):
                trial.fail("optimal_turn", f"optimal_turn() returned {text!r}: wanted text or None")
            turn = trial.step(text)
            wanted = 1 if base.separator is None else len(text.split(base.separator))
            if not turn.info["action_is_valid"] or (len(turn.info["executed"]) < wanted and not turn.terminated):
                executed = turn.info["executed"]
                trial.fail("optimal_turn", f"optimal_turn() returned {text!r}, of which {executed!r} was executed")
            if turn.terminated or turn.truncated:
                break


def players_return_turns(trial: TextTrial) -> None:
    """The players of `teaching` return turns that the environment understands, and change nothing."""
    base, teaching = trial.base, trial.base.teaching()
    if teaching is None:
        return
    for seed, player in product(trial.seeds, (teaching.teacher_turn, teaching.poor_turn)):
        base.reset(seed=seed)
        rng = np.random.default_rng(seed)
        for _ in range(trial.steps):
            before = base.episode
            if before.terminated or before.truncated or not base.legal_actions(base.state):
                break
            text = player(base, rng)
            if base.episode != before:
                trial.fail("teaching", f"a player of teaching() changed the episode when it returned {text!r}")
            if not isinstance(text, str) or not trial.step(text).info["action_is_valid"]:
                trial.fail("teaching", f"a player of teaching() returned {text!r}, which is not a turn here")


def success_bars_are_probabilities(trial: TextTrial) -> None:
    """The success of random play is a probability, and at most that of the best policy."""
    for seed in trial.seeds:
        trial.base.reset(seed=seed)
        bars = trial.base.success_bars(trial.base.state)
        if bars is None:
            continue
        random, best = bars
        if not 0.0 <= random <= best + 1e-9 <= 1.0 + 2e-9:
            trial.fail(
                "success_bars", f"success_bars(state) returned {bars!r}: wanted 0 <= random play <= best policy <= 1"
            )


RULES: tuple[Callable[[TextTrial], None], ...] = (
    any_text_is_an_action,
    infos_are_complete,
    states_are_values,
    observing_is_pure,
    the_seed_decides,
    keys_know_only_the_state,
    limits_cut_exactly,
    an_episode_begins_and_ends,
    legal_actions_are_legal,
    optimal_turns_are_valid,
    players_return_turns,
    success_bars_are_probabilities,
    gymnasium_is_satisfied,
)


def check_text_env(
    env: gym.Env[Any, Any], *, seeds: Sequence[int] = (0, 1, 2), steps: int = 12, junk: Sequence[str] = JUNK
) -> None:
    """Check by play that a text environment keeps the contract of `TextEnv`, and passes Gymnasium's own checks.

    The environment is used for play; its state afterwards is undefined.

    Args:
        env: A `TextEnv`, bare or wrapped.
        seeds: One episode is played per seed.
        steps: Most turns of an episode.
        junk: Texts that are not actions of the environment. Pass others if any text is a valid action.

    Raises:
        CheckFailed: A rule is broken; `check` names it, and the message names the class or function.

    >>> import gymnasium as gym, tsr_gym
    >>> check_text_env(gym.make("tsr/FrozenLake-v0"), seeds=(0,))
    """
    base = env.unwrapped
    if not isinstance(base, TextEnv):
        raise CheckFailed("text_env", f"wanted a tsr_gym.TextEnv, got a {name_of(base)}")
    trial = TextTrial(env, base, tuple(seeds), steps, tuple(junk))
    for rule in RULES:
        rule(trial)
