"""Rules about what a text environment knows of itself: legal actions, optimal turns, success bars."""

from itertools import product

import numpy as np

from tsr_gym.state_env import left
from tsr_gym.testing.text_trial import TextTrial


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
    """What `optimal_turn` says is a turn that the environment understands and that the limits allow."""
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
                carried = turn.info["executed"]
                trial.fail("optimal_turn", f"optimal_turn() said {text!r}, of which {carried!r} was carried out")
            if turn.terminated or turn.truncated:
                break


def players_only_say_turns(trial: TextTrial) -> None:
    """What the players of `teaching` say is a turn that the environment understands, and saying it changes nothing."""
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
                trial.fail("teaching", f"a player of teaching() changed the episode when it was asked for {text!r}")
            if not isinstance(text, str) or not trial.step(text).info["action_is_valid"]:
                trial.fail("teaching", f"a player of teaching() said {text!r}, which is no turn here")


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
