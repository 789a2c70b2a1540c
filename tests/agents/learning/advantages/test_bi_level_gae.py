"""Bi-level advantages, worked out by hand; test_published_numbers compares them with RAGEN's."""

from dataclasses import replace

import pytest
import torch

from tests.agents.learning.advantages.forests import Said, batch_of, path, random_groups
from tests.agents.learning.advantages.test_turn_gae import with_values
from tsr_gym.agents.learning.advantages import bi_level_gae, gae
from tsr_gym.agents.learning.batch import collate


def test_by_hand():
    batch = batch_of([path(Said(reward=1.0), Said(reward=2.0, tokens=1))])
    batch = with_values(batch, 0.5, 1.0, 3.0)
    # Over turns, gamma_h = lambda = 1/2, values at the ends 1 and 3:
    #   A_1 = 2 - 3 = -1
    #   A_0 = 1 + 0.5 * 3 - 1 + 0.25 * -1 = 1.25
    # Within the first turn, gamma = 1: its end has 1.25; before it delta = 0 + 1 - 0.5, plus lambda times 1.25.
    found = bi_level_gae(batch, gamma=1.0, lam=0.5, high_level_gamma=0.5)
    assert found[batch.sampled].tolist() == [0.5 + 0.5 * 1.25, 1.25, -1.0]


@pytest.mark.parametrize("seed", range(4))
def test_with_one_discount_and_lambda_1_it_is_gae(seed):
    batch = collate(random_groups(seed))
    batch = replace(batch, values=torch.randn(batch.rewards.shape, generator=torch.Generator().manual_seed(seed)))
    found = bi_level_gae(batch, gamma=1.0, lam=1.0, high_level_gamma=1.0)
    torch.testing.assert_close(found, gae(batch), atol=1e-5, rtol=1e-5)


def test_a_turn_without_reward_has_an_end_too():
    # Values 0; only the last turn earns. Per turn the reward is discounted once.
    batch = with_values(batch_of([path((-1, 0.0), (-1, 0.0), (-1, 8.0))]), *[0.0] * 6)
    found = bi_level_gae(batch, high_level_gamma=0.5)
    assert found[batch.sampled].tolist() == [2.0, 2.0, 4.0, 4.0, 8.0, 8.0]


def test_without_values_it_says_what_it_needs():
    with pytest.raises(ValueError, match=r"wanted batch\.values"):
        bi_level_gae(batch_of([path((-1, 1.0))]))
