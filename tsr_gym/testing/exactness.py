"""Rules about exact continuation: whatever happened in between, a restored stack goes on as it did on record."""

from typing import Any

import gymnasium as gym

from tsr_gym.errors import CheckFailed, SnapshotError
from tsr_gym.foreign.differences import difference
from tsr_gym.snapshots import Snapshot
from tsr_gym.stack import clone, restore
from tsr_gym.state_env import StateEnv
from tsr_gym.testing.facts import Facts, is_own, shown, standing
from tsr_gym.testing.recording import (
    drive,
    expect_episode,
    expect_replay,
    expect_standing,
    finished,
    take,
    wander,
)
from tsr_gym.testing.trial import Trial


def the_seed_decides(trial: Trial) -> None:
    """The same seed gives the same episode again, and the same next one."""
    env = trial.env
    if not trial.starts_afresh:
        return
    for recording in trial.recordings:
        expect_episode("same_seed", env, recording, f"{trial.name} after reset(seed={recording.seed}) once more")
    seconds = []
    for _ in range(2):
        env.reset(seed=trial.recordings[0].seed)
        shot = shown(env, env.reset())
        seconds.append(shot.all if is_own(env) else shot.returned)
    if found := difference(*seconds):
        raise CheckFailed("same_seed", f"{trial.name} after reset() that follows a seeded reset: {found}")


def a_restore_replays(trial: Trial) -> None:
    """Restored within its own episode, a stack goes on as on record."""
    for recording in trial.recordings:
        drive(trial.env, recording)
        # Every replay ends where the episode ends, so the next restore goes back from there.
        for turn in recording.points:
            restore(trial.env, recording.snapshots[turn])
            expect_replay("replay", trial.env, recording, turn, f"{trial.name} restored to turn {turn}")
        restore(trial.env, recording.snapshots[-1])
        expect_standing("replay", trial.env, recording, len(recording.actions), f"{trial.name} restored to its end")


def other_episodes_leave_no_trace(trial: Trial) -> None:
    """Restored after other episodes were played, a stack goes on as on record."""
    for recording in trial.recordings:
        for turn in recording.points:
            wander(trial.env, recording.seed + 1000 + turn, trial.steps)
            restore(trial.env, recording.snapshots[turn])
            story = f"{trial.name} restored to turn {turn} after another episode"
            expect_replay("hidden_history", trial.env, recording, turn, story)


def a_fresh_environment_replays(trial: Trial) -> None:
    """An equal environment that was never reset goes on as on record, and plays the same from the same seed."""
    for recording in trial.recordings[:2]:
        for turn in recording.points:
            env = trial.recipe.build()
            restore(env, recording.snapshots[turn])
            expect_replay("fresh_environment", env, recording, turn, f"a fresh {trial.name} restored to turn {turn}")
    if not trial.starts_afresh:
        return
    env = trial.recipe.build()
    recording = trial.recordings[0]
    expect_episode("fresh_environment", env, recording, f"a fresh {trial.name} after reset(seed={recording.seed})")


def clones_are_independent(trial: Trial) -> None:
    """A clone goes on as on record, and neither it nor the original is changed by the other's play."""
    for recording in trial.recordings[:2]:
        for turn in recording.points:
            restore(trial.env, recording.snapshots[turn])
            try:
                twin, other = clone(trial.env), clone(trial.env)
            except SnapshotError:
                # Of some environments nobody can make another one; that says nothing about restores.
                return
            expect_replay("clone", twin, recording, turn, f"a clone of {trial.name} at turn {turn}")
            story = f"{trial.name} at turn {turn} after its clone played on"
            expect_replay("clone", trial.env, recording, turn, story)
            expect_replay("clone", other, recording, turn, f"a clone of {trial.name} at turn {turn} after it played on")


def noise_is_chosen_by_its_seed(trial: Trial) -> None:
    """Fresh noise depends on its seed alone, and the episode's own noise is still there afterwards."""
    env = trial.env
    for recording in trial.recordings[:2]:
        turn = recording.points[len(recording.points) // 2]
        actions, snap = recording.actions[turn:], recording.snapshots[turn]
        first = _on_fresh_noise(env, snap, actions, 11)
        wander(env, recording.seed + 2000, trial.steps)
        for wanted, came in zip(first, _on_fresh_noise(env, snap, actions, 11), strict=True):
            if found := difference(wanted, came):
                raise CheckFailed("noise", f"{trial.name} restored twice with noise='fresh' and seed=11: {found}")
        if first[0] == _on_fresh_noise(env, snap, [], 12)[0]:
            raise CheckFailed("noise", f"{trial.name} restored with seeds 11 and 12 has the same random state")
        restore(env, snap)
        expect_replay("noise", env, recording, turn, f"{trial.name} restored with its own noise after fresh noise")


def _on_fresh_noise(env: gym.Env[Any, Any], snap: Snapshot, actions: list[Any], seed: int) -> list[Facts]:
    """Return what is shown after a restore with fresh noise, turn by turn."""
    restore(env, snap, noise="fresh", seed=seed)
    shots = [standing(env)]
    for action in actions:
        result = take(env, action)
        shots.append(shown(env, result).all)
        if finished(env, result):
            break
    return shots


def the_environments_own_methods_agree(trial: Trial) -> None:
    """`snapshot`, `restore` and `clone` of the environment itself do what those of tsr_gym do."""
    base, recording = trial.env.unwrapped, trial.recordings[0]
    if not isinstance(base, StateEnv):
        return
    for turn in recording.points:
        inner = Snapshot(recording.snapshots[turn].layers[-1:])
        restore(base, inner)
        wanted, taken, twin = standing(base), base.snapshot(), base.clone()
        wander(base, recording.seed + 3000, 3)
        base.restore(taken)
        for name, env in (("snapshot() or restore()", base), ("clone()", twin)):
            if found := difference(wanted, standing(env)):
                raise CheckFailed("methods", f"{trial.name}.{name} is not exact: {found}; leave it to StateEnv")
