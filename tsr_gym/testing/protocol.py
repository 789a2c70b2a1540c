"""Rules about calls and what they return: any text is an action, infos are complete, episodes end where they should."""

import warnings
from typing import Any

from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env

from tsr_gym.codec import encode
from tsr_gym.errors import CheckFailed, EpisodeOver, SnapshotError
from tsr_gym.foreign.differences import difference
from tsr_gym.state_env import StateEnv, unbegun
from tsr_gym.testing.facts import returned
from tsr_gym.testing.text_trial import TextTrial, TriedTurn

# Gymnasium's advice that is no fault of a text environment.
_ADVICE = ("No render fps was declared", "Not able to test alternative render modes")
_TRUNCATES_AT_ONCE = "truncates after 1 step"
_OPTIONAL_INT = (int, type(None))
_RESET_TYPES: dict[str, Any] = {"success": bool, "turns_left": _OPTIONAL_INT, "actions_left": _OPTIONAL_INT}
_STEP_TYPES: dict[str, Any] = {
    "action_is_valid": bool,
    "action_is_effective": bool,
    "executed": tuple,
    **_RESET_TYPES,
}


def gymnasium_is_satisfied(trial: TextTrial) -> None:
    """Gymnasium's own checker finds neither a fault nor anything to warn of."""
    limits = trial.base.limits
    at_once = 1 in (limits.max_turns, limits.max_actions)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(trial.base)
        except CheckFailed:
            raise
        except Exception as error:
            # Gymnasium takes an episode of one turn for a mistake; limits of one turn are not.
            if not (at_once and _TRUNCATES_AT_ONCE in str(error)):
                raise CheckFailed("gymnasium", f"{trial.name}: Gymnasium's check_env says: {error}") from error
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
                found = info.get("action_is_valid", "nothing")
                trial.fail(
                    "action_is_valid", f"the action {label} means nothing, yet info['action_is_valid'] is {found!r}"
                )
            if observation not in env.observation_space:
                trial.fail("observation", f"the observation after {label} is not in {env.observation_space}")


def infos_are_complete(trial: TextTrial) -> None:
    """Observations are text, and infos are new dictionaries that hold what TextEnv promises."""
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
    for name, kind in types.items():
        if name not in info:
            trial.fail("info", f"the info of {call} lacks {name!r}: leave infos to TextEnv, add to them in Step.info")
        # A bool is an int to isinstance, and numpy's bool is no bool.
        if not isinstance(info[name], kind) or (kind is _OPTIONAL_INT and isinstance(info[name], bool)):
            trial.fail("info", f"info[{name!r}] of {call} is {info[name]!r}: wanted {kind}")
    try:
        encode(info)
    except SnapshotError as error:
        raise CheckFailed("info", f"{trial.name}: the info of {call} is not plain data: {error}") from error


def _expect_meaning(trial: TextTrial, turn: TriedTurn) -> None:
    """Compare what an info says with what happened."""
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
            # Equal, not at least: an episode that went past a limit is cut off too late.
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
                trial.fail("limits", f"{executed} actions were carried out in a turn under {limits}")


def _idle(trial: TextTrial, seed: int) -> Any:
    """Play nothing but empty turns, up to a limit of turns that is not too far."""
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
        for one, other in zip(*episodes, strict=False):
            if found := difference(one, other):
                trial.fail("same_seed", f"after reset(seed={seed}) once more, {found}")


def an_episode_begins_and_ends(trial: TextTrial) -> None:
    """A step before reset raises ResetNeeded, one after the end EpisodeOver."""
    _expect_error(trial, unbegun(trial.base), ResetNeeded, "before reset()")
    for seed in trial.seeds:
        trial.base.reset(seed=seed)
        for turn in trial.on(seed):
            if turn.terminated or turn.truncated:
                _expect_error(trial, trial.base, EpisodeOver, "after the end of an episode")


def _expect_error(trial: TextTrial, env: StateEnv[Any, Any, Any], kind: type[Exception], when: str) -> None:
    try:
        env.step("")
    except kind:
        return
    except Exception as error:
        trial.fail("episode", f"step() {when} raised {error!r}: wanted {kind.__name__}")
    trial.fail("episode", f"step() {when} was accepted: wanted {kind.__name__}")
