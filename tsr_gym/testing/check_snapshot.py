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
from tsr_gym.testing.rebuild import Factory, recipe_of
from tsr_gym.testing.recording import record
from tsr_gym.testing.surroundings import (
    clocks_do_not_matter,
    global_generators_are_left_alone,
    layers_are_known,
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
    layers_are_known,
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
    factory: Factory | str | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    num_steps: int = 12,
    other_processes: bool = True,
) -> None:
    """Prove by play that `tsr_gym.snapshot`, `restore` and `clone` are exact for a stack, wrappers included.

    Episodes are put on record; then the stack is restored to their start, middle and end: within the episode, after
    other episodes, in a fresh environment, in clones, from bytes, and in two processes with other hash seeds. Whatever
    it shows must be what it showed on record. Besides, the global random generators and the clocks must not matter,
    nothing that was handed out may change, and damaged or foreign snapshots must be refused.

    Behind Gymnasium's MaxAndSkipObservation, NormalizeObservation and NormalizeReward, which remember earlier episodes
    across a reset, only restores are compared, no resets. The seconds that RecordEpisodeStatistics adds are left out.

    The environment is played with; afterwards it stands anywhere.

    Args:
        env: A `StateEnv`, bare or wrapped.
        factory: What makes an equal environment: a function of a module, or its name as ``"module:name"``. None uses
            ``env.spec``, which environments from `gymnasium.make` have.
        seeds: One episode is played per seed.
        num_steps: Most turns of an episode.
        other_processes: Whether to replay in other processes, which takes a second or two.

    Raises:
        CheckFailed: A rule is broken; `check` names it, and the message names the class, attribute or function.

    >>> import gymnasium as gym, tsr_gym
    >>> check_snapshot(gym.make("tsr/FrozenLake-v0"), seeds=(0,), num_steps=4, other_processes=False)
    """
    recipe = recipe_of(env, factory)
    for first_rule in FIRST_RULES:
        first_rule(env, seeds[0], num_steps)
    recordings = tuple(record(env, seed, num_steps) for seed in seeds)
    trial = Trial(env, recipe, recordings, num_steps)
    for rule in RULES:
        rule(trial)
    if other_processes:
        other_processes_replay(trial)
