"""Stretches: their tokens see nothing but their keys, and no other cuts cost less."""

from itertools import combinations

import numpy as np
import pytest
import torch

from tests.agents.learning.layouts.rows import BATCHES, batch_of, random_groups
from tests.agents.learning.layouts.test_attention import seen_in_rows
from tests.agents.learning.layouts.test_forest import HAND, rows_batch
from tsr_gym.agents.learning.layouts import grow_forest
from tsr_gym.agents.learning.layouts.runs import GRAIN, Prices, cut_line

# Calls cost nothing, something, or everything.
PRICES = [Prices(0, 0, 1, 0), Prices(200, 3, 2, 1), Prices(1e9, 0, 1, 1)]


def cost(stretches, prices, heads=1, size=1):
    """Return what calls cost, in the words of `Prices`."""
    total = 0.0
    for start, stop, keys in stretches:
        pairs = (stop - start) * len(keys) * heads
        total += prices.call + prices.number * len(keys) * heads * size + pairs * (prices.pair + prices.product * size)
    return total


def test_calls_by_hand():
    # 5 6 7, then 8 4 3 below 5 6, then 9 below 5 6 8.
    line = grow_forest(rows_batch(HAND), share=True).line
    apart = cut_line(line, heads=1, size=1, prices=Prices(0, 0, 1, 0))
    assert [(one.start, one.stop, one.keys.tolist()) for one in apart] == [
        (0, 3, [0, 1, 2]),
        (3, 6, [0, 1, 3, 4, 5]),
        (6, 7, [0, 1, 3, 6]),
    ]
    together = cut_line(line, heads=1, size=1, prices=Prices(1000, 0, 1, 0))
    assert [(one.start, one.stop, one.keys.tolist()) for one in together] == [(0, 7, list(range(7)))]


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("prices", PRICES)
@pytest.mark.parametrize("name", BATCHES)
def test_stretches_are_the_line_and_their_tokens_see_nothing_but_their_keys(name, prices, share):
    forest = grow_forest(batch_of(BATCHES[name]()), share=share)
    seen = seen_in_rows(forest)
    stretches = cut_line(forest.line, heads=1, size=1, prices=prices)
    assert [one.start for one in stretches] + [len(forest.ids)] == [0, *(one.stop for one in stretches)]
    for start, stop, keys in stretches:
        assert set(keys.tolist()) == set(seen[start:stop].any(dim=0).nonzero()[:, 0].tolist())
        assert (np.diff(keys) > 0).all()


@pytest.mark.parametrize("prices", PRICES)
@pytest.mark.parametrize("seed", range(6))
def test_no_other_cuts_cost_less(seed, prices):
    forest = grow_forest(batch_of(random_groups(seed, trees=1, groups=1, turns=2)), share=True)
    size = len(forest.ids)
    seen = seen_in_rows(forest)
    firsts = [token for token in range(1, size) if int(forest.before[token]) != token - 1][:10]

    def stretches(cuts):
        for start, stop in zip([0, *cuts], [*cuts, size], strict=True):
            yield start, stop, seen[start:stop].any(dim=0).nonzero()[:, 0]

    found = cost(cut_line(forest.line, heads=2, size=4, prices=prices), prices, heads=2, size=4)
    every = (cuts for number in range(len(firsts) + 1) for cuts in combinations(firsts, number))
    assert found <= min(cost(stretches(cuts), prices, heads=2, size=4) for cuts in every) + 1e-6


def test_a_long_row_is_cut_where_its_square_would_be_half_in_vain():
    line = grow_forest(rows_batch([list(torch.arange(1, 301).tolist())]), share=False).line
    assert [one.stop for one in cut_line(line, heads=1, size=1, prices=Prices(0, 0, 1, 0))] == [
        *range(GRAIN, 300, GRAIN),
        300,
    ]
    assert len(cut_line(line, heads=1, size=1, prices=Prices(1e9, 0, 1, 0))) == 1
