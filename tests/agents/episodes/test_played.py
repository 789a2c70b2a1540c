"""Played episodes: every instance on the same dice, what they cost, and intervals worked out by hand."""

from functools import partial

import pytest

from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.evaluate import wilson
from tsr_gym.agents.episodes.played import Played, play
from tsr_gym.agents.policies.legal_policy import LegalPolicy
from tsr_gym.agents.strategies import beam, naive
from tsr_gym.budget import Budget
from tsr_gym.tree import Candidate
from tsr_gym_envs.frozen_lake.values import policy_value

LAKE = {"desc": ["SFF", "FHF", "FFG"], "max_turns": 4, "max_actions_per_turn": 1, "max_actions": 4}


def always(name):
    """Return a policy that says one action everywhere."""
    return lambda requests: [
        [Candidate(f"<think></think><answer>{name}</answer>")] * wish.samples for _, wish in requests
    ]


def test_success_has_wilsons_interval_where_every_instance_was_played_once():
    found = Played(((True,), (False,), (True,), (True,)), Budget())
    assert found.success == (0.75, *wilson(3, 4))
    assert found.episodes == 4


def test_success_of_several_seeds_has_an_interval_over_instances():
    found = Played(((True, True), (False, False)), Budget())
    assert found.success == (0.5, 0.0, 1.0)
    # Each instance half: nothing differs between instances.
    assert Played(((True, False), (False, True)), Budget()).success == (0.5, 0.5, 0.5)


def test_a_gain_is_worked_out_instance_by_instance():
    mine = Played(((True, True), (True, False), (False, False)), Budget())
    other = Played(((False, False), (True, False), (False, False)), Budget())
    mean, low, high = mine.gain_over(other)
    assert mean == pytest.approx(1 / 3)
    assert (low, high) == (0.0, 1.0)
    assert mine.gain_over(mine) == (0.0, 0.0, 0.0)


def test_the_policy_alone_wins_as_often_as_its_value_says():
    pool = EnvPool("frozen_lake", LAKE)
    exact = policy_value(
        pool.set([0])[0].unwrapped.state,
        lambda *_: {"Right": 1.0},
        ice=pool.base.settings.ice,
        limits=pool.base.limits,
    )
    found = play(pool, always("Right"), None, tasks=range(200), seeds=(0, 1, 2), batch=50)
    # 600 episodes: four standard deviations are at most 0.082.
    assert found.success.mean == pytest.approx(exact, abs=0.082)
    assert found.episodes == 600


def test_a_search_without_a_choice_plays_as_the_policy_alone():
    pool = EnvPool("frozen_lake", LAKE)
    alone = play(pool, LegalPolicy(pool.base), None, tasks=range(30), seeds=(0,))
    searched = play(pool, LegalPolicy(pool.base), partial(beam, width=1, branching=1), tasks=range(30), seeds=(0,))
    assert searched.successes == alone.successes
    assert searched.spent.env_steps > alone.spent.env_steps


def test_episodes_do_not_depend_on_how_many_are_played_together():
    pool = EnvPool("frozen_lake", LAKE, score="FrozenLakeScore")
    strategy, policy = partial(beam, width=2, branching=3), LegalPolicy(pool.base)
    seen = []
    whole = play(pool, policy, strategy, tasks=range(5), seeds=(0, 1))
    assert play(pool, policy, strategy, tasks=range(5), seeds=(0, 1), batch=3, watch=seen.append) == whole
    assert seen == [3, 6, 9, 10]
    assert [len(row) for row in whole.successes] == [2] * 5
    # One instance by itself, and another seed.
    assert play(pool, policy, strategy, tasks=[3], seeds=(0, 1)).successes[0] == whole.successes[3]
    assert play(pool, policy, strategy, tasks=range(12), seeds=(7,)) != play(
        pool, policy, strategy, tasks=range(12), seeds=(8,)
    )


def test_everything_that_was_spent_is_counted():
    pool = EnvPool("sokoban", {"level": "######\n#@ $.#\n######", "max_turns": 5, "max_actions_per_turn": 1})
    right = always("Right")
    alone = play(pool, right, None, tasks=[0, 1], seeds=(0,))
    # Two turns each, and as many imagined ones.
    assert (alone.spent.env_steps, alone.successes) == (8, ((True,), (True,)))
    # Of two equal candidates one step is taken; the second search looks one turn less far.
    searched = play(pool, right, partial(naive, rollouts=1), tasks=[0], seeds=(0,))
    assert searched.spent.env_steps == 2 + 1 + 2


def test_a_clairvoyant_search_wins_more_than_the_best_possible_play():
    honest = EnvPool("frozen_lake", {}, score="FrozenLakeScore")
    strategy = partial(beam, width=1, branching=8)
    tasks = range(40)
    policy = LegalPolicy(honest.base)
    fair = play(honest, policy, strategy, tasks=tasks, seeds=(0,)).success.mean
    seen = play(honest, policy, strategy, tasks=tasks, seeds=(0,), noise="same").success.mean
    best = sum(_optimum(honest, task) for task in tasks) / len(tasks)
    assert fair < best + 0.1 < seen


def _optimum(pool, task):
    base = pool.set([task])[0].unwrapped
    return base.best_value(base.state, base.limits.max_turns, base.limits.max_actions)
