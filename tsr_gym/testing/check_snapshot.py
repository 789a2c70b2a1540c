"""check_snapshot: proof by play that snapshots of a stack are exact."""

import copy
import pickle
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise, zip_longest
from operator import attrgetter
from typing import Any

import gymnasium as gym
import numpy as np

from tsr_gym.codec import encode
from tsr_gym.errors import CheckFailed, SnapshotError
from tsr_gym.foreign.play import difference
from tsr_gym.snapshots import Layer, Snapshot
from tsr_gym.stack import clone, restore, snapshot
from tsr_gym.state_env import StateEnv, Step
from tsr_gym.testing.facts import (
    Facts,
    Shot,
    facts_of,
    global_random_state,
    global_seed,
    is_own,
    layers_of,
    name_of,
    returned,
    shifted_clocks,
    shown,
    standing,
    who_draws,
)
from tsr_gym.testing.recording import (
    Recording,
    drive,
    expect_episode,
    expect_replay,
    expect_standing,
    finished,
    has_bytes,
    hidden_generators,
    record,
    take,
    wander,
)
from tsr_gym.testing.trial import Factory, Trial, other_processes_replay, recipe_of, supported


def no_generator_is_hidden(env: gym.Env[Any, Any], seed: int, steps: int) -> None:
    """No function or class of the stack holds a random generator."""
    if names := hidden_generators(env):
        raise CheckFailed(
            "hidden_generator",
            f"{names[0]} is a random generator, which no snapshot can reach: draw from the `rng` that initial() and "
            "transition() are given",
        )


def global_generators_are_left_alone(env: gym.Env[Any, Any], seed: int, steps: int) -> None:
    """`random` and `numpy.random` are neither advanced nor read."""
    advanced = False

    def play(global_state: int) -> Recording:
        nonlocal advanced
        with global_seed(global_state):
            before = global_random_state()
            recording = record(env, seed, steps)
            advanced = advanced or global_random_state() != before
        return recording

    text = _dependence(play, is_own(env))
    if advanced or text:
        # With another global state the episode may end earlier, but a function that draws does so from the first turns.
        culprits = who_draws(partial(drive, env, play(0)))
        raise CheckFailed(
            "global_random",
            f"{', '.join(culprits) or name_of(env.unwrapped)} uses a global random generator "
            f"({text or 'which it advances'}): draw from the `rng` that initial() and transition() are given",
        )


def clocks_do_not_matter(env: gym.Env[Any, Any], seed: int, steps: int) -> None:
    """An episode is the same at another time of day."""
    modules = {sys.modules[cls.__module__] for layer in layers_of(env) for cls in type(layer).__mro__}
    readers: set[str] = set()

    def play(late: int) -> Recording:
        with shifted_clocks(modules, 5 * late) as new_readers:
            recording = record(env, seed, steps)
        readers.update(new_readers)
        return recording

    text = _dependence(play, is_own(env))
    if readers and text:
        raise CheckFailed(
            "wall_clock",
            f"{', '.join(sorted(readers))} reads the clock, and five hours later {text}: keep time out of states, "
            "observations and rewards",
        )


def _dependence(play: Callable[[int], Recording], own: bool) -> str | None:
    """Return how an episode differs between conditions 0 and 1.

    None if it does not, and also if it differs under the same condition: that has another cause, for another rule.
    """
    # An episode that differs under equal conditions is nondeterministic for another reason, so each is played again.
    first, second = play(0), play(1)
    text = _first_difference(first, second, own)
    for _ in range(3 if text else 0):
        if _first_difference(first, play(0), own) or _first_difference(second, play(1), own):
            return None
    return text


def _first_difference(first: Recording, second: Recording, own: bool) -> str | None:
    for left, right in zip_longest(first.shots, second.shots, fillvalue=Shot((), ())):
        # Of a foreign environment only results count: unused state may differ.
        if text := difference(left.all, right.all) if own else difference(left.returned, right.returned):
            return text
    return None


def what_was_handed_out_stays(trial: Trial) -> None:
    """Later turns change no earlier snapshot; of a `StateEnv`, no earlier observation or info either."""
    for recording in trial.recordings:
        for turn in range(len(recording.snapshots)):
            _expect_same_snapshot(trial, recording, turn)
            if trial.own:
                _expect_same_results(trial, recording, turn)
        for turn, ((_, info), (_, next_info)) in enumerate(pairwise(recording.handed_out)):
            if trial.own and info is next_info:
                raise CheckFailed(
                    "aliasing",
                    f"{trial.name} returned the same info dictionary at turns {turn} and {turn + 1}: make a "
                    "new one on every call",
                )


def _expect_same_results(trial: Trial, recording: Recording, turn: int) -> None:
    later = {fact.what: fact for fact in returned(trial.env, recording.handed_out[turn])}
    for fact in recording.shots[turn].returned:
        now = later.get(fact.what, fact)
        if fact.value != now.value:
            raise CheckFailed(
                "aliasing",
                f"{fact.what} that {trial.name} returned at turn {turn} changed later, from {fact.text[:60]} to "
                f"{now.text[:60]}: return a new object on every call",
            )


def _expect_same_snapshot(trial: Trial, recording: Recording, turn: int) -> None:
    snap = recording.snapshots[turn]
    if not has_bytes(snap):
        _expect_same_facts(trial, recording, turn)
        return
    if Snapshot(snap.layers).digest == snap.digest:
        return
    for old, new in zip(Snapshot.from_bytes(snap.to_bytes()).layers, snap.layers, strict=True):
        path = _changed_path(old.state, new.state, old.kind.rpartition(":")[2])
        if path is not None:
            raise CheckFailed(
                "aliasing",
                f"{path} in the snapshot of turn {turn} changed in later turns of {trial.name}: a part is changed in "
                "place; make a new value instead (arrays: copy, then set flags.writeable = False)",
            )


def _expect_same_facts(trial: Trial, recording: Recording, turn: int) -> None:
    """Compare a snapshot without bytes with its facts when it was taken."""
    now = facts_of(trial.env.unwrapped, recording.snapshots[turn].layers)
    if text := difference(recording.shots[turn].standing, now):
        raise CheckFailed("aliasing", f"the snapshot of turn {turn} changed in later turns of {trial.name}: {text}")


def _changed_path(old: Any, new: Any, path: str) -> str | None:
    """Return the path to the first part that differs between two versions of a value; None if they are equal."""
    if encode((old,)) == encode((new,)):
        return None
    before, after = _parts(old), _parts(new)
    if list(before) == list(after):
        for name in after:
            if inner := _changed_path(before[name], after[name], f"{path}.{name}"):
                return inner
    return path


def _parts(value: Any) -> dict[Any, Any]:
    held = vars(type(value))
    names = held.get("_fields") or held.get("__dataclass_fields__") or ()
    if names:
        return {name: attrgetter(name)(value) for name in names}
    if isinstance(value, dict):
        return value
    return dict(enumerate(value)) if isinstance(value, list | tuple) else {}


def writing_into_results_is_harmless(trial: Trial) -> None:
    """A user who writes into returned observations and infos changes no snapshot, and no `StateEnv`."""
    recording = trial.recordings[0]
    story = f"{trial.name} after its results were written to"
    if not trial.own:
        # A foreign environment may share its observation with its state; only its snapshots must not change.
        _scribble(recording.handed_out)
        for turn in recording.points:
            restore(trial.env, recording.snapshots[turn])
            expect_replay("handed_out", trial.env, recording, turn, story)
        return
    restore(trial.env, recording.snapshots[0])
    for turn, action in enumerate(recording.actions, start=1):
        result = take(trial.env, action)
        _scribble(result)
        expect_standing("handed_out", trial.env, recording, turn, story)


def _scribble(value: Any) -> None:
    if isinstance(value, dict):
        for item in value.values():
            _scribble(item)
        value["tsr_gym.testing"] = "scribbled"
    elif isinstance(value, list | tuple):
        for item in value:
            _scribble(item)
    elif isinstance(value, np.ndarray) and value.flags.writeable and value.dtype.kind in "biuf":
        value[...] = ~value if value.dtype == np.bool_ else value.dtype.type(1) - value


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
    if text := difference(*seconds):
        raise CheckFailed("same_seed", f"{trial.name} after reset() that follows a seeded reset: {text}")


def a_restore_replays(trial: Trial) -> None:
    """Restored within its own episode, a stack continues as recorded."""
    for recording in trial.recordings:
        drive(trial.env, recording)
        # Every replay ends at the end of the episode, so the next restore goes back from there.
        for turn in recording.points:
            restore(trial.env, recording.snapshots[turn])
            expect_replay("replay", trial.env, recording, turn, f"{trial.name} restored to turn {turn}")
        restore(trial.env, recording.snapshots[-1])
        expect_standing("replay", trial.env, recording, len(recording.actions), f"{trial.name} restored to its end")


def other_episodes_leave_no_trace(trial: Trial) -> None:
    """Restored after other episodes, a stack continues as recorded."""
    for recording in trial.recordings:
        for turn in recording.points:
            wander(trial.env, recording.seed + 1000 + turn, trial.steps)
            restore(trial.env, recording.snapshots[turn])
            story = f"{trial.name} restored to turn {turn} after another episode"
            expect_replay("hidden_history", trial.env, recording, turn, story)


def a_fresh_environment_replays(trial: Trial) -> None:
    """A new, equal environment continues as recorded without a reset, and plays the same from the same seed."""
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
    """A clone continues as recorded, and playing it or the original does not change the other."""
    for recording in trial.recordings[:2]:
        for turn in recording.points:
            restore(trial.env, recording.snapshots[turn])
            try:
                twin, other = clone(trial.env), clone(trial.env)
            except SnapshotError:
                # Some environments cannot be made again, which is no fault of their restores.
                return
            expect_replay("clone", twin, recording, turn, f"a clone of {trial.name} at turn {turn}")
            story = f"{trial.name} at turn {turn} after turns of its clone"
            expect_replay("clone", trial.env, recording, turn, story)
            expect_replay("clone", other, recording, turn, f"a clone of {trial.name} at turn {turn} after turns of it")


def noise_is_chosen_by_its_seed(trial: Trial) -> None:
    """Fresh noise depends only on its seed, and the episode's own noise can still be restored."""
    env = trial.env
    for recording in trial.recordings[:2]:
        turn = recording.points[len(recording.points) // 2]
        actions, snap = recording.actions[turn:], recording.snapshots[turn]
        first = _on_fresh_noise(env, snap, actions, 11)
        # Another episode in between, so that state that a restore forgets would show.
        wander(env, recording.seed + 2000, trial.steps)
        for wanted, got in zip(first, _on_fresh_noise(env, snap, actions, 11), strict=True):
            if text := difference(wanted, got):
                raise CheckFailed("noise", f"{trial.name} restored twice with noise='fresh' and seed=11: {text}")
        if first[0] == _on_fresh_noise(env, snap, [], 12)[0]:
            raise CheckFailed("noise", f"{trial.name} restored with seeds 11 and 12 has the same random state")
        restore(env, snap)
        expect_replay("noise", env, recording, turn, f"{trial.name} restored with its own noise after fresh noise")


def _on_fresh_noise(env: gym.Env[Any, Any], snap: Snapshot, actions: list[Any], seed: int) -> list[Facts]:
    """Return the facts after a restore with fresh noise, turn by turn."""
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
            if change := difference(wanted, standing(env)):
                raise CheckFailed("methods", f"{trial.name}.{name} is not exact: {change}; leave it to StateEnv")


NUM_SAMPLES = 24


class Stranger(StateEnv[int, np.int64, np.int64]):
    """A minimal environment, whose snapshots every other one must refuse."""

    observation_space = gym.spaces.Discrete(2)
    action_space = gym.spaces.Discrete(2)

    def initial(self, rng: np.random.Generator, options: dict[str, Any]) -> int:
        """Return 0."""
        return 0

    def transition(self, state: int, action: np.int64, rng: np.random.Generator) -> Step:
        """Return 1, the end of the episode."""
        return Step(1, 0.0, True, {})

    def observe(self, state: int) -> np.int64:
        """Return the state."""
        return np.int64(state)


def bytes_and_pickles_are_exact(trial: Trial) -> None:
    """A snapshot survives bytes and pickle, and equals only snapshots of the same turn."""
    if not trial.has_bytes:
        return
    for recording in trial.recordings:
        for turn in recording.points:
            snap = recording.snapshots[turn]
            copies = [Snapshot.from_bytes(snap.to_bytes()), pickle.loads(pickle.dumps(snap)), copy.deepcopy(snap)]
            for twin in copies:
                if (twin, hash(twin), twin.to_bytes()) != (snap, hash(snap), snap.to_bytes()):
                    raise CheckFailed("bytes", f"a snapshot of {trial.name} is not the same after a byte round trip")
            restore(trial.env, copies[0])
            story = f"{trial.name} restored to turn {turn} from bytes"
            expect_replay("bytes", trial.env, recording, turn, story)
    first = trial.recordings[0]
    # Only a StateEnv counts its turns. Elsewhere an action without effect may lead to an equal snapshot.
    for turn, (snap, next_snap) in enumerate(zip(first.snapshots, first.snapshots[1:], strict=False)):
        if trial.own and snap == next_snap:
            raise CheckFailed("bytes", f"the snapshots of {trial.name} at turns {turn} and {turn + 1} are equal")


def damaged_snapshots_are_refused(trial: Trial) -> None:
    """Bytes that were cut or flipped raise SnapshotError and change nothing."""
    if not trial.has_bytes:
        return
    recording = trial.recordings[0]
    whole = recording.snapshots[0].to_bytes()
    rng = np.random.default_rng(0)
    restore(trial.env, recording.snapshots[0])
    # The fixed sizes are the borders of magic, version and digest.
    for size in {0, 1, 8, 9, 24, 25, len(whole) - 1, *rng.integers(len(whole), size=NUM_SAMPLES).tolist()}:
        _expect_refusal(trial, f"the first {size} bytes", partial(Snapshot.from_bytes, whole[:size]))
    for place in rng.integers(len(whole), size=NUM_SAMPLES).tolist():
        flipped = whole[:place] + bytes([whole[place] ^ 1 << int(rng.integers(8))]) + whole[place + 1 :]
        _expect_refusal(trial, f"byte {place} flipped", partial(Snapshot.from_bytes, flipped))
    expect_standing("damaged", trial.env, recording, 0, f"{trial.name} after damaged snapshots were refused")


def foreign_snapshots_are_refused(trial: Trial) -> None:
    """Snapshots of another environment, stack or rules raise SnapshotError and change nothing."""
    recording = trial.recordings[0]
    layers = recording.snapshots[0].layers
    stranger = Stranger()
    stranger.reset(seed=0)
    foreign = {
        "another environment": snapshot(stranger).layers,
        "another environment under the same wrappers": (*layers[:-1], *snapshot(stranger).layers),
        "a stack with one layer more": (Layer("tsr_gym.testing:Nothing", None), *layers),
        "no layers": (),
    }
    if trial.own:
        inner = layers[-1]
        foreign["other rules"] = (*layers[:-1], inner._replace(state=inner.state._replace(rules=("other", "rules"))))
    if len(layers) > 1:
        missing = name_of(trial.env)
        foreign[f"the stack without {missing}"] = layers[1:]
        foreign["the bare environment"] = layers[-1:]
    restore(trial.env, recording.snapshots[-1])
    for what, other in foreign.items():
        _expect_refusal(trial, f"a snapshot of {what}", partial(Snapshot, other))
    turn = len(recording.actions)
    expect_standing("foreign", trial.env, recording, turn, f"{trial.name} after foreign snapshots were refused")


def _expect_refusal(trial: Trial, what: str, make: Callable[[], Snapshot]) -> None:
    try:
        restore(trial.env, make())
    except SnapshotError:
        return
    except Exception as error:
        raise CheckFailed("foreign", f"{trial.name} raised {error!r} for {what}: wanted a SnapshotError") from error
    raise CheckFailed("foreign", f"{trial.name} accepted {what}: wanted a SnapshotError")


# The order matters: a fault that an early rule names would also break later ones.
FIRST_RULES: tuple[Callable[[gym.Env[Any, Any], int, int], None], ...] = (
    no_generator_is_hidden,
    global_generators_are_left_alone,
    clocks_do_not_matter,
)
RULES: tuple[Callable[[Trial], None], ...] = (
    what_was_handed_out_stays,
    the_seed_decides,
    a_restore_replays,
    other_episodes_leave_no_trace,
    a_fresh_environment_replays,
    clones_are_independent,
    writing_into_results_is_harmless,
    noise_is_chosen_by_its_seed,
    the_environments_own_methods_agree,
    bytes_and_pickles_are_exact,
    damaged_snapshots_are_refused,
    foreign_snapshots_are_refused,
)


def check_snapshot(
    env: gym.Env[Any, Any],
    *,
    steps: int = 12,
    seeds: Sequence[int] = (0, 1, 2),
    factory: Factory | str | None = None,
    other_processes: bool = True,
) -> None:
    """Prove by play that `tsr_gym.snapshot`, `restore` and `clone` are exact for a stack, wrappers included.

    Any Gymnasium environment can be checked. Episodes are recorded; then the stack is restored to their start, middle
    and end: within the episode, after other episodes, in a new environment, in clones, from bytes, and in two processes
    with other hash seeds. Every result must equal the recorded one, and the first difference is reported. The results
    must not depend on the global random generators or the clocks, no snapshot may change, and damaged or foreign
    snapshots must be refused. A `StateEnv` must also return new objects and plain data.

    An environment whose support is ``"replay"`` (`tsr_gym.env_support`) is made `tsr_gym.replayable` first; one without
    support fails with the reason. Snapshots without a byte form are not compared as bytes, and not in other processes.
    Gymnasium's MaxAndSkipObservation, NormalizeObservation and NormalizeReward keep state of earlier episodes across a
    reset, so behind them only restores are compared. Info fields with seconds of the wall clock are left out:
    `tsr_gym.testing.facts.WALL_CLOCK_FIELDS`.

    The environment is used for play; its state afterwards is undefined.

    Args:
        env: Any environment, bare or wrapped.
        steps: Most turns of an episode.
        seeds: One episode is played per seed.
        factory: The function that makes an equal environment: a function of a module, or its name as ``"module:name"``.
            None uses ``env.spec``, which environments from `gymnasium.make` have.
        other_processes: Whether to replay in other processes, which takes a second or two.

    Raises:
        CheckFailed: A rule is broken; `check` names it (``"unsupported"`` if no snapshot can be taken), and the
            message names the class, attribute or function.

    >>> import gymnasium as gym, tsr_gym
    >>> check_snapshot(gym.make("tsr/FrozenLake-v0"), seeds=(0,), steps=4, other_processes=False)
    """
    env, recipe = supported(env, recipe_of(env, factory), seeds[0])
    for first_rule in FIRST_RULES:
        first_rule(env, seeds[0], steps)
    recordings = tuple(record(env, seed, steps) for seed in seeds)
    trial = Trial(env, recipe, recordings, steps)
    for rule in RULES:
        rule(trial)
    if other_processes:
        other_processes_replay(trial)
