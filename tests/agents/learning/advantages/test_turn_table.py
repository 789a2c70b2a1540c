"""The table of turns, read off a batch of two trajectories that share their first turn."""

from dataclasses import replace

import pytest
import torch

from tests.agents.learning.advantages.forests import Sampled, batch_of, path, random_groups
from tests.agents.learning.test_batch import episode, turn
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.learning.advantages.turn_table import TurnTable, discounted_sum, later, table_of
from tsr_gym.agents.learning.batch import collate


def shared():
    first = Sampled(1, 0.5, b"s", score=3.0, tokens=2, logprob=-0.5)
    left = path(first, Sampled(2, 1.0, b"t", tokens=3, logprob=-2.0))
    return batch_of([left, path(first, Sampled(3, -1.0, b"u", tokens=1), Sampled(4, 2.0, b"t", tokens=1))])


def test_an_entry_is_a_turn_of_a_trajectory():
    table = table_of(shared())
    assert table.trajectory.tolist() == [0, 0, 1, 1, 1]
    assert (table.turn.tolist(), table.step.tolist()) == ([0, 1, 0, 1, 2], [0, 1, 0, 1, 2])
    assert table.reward.tolist() == [0.5, 1.0, 0.5, -1.0, 2.0]
    assert table.score.tolist() == [3.0, 0.0, 3.0, 0.0, 0.0]
    assert table.tokens.tolist() == [2, 3, 2, 1, 1]
    assert table.surprisal.tolist() == [0.5, 2.0, 0.5, 1.0, 1.0]
    assert table.is_first.tolist() == [True, False, True, False, False]
    assert table.is_last.tolist() == [False, True, False, False, True]
    assert table.returns.tolist() == [1.5, 1.5, 1.5, 1.5, 1.5]
    assert table.last_rewards.tolist() == [1.0, 1.0, 2.0, 2.0, 2.0]
    # The shared turn is one node, two trajectories go through it.
    assert (table.node[0], table.sharers.tolist()) == (table.node[2], [2, 1, 2, 1, 1])
    assert table.parent.tolist() == [table.parent[0], table.node[0], table.parent[0], table.node[2], table.node[3]]
    # Turns in the same state have the same number.
    assert table.state[1] == table.state[4] != table.state[3]


def test_the_worked_example_at_the_top_of_the_module():
    first = turn([1], [5, 6], 0.0, -1, -1)
    on, other = turn([1, 5, 6, 2], [7], 4.0, -1), turn([1, 5, 6, 2], [8, 9], 0.0, -1, -1)
    shared = [replace(each, node=node) for each, node in ((first, 1), (on, 2), (other, 3))]
    table = table_of(collate([Group(0, (episode(shared[0], shared[1]), episode(shared[0], shared[2])))]))
    assert (table.node.tolist(), table.parent.tolist()) == ([1, 2, 1, 3], [0, 1, 0, 1])
    assert (table.reward.tolist(), table.returns.tolist()) == ([0, 4, 0, 0], [4, 4, 0, 0])
    assert (table.tokens.tolist(), table.starts.tolist()) == ([2, 1, 2, 2], [0, 2, 3, 5])
    assert (table.is_last.tolist(), table.sharers.tolist()) == ([False, True, False, True], [2, 1, 2, 1])
    assert table.entry.tolist() == [0, 0, 1, 2, 2, 3, 3]


def test_spreading_and_values_and_rows_of_a_table():
    batch = shared()
    spread = table_of(batch).spread(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]))
    assert spread.tolist() == [[0, 1, 1, 0, 2, 2, 2], [0, 3, 3, 0, 4, 0, 5]]
    values = torch.arange(14.0).reshape(2, 7)
    assert table_of(replace(batch, values=values)).value.tolist() == [2.0, 6.0, 9.0, 11.0, 13.0]
    assert table_of(batch).value is None
    batch = collate(random_groups(5))
    part = table_of(batch.rows((batch.trajectory >= 2).nonzero()[:, 0]))
    assert part.trajectory.unique().tolist() == list(range(batch.num_trajectories - 2))
    assert part.returns.tolist() == pytest.approx(table_of(batch).returns[table_of(batch).trajectory >= 2].tolist())


def test_the_order_of_rows_does_not_matter():
    spread_out = episode(turn([1], [2, 3], 1.0, -1, -1), turn([9], [4], 2.0, -1), turn([8, 8], [5], 3.0, -1))
    batch = collate([Group(0, (spread_out, *random_groups(3)[0].trajectories))])
    order = torch.randperm(len(batch.ids), generator=torch.Generator().manual_seed(1))
    straight, shuffled = table_of(batch), table_of(batch.rows(order))
    for name in TurnTable.__dataclass_fields__:
        if name not in ("row", "value", "shape"):
            assert torch.equal(getattr(straight, name), getattr(shuffled, name)), name
    assert torch.equal(shuffled.row, torch.argsort(order)[straight.row])


@pytest.mark.parametrize("discount", [0.0, 0.5, 0.99, 1.0, 1e-30])
@pytest.mark.parametrize("lengths", [[1], [2, 1, 3], [7, 8], [65, 1, 2]])
def test_a_discounted_sum_is_what_its_formula_says(discount, lengths):
    sequence = torch.tensor([number for number, length in enumerate(lengths) for _ in range(length)])
    values = torch.randn(len(sequence), dtype=torch.float64, generator=torch.Generator().manual_seed(len(lengths)))
    given = values.clone()
    actual = discounted_sum(values, sequence, discount)
    for t in range(len(values)):
        places = [place for place in range(t, len(values)) if sequence[place] == sequence[t]]
        assert actual[t].item() == pytest.approx(sum(discount ** (place - t) * given[place] for place in places))
    assert torch.equal(values, given)


def test_the_next_item_is_one_of_the_same_sequence():
    actual = later(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), torch.tensor([0, 0, 1, 2, 2, 2]))
    assert actual.tolist() == [2, 0, 0, 5, 6, 0]
