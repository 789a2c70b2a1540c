"""check_snapshot: proof by play that snapshots of a stack are exact."""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym

from tsr_gym.testing.aliasing import what_was_handed_out_stays, writing_into_results_is_harmless
from tsr_gym.testing.exactness import (
    a_fresh_environment_replays,
    a_restore_replays,
    clones_are_independent,
    noise_is_chosen_by_its_seed,
    other_episodes_leave_no_trace,
    the_environments_own_methods_agree,
    the_seed_decides,
)
from tsr_gym.testing.processes import other_processes_replay
from tsr_gym.testing.rebuild import Factory, recipe_of, supported
from tsr_gym.testing.recording import record
from tsr_gym.testing.surroundings import (
    clocks_do_not_matter,
    global_generators_are_left_alone,
    no_generator_is_hidden,
)
from tsr_gym.testing.tampering import (
    bytes_and_pickles_are_exact,
    damaged_snapshots_are_refused,
    foreign_snapshots_are_refused,
)
from tsr_gym.testing.trial import Trial

# In this order, because an early rule names a culprit that would also break the later ones.
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

    Any Gymnasium environment can be checked. Episodes are put on record; then the stack is restored to their start,
    middle and end: within the episode, after other episodes, in a fresh environment, in clones, from bytes, and in two
    processes with other hash seeds. Whatever it shows must be what it showed on record, and the first difference is
    reported. Besides, the global random generators and the clocks must not matter, no snapshot may change, and damaged
    or foreign ones must be refused. A `StateEnv` must also hand out new objects and plain data.

    What `tsr_gym.env_support` calls replay is made `tsr_gym.replayable` first; an environment without support fails
    with the reason. Snapshots without a byte form are not compared as bytes, and not in other processes. Behind
    Gymnasium's MaxAndSkipObservation, NormalizeObservation and NormalizeReward, which remember earlier episodes across
    a reset, only restores are compared, no resets. Fields of infos that hold seconds of the wall clock are left out:
    `tsr_gym.testing.facts.WALL_CLOCK_FIELDS`.

    The environment is played with; afterwards it stands anywhere.

    Args:
        env: Any environment, bare or wrapped.
        steps: Most turns of an episode.
        seeds: One episode is played per seed.
        factory: What makes an equal environment: a function of a module, or its name as ``"module:name"``. None uses
            ``env.spec``, which environments from `gymnasium.make` have.
        other_processes: Whether to replay in other processes, which takes a second or two.

    Raises:
        CheckFailed: A rule is broken; `check` names it (``"unsupported"`` where no snapshot can be taken), and the
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
