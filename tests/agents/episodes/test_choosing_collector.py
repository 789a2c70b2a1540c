"""Of several instances for each group, the one whose outcome is most in doubt."""

from dataclasses import replace

import pytest

from tests.agents.episodes.test_collect import collector, pictures
from tsr_gym import ConfigError, InvalidTree
from tsr_gym.agents.episodes.choosing_collector import FILE, ChoosingCollector
from tsr_gym.agents.episodes.collect import Place, task_seed
from tsr_gym.agents.episodes.moments import harvest_moments
from tsr_gym.agents.episodes.settings import SearchConfig

AMONG_3 = SearchConfig(trajectories=4, choose_among=3)


def numbered(worth, config=AMONG_3):
    """Return a chooser for which instance number n is worth ``worth(n)``."""
    own = collector(config, "FrozenLake")
    numbers = {task_seed(own.seed, number): number for number in range(60)}
    return ChoosingCollector(own, lambda states: {(id(tree), node): worth(numbers[tree.seed]) for tree, node in states})


def known(chooser, episodes):
    """Return a chooser that has seen episodes."""
    chooser._episodes.extend(episodes)
    return chooser


# P is about 0, 1/2 and 1 at the values 0, 1 and 2.
SEEN = [(0.0, False)] * 500 + [(1.0, False)] * 100 + [(1.0, True)] * 100 + [(2.0, True)] * 500


def test_of_all_candidates_of_a_group_the_one_is_played_that_may_come_out_either_way():
    worth = [0, 1, 2, 2, 0, 1, 1, 0, 0]
    chooser = known(numbered(lambda number: float(worth[number % 9])), SEEN)
    found = chooser.collect(0, 3)
    assert [group.task for group in found.groups] == [task_seed(chooser.collector.seed, n) for n in (1, 5, 6)]
    signs = chooser.signs()
    # (1/2)^4 twice: all four succeed, or none does.
    assert signs["mixed_foretold"] == pytest.approx(1 - 2 / 16, abs=0.01)
    assert signs["mixed_foretold_of_all"] < 0.6
    assert chooser.signs() == {}


def test_before_anything_is_known_the_first_candidates_are_played():
    chooser = numbered(lambda number: float(number))
    expected = collector(AMONG_3, "FrozenLake").collect_at([Place(0), Place(3)])
    assert pictures(chooser.collect(0, 2)) == pictures(expected)


def test_among_one_nothing_is_chosen():
    config = replace(AMONG_3, choose_among=1)
    chooser = numbered(lambda number: float(number), config)
    assert pictures(chooser.collect(2, 3)) == pictures(collector(config, "FrozenLake").collect(2, 3))


def test_what_became_of_every_episode_is_remembered_with_the_value_of_its_start():
    chooser = numbered(lambda number: 10.0 * number)
    found = chooser.collect(4, 2)
    starts = [120.0] * 4 + [150.0] * 4
    outcomes = [one.success for group in found.groups for one in group.trajectories]
    assert list(chooser._episodes) == list(zip(starts, outcomes, strict=True))


def test_groups_that_begin_at_moments_are_left_alone():
    chooser = known(numbered(lambda number: float(number % 3)), SEEN)
    tree = chooser.collect(0, 1).trees[0][0]
    (moment, *_) = harvest_moments(tree, threshold=1.0, min_tries=1)
    before = len(chooser._episodes)
    found = chooser.collect(0, 2, [moment, None])
    assert found.trees[0][0].nodes[0].observation == moment.observation
    assert found.groups[1].task == task_seed(chooser.collector.seed, 4)
    assert len(chooser._episodes) == before + 4


def test_a_chooser_that_is_read_from_a_checkpoint_chooses_alike(tmp_path):
    one, other = (numbered(lambda number: number / 7) for _ in range(2))
    one.collect(0, 8)
    one.save(tmp_path)
    other.load(tmp_path)
    assert pictures(other.collect(8, 4)) == pictures(one.collect(8, 4))


def test_a_damaged_file_is_refused(tmp_path):
    (tmp_path / FILE).write_text("[[1.0]]")
    with pytest.raises(InvalidTree, match="damaged"):
        numbered(lambda number: 0.0).load(tmp_path)


def test_fewer_than_one_candidate_is_refused():
    with pytest.raises(ConfigError, match="choose_among"):
        SearchConfig(choose_among=0)
