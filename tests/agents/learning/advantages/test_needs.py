"""What estimators need, against what happens to them without."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from tests.agents.learning.advantages.forests import random_groups
from tsr_gym.agents.learning import advantages
from tsr_gym.agents.learning.advantages import Needs, needs_of, tree_backup, tspo
from tsr_gym.agents.learning.advantages.choose_estimator import choose_estimator
from tsr_gym.agents.learning.batch import collate

OTHERS = {"Backup", "Contrast", "Needs", "estimate", "needs_of"}

OTHERS |= {"tree_value_targets", "turn_value_targets", "value_targets"}
OURS = {name: vars(advantages)[name] for name in set(advantages.__all__) - OTHERS}


@pytest.mark.parametrize("name", sorted(OURS))
def test_an_estimator_that_needs_values_fails_without_and_no_other_does(name):
    batch = replace(collate(random_groups(1)), values=None)
    if needs_of(OURS[name]).values:
        with pytest.raises(ValueError, match=r"wanted batch\.values"):
            OURS[name](batch)
    else:
        assert torch.isfinite(OURS[name](batch)).all()


def test_needs_follow_from_chosen_arguments_through_partials():
    assert needs_of(tree_backup) == Needs(values=False, naive=False, finished=False)
    assert needs_of(partial(partial(tree_backup, unfinished="value"), tau=2.0)).values
    assert not needs_of(partial(tree_backup, unfinished="score")).values
    assert needs_of(choose_estimator("grpo(baseline='naive')", critic=False).estimator).naive
    assert needs_of(choose_estimator("turn_gae", critic=True, lam=0.9).estimator) == Needs(True, False, True)
    assert needs_of(tspo).whole_groups
    assert not needs_of(partial(tspo, groups="all")).whole_groups


def test_an_estimator_of_ones_own_needs_what_it_says():
    assert needs_of(lambda batch: batch.rewards) == Needs(False, False, False)

    def mine(batch, *, baseline="naive"):
        return batch.rewards

    assert needs_of(mine).naive
    assert not needs_of(partial(mine, baseline="all")).naive
