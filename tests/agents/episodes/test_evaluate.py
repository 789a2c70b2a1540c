"""Evaluation: every instance once, without search or with it, and intervals worked out by hand."""

from functools import partial

import numpy as np
import pytest

from tests.agents.learning.test_batch import turn
from tests.agents.worlds import WALKER
from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.evaluate import bars, evaluate, held_out, summarise, wilson
from tsr_gym.agents.episodes.trajectory import Trajectory
from tsr_gym.agents.policies.random_policy import RandomPolicy
from tsr_gym.agents.strategies import beam
from tsr_gym_envs.frozen_lake.optimal import success_ceiling


@pytest.mark.parametrize(
    ("successes", "number", "low", "high"),
    [
        # With z = 1.96 and z^2 = 3.8416. Half of 100: (50 + 1.9208 -+ 1.96 sqrt(25 + 0.9604)) / 103.8416.
        (50, 100, 0.403830, 0.596170),
        # None of 10: from 0 to 3.8416 / 13.8416.
        (0, 10, 0.0, 0.277540),
        # All of 10: from 10 / 13.8416 to 1.
        (10, 10, 0.722460, 1.0),
        # One of one.
        (1, 1, 0.206543, 1.0),
        # (8 + 1.9208 -+ 1.96 sqrt(1.6 + 0.9604)) / 13.8416.
        (8, 10, 0.490157, 0.943319),
    ],
)
def test_wilsons_interval(successes, number, low, high):
    assert wilson(successes, number) == pytest.approx((low, high), abs=2e-6)


def test_of_nothing_nothing_is_known():
    assert wilson(0, 0) == (0.0, 1.0)


def test_wilsons_interval_holds_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    hits = [low <= 0.2 <= high for low, high in (wilson(int(rng.binomial(60, 0.2)), 60) for _ in range(2000))]
    assert 0.93 <= np.mean(hits) <= 0.975


def test_a_summary_is_the_means_of_the_episodes():
    won = Trajectory((turn([1], [2, 3], 0.5, 0, 0), turn([1], [2], 1.5, 0)), True, 9.0, "naive")
    bad = turn([1], [2, 3, 4], -0.5, 0, 0, 0)
    lost = Trajectory((type(bad)(bad.prompt_ids, bad.token_ids, bad.logprobs, -0.5, False, 0),), False, 9.0, "naive")
    found = summarise([won, lost])
    assert (found.success, found.total_reward, found.turns, found.response_length) == (0.5, 0.75, 1.5, 3.0)
    # Two of three turns had the form.
    assert found.valid == pytest.approx(2 / 3)
    assert (found.instances, found.interval) == (2, wilson(1, 2))
    assert summarise([]).success == 0.0


def test_the_held_out_instances_are_always_the_same_first_ones():
    assert held_out(5) == held_out(9)[:5]
    assert len(set(held_out(100))) == 100


def test_every_instance_is_played_once_and_by_itself():
    pool = EnvPool("frozen_lake", {})
    tasks = held_out(40)
    whole = evaluate(pool, WALKER, tasks=tasks, seed=3)
    assert whole.instances == 40
    assert whole == evaluate(pool, WALKER, tasks=tasks, seed=3, batch=7)
    alone = [evaluate(pool, WALKER, tasks=[task], seed=3).success for task in tasks]
    assert whole.success == pytest.approx(sum(alone) / 40)
    assert evaluate(pool, WALKER, tasks=tasks, seed=4) != whole


def test_the_random_bar_is_what_random_play_comes_to():
    pool = EnvPool("frozen_lake", {"max_actions_per_turn": 1, "max_turns": 10})
    tasks = held_out(400)
    limits = bars(pool, tasks=tasks)
    found = evaluate(pool, RandomPolicy(pool.base.actions), tasks=tasks)
    assert found.interval[0] <= limits.random <= found.interval[1]
    assert limits.random < limits.optimal


def test_the_optimal_bar_is_the_mean_of_the_instances_exact_optima():
    pool = EnvPool("frozen_lake", {})
    tasks = held_out(6)
    maps = [pool.set([task])[0].unwrapped.state.desc for task in tasks]
    exact = [success_ceiling(desc, max_turns=5, max_actions_per_turn=5) for desc in maps]
    assert bars(pool, tasks=tasks).optimal == pytest.approx(sum(exact) / 6)
    # Every default room of Sokoban can be solved within the limits.
    assert bars(EnvPool("sokoban", {}), tasks=tasks).optimal == 1.0


def test_without_an_oracle_there_are_no_bars():
    found = bars(EnvPool("frozen_lake", {"max_actions": None}), tasks=held_out(2))
    assert (found.random, found.optimal) == (None, None)
    assert bars(EnvPool("sokoban", {}), tasks=[]).optimal is None


def test_with_a_search_the_played_episode_counts_and_its_dice_do_not_depend_on_the_instances_seed():
    pool = EnvPool("frozen_lake", {}, score="FrozenLakeScore")
    tasks = held_out(60)
    search = partial(beam, width=1, branching=8, depth=1)
    honest = evaluate(pool, WALKER, tasks=tasks, strategy=search)
    clairvoyant = evaluate(pool, WALKER, tasks=tasks, strategy=search, noise="same")
    plain = evaluate(pool, WALKER, tasks=tasks)
    ceiling = bars(pool, tasks=tasks).optimal
    assert plain.success < honest.success < ceiling < clairvoyant.success
    assert evaluate(pool, WALKER, tasks=tasks[:20], strategy=search) == evaluate(
        pool, WALKER, tasks=tasks[:20], strategy=search, batch=3
    )
    # Another seed, other dice on the same instances.
    assert evaluate(pool, WALKER, tasks=tasks, strategy=search, seed=1) != honest
