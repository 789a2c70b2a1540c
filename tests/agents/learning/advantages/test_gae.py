"""Generalised advantage estimation: numbers by hand, and a loop that a child could follow."""

from dataclasses import replace

import pytest
import torch

from tests.agents.learning.test_batch import episode, turn
from tsr_gym.agents.episodes.trajectory import Group
from tsr_gym.agents.learning.advantages import gae, value_targets
from tsr_gym.agents.learning.batch import collate


def with_values(batch, *values):
    """Return the batch with values on its sampled tokens, in their order, and traps everywhere else."""
    filled = torch.full(batch.rewards.shape, 1000.0)
    filled[batch.sampled] = torch.tensor(values)
    return replace(batch, values=filled)


def ragged():
    """Three sampled tokens in one row, in two turns; then one token; then three tokens in two rows."""
    first = episode(turn([1, 2], [3, 4], 1.0, -1.0, -1.0), turn([1, 2, 3, 4, 5], [6], 2.0, -1.0))
    second = episode(turn([1], [2], -1.0, -1.0))
    third = episode(turn([1, 2, 3], [4, 5], 0.5, -1.0, -1.0), turn([9], [8], 4.0, -1.0))
    return with_values(collate([Group(0, (first, second)), Group(1, (third,))]), 0.5, 0.25, 1.0, 0.5, 2.0, 1.0, 3.0)


def test_with_gamma_and_lambda_1_it_is_the_return_to_come_minus_the_value():
    batch = ragged()
    advantages = gae(batch)
    # Returns to come: 3, 3, 2 | -1 | 4.5, 4.5, 4.
    expected = [3 - 0.5, 3 - 0.25, 2 - 1, -1 - 0.5, 4.5 - 2, 4.5 - 1, 4 - 3]
    assert advantages[batch.sampled].tolist() == pytest.approx(expected)
    assert torch.count_nonzero(advantages[~batch.sampled]) == 0


def test_with_other_gamma_and_lambda_by_hand():
    batch = ragged()
    found = gae(batch, gamma=0.5, lam=0.5)[batch.sampled].tolist()
    # First trajectory, from its end, gamma lambda = 1/4:
    #   delta_3 = 2 - 1 = 1                          A_3 = 1
    #   delta_2 = 1 + 0.5 * 1 - 0.25 = 1.25          A_2 = 1.25 + 0.25 * 1 = 1.5
    #   delta_1 = 0 + 0.5 * 0.25 - 0.5 = -0.375      A_1 = -0.375 + 0.25 * 1.5 = 0
    # Second: -1 - 0.5 = -1.5.
    # Third, across its two rows:
    #   delta_3 = 4 - 3 = 1                          A_3 = 1
    #   delta_2 = 0.5 + 0.5 * 3 - 1 = 1              A_2 = 1 + 0.25 = 1.25
    #   delta_1 = 0 + 0.5 * 1 - 2 = -1.5             A_1 = -1.5 + 0.25 * 1.25 = -1.1875
    assert found == pytest.approx([0.0, 1.5, 1.0, -1.5, -1.1875, 1.25, 1.0])


def test_lambda_0_looks_one_token_ahead():
    batch = ragged()
    found = gae(batch, gamma=1.0, lam=0.0)[batch.sampled].tolist()
    assert found == pytest.approx([0.25 - 0.5, 1 + 1 - 0.25, 2 - 1, -1.5, 1 - 2, 0.5 + 3 - 1, 4 - 3])


def by_loop(batch, gamma, lam):
    """Return the advantages by the definition: a double sum over a plain list of tokens per trajectory."""
    result = torch.zeros(batch.rewards.shape)
    for number in range(batch.num_trajectories):
        places = [
            (row, column)
            for row in range(len(batch.ids))
            if batch.trajectory[row] == number
            for column in range(batch.ids.shape[1])
            if batch.sampled[row, column]
        ]
        rewards = [batch.rewards[place].item() for place in places]
        values = [batch.values[place].item() for place in places] + [0.0]
        deltas = [rewards[t] + gamma * values[t + 1] - values[t] for t in range(len(places))]
        for t, place in enumerate(places):
            result[place] = sum((gamma * lam) ** (later - t) * deltas[later] for later in range(t, len(places)))
    return result


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.9, 0.7), (0.95, 0.0), (1.0, 0.5), (0.0, 0.9)])
def test_random_batches_against_the_definition(gamma, lam):
    draw = torch.Generator().manual_seed(int(100 * gamma + lam))

    def number(low, high):
        return int(torch.randint(low, high, (), generator=draw))

    for _ in range(6):
        trajectories = []
        for _ in range(number(1, 6)):
            turns, ids = [], [1]
            for _ in range(number(1, 5)):
                said = [2] * number(1, 5)
                turns.append(turn(ids, said, float(number(-3, 4)), *[-1.0] * len(said)))
                # Half of the turns go on in the row, half begin a new one.
                ids = [*ids, *said, 3] if number(0, 2) else [7] * number(1, 4)
            trajectories.append(episode(*turns))
        batch = collate([Group(0, tuple(trajectories))])
        batch = replace(batch, values=torch.randn(batch.rewards.shape, generator=draw))
        torch.testing.assert_close(gae(batch, gamma=gamma, lam=lam), by_loop(batch, gamma, lam), atol=1e-5, rtol=1e-5)


def test_the_critic_should_have_said_advantage_plus_value_and_is_asked_nowhere_else():
    batch = ragged()
    targets = value_targets(batch, gae(batch))
    assert targets[batch.sampled].tolist() == pytest.approx([3.0, 3.0, 2.0, -1.0, 4.5, 4.5, 4.0])
    assert torch.count_nonzero(targets[~batch.sampled]) == 0


def test_without_values_it_says_what_it_needs():
    with pytest.raises(ValueError, match=r"wanted batch\.values"):
        gae(replace(ragged(), values=None))
