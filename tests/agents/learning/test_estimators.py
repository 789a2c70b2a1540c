"""Estimators by name: the texts of a configuration, what each estimator needs, and which go with a critic."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from tests.agents.learning.advantages.forests import random_groups
from tsr_gym import ConfigError
from tsr_gym.agents.learning import advantages
from tsr_gym.agents.learning.advantages import tree_backup, tspo
from tsr_gym.agents.learning.advantages.choose_estimator import choose_estimator
from tsr_gym.agents.learning.batch import collate
from tsr_gym.agents.learning.estimators import ALWAYS, ESTIMATORS, Needs, declaration_of, estimator, needs_of

WITH_CRITIC = {"gae", "turn_gae", "bi_level_gae"}
OURS = {name: vars(advantages)[name] for name in ESTIMATORS}


@pytest.fixture
def batch():
    made = collate(random_groups(3))
    return replace(made, values=torch.randn(made.ids.shape, generator=torch.Generator().manual_seed(0)) * made.sampled)


def constant(batch, *, size=1.0):
    return size * batch.sampled


@pytest.mark.parametrize("name", sorted(set(ESTIMATORS) - {"tree_backup"}))
def test_every_estimator_is_there_by_its_name_with_a_critic_or_without(name, batch):
    choice = choose_estimator(name, critic=name in WITH_CRITIC)
    torch.testing.assert_close(choice.estimator(batch), vars(advantages)[name](batch))
    with pytest.raises(ConfigError, match="a critic: wanted algorithm ppo with one of gae, "):
        choose_estimator(name, critic=name not in WITH_CRITIC)


def test_a_backup_asks_the_critic_where_there_is_one(batch):
    alone, with_critic = (choose_estimator("tree_backup", critic=critic) for critic in (False, True))
    batch = replace(batch, finished=torch.zeros_like(batch.finished))
    torch.testing.assert_close(alone.estimator(batch), advantages.tree_backup(batch))
    torch.testing.assert_close(with_critic.estimator(batch), advantages.tree_backup(batch, unfinished="value"))
    assert not torch.equal(alone.estimator(batch), with_critic.estimator(batch))
    worth = with_critic.estimator(batch)
    assert torch.equal(with_critic.targets(batch, worth), advantages.tree_value_targets(batch, worth))
    with pytest.raises(ConfigError, match=r"has no use for a critic: .* tree_backup\(unfinished='value'\), or grpo"):
        choose_estimator("tree_backup(unfinished='failure')", critic=True)
    with pytest.raises(ConfigError, match=r"needs a critic: wanted algorithm ppo with .* tree_backup\("):
        choose_estimator("tree_backup(unfinished='value')", critic=False)


def test_auto_is_gae_with_a_critic_and_numbers_in_a_name_win(batch):
    assert torch.equal(choose_estimator("auto", critic=True, lam=0.5).estimator(batch), advantages.gae(batch, lam=0.5))
    assert torch.equal(choose_estimator("auto", critic=False).estimator(batch), advantages.grpo(batch))
    actual = choose_estimator("turn_gae(lam=0.25)", critic=True, gamma=0.5, lam=0.75).estimator(batch)
    assert torch.equal(actual, advantages.turn_gae(batch, gamma=0.5, lam=0.25))
    naive = choose_estimator("grpo(baseline='naive')", critic=False).estimator(batch)
    assert torch.equal(naive, advantages.grpo(batch, baseline="naive"))


def test_a_critic_learns_turns_from_the_estimator_of_turns_and_tokens_from_the_others(batch):
    worth = advantages.gae(batch)
    for name in ("gae", "bi_level_gae", "turn_gae"):
        targets = advantages.turn_value_targets if name == "turn_gae" else advantages.value_targets
        assert torch.equal(choose_estimator(name, critic=True).targets(batch, worth), targets(batch, worth))


@pytest.mark.parametrize("critic", [False, True])
def test_a_user_estimator_works_with_a_critic_and_without(batch, critic):
    choice = choose_estimator(f"{__name__}:constant(size=3.0)", critic=critic)
    assert torch.equal(choice.estimator(batch), 3.0 * batch.sampled)
    assert choice.targets is advantages.value_targets
    assert not choice.compares


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_that_needs_values_fails_without_and_no_other_does(name, batch):
    batch = replace(batch, values=None)
    if needs_of(OURS[name]).values:
        with pytest.raises(ValueError, match=r"batch\.values"):
            OURS[name](batch)
    else:
        assert torch.isfinite(OURS[name](batch)).all()


def test_needs_follow_from_bound_arguments_through_partials():
    assert needs_of(tree_backup) == Needs()
    assert needs_of(partial(partial(tree_backup, unfinished="value"), tau=2.0)).values
    assert not needs_of(partial(tree_backup, unfinished="score")).values
    assert needs_of(choose_estimator("grpo(baseline='naive')", critic=False).estimator).naive
    by_turn = choose_estimator("turn_gae", critic=True, lam=0.9).estimator
    assert needs_of(by_turn) == Needs(values=True, finished=True)
    assert needs_of(tspo).whole_groups
    assert not needs_of(partial(tspo, groups="all")).whole_groups


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_declares_its_needs(name):
    assert declaration_of(OURS[name]) is not None
    # Every estimator with a choice of baseline can be fitted on plain play, which must then be there.
    if not needs_of(OURS[name]).values:
        assert needs_of(partial(OURS[name], baseline="naive")).naive


def undeclared(batch, *, baseline="naive", groups="all_wrong", unfinished="value"):
    return batch.rewards


@estimator(needs={"values": ALWAYS, "naive": {"baseline": "naive"}}, compares=True)
def declared(batch, *, baseline="naive"):
    return batch.rewards


def test_a_user_estimator_needs_what_it_declares():
    assert needs_of(undeclared) == needs_of(torch.sum) == Needs()
    assert needs_of(declared) == Needs(values=True, naive=True)
    assert needs_of(partial(declared, baseline="all")) == Needs(values=True)
    assert choose_estimator(f"{__name__}:declared", critic=True).compares
    with pytest.raises(ConfigError, match="needs a critic"):
        choose_estimator(f"{__name__}:declared", critic=False)


def test_an_unknown_estimator_is_refused():
    with pytest.raises(ConfigError, match="there is no estimator 'no_such_thing': wanted one of bi_level_gae, dr_grpo"):
        choose_estimator("no_such_thing", critic=False)
