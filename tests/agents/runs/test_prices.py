"""Prices of a run: what they are, what follows from them on failed play, and that a run repeats its choices."""

import pytest

from tests.agents.short_runs import records, result, short_run
from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.episodes.collect import Tried
from tsr_gym.agents.episodes.settings import SearchConfig
from tsr_gym.agents.runs.prices import EXPLORED, KEPT, PRIOR, UNPROVEN, UNTRIED, Prices
from tsr_gym.agents.runs.trainer import resume_run, start_run
from tsr_gym.errors import CheckpointError

CHEAPER = SearchConfig(search="levin", search_when="cheaper", naive=4, trajectories=1, groups=16)


def prices(*updates, config=CHEAPER):
    book = Prices(config)
    for update in updates:
        book.keep({way: Tried(*counts) for way, counts in update.items()})
    return book


def test_a_price_is_tokens_over_useful_groups_and_old_measurements_fade():
    book = prices({"play": (10, 0, 1000)}, {"play": (10, 2, 900)})
    assert book.price("play") == pytest.approx((KEPT * 1000 + 900) / (KEPT**2 * PRIOR + 2))
    # None yet is a price that rises with what was spent, and not infinity.
    assert prices({"play": (10, 0, 1000)}).price("play") == 1000 / (KEPT * PRIOR)
    assert prices().price("play") == prices().price("search") == 0


def test_a_search_that_was_never_tried_costs_as_ten_groups_of_plain_play():
    assert prices({"play": (20, 2, 3000)}).price("search") == 10 * 150 / PRIOR


def test_a_search_that_never_succeeded_does_not_get_cheaper_while_it_is_forgotten():
    book = prices({"play": (10, 2, 1000), "search": (1, 0, 1500)}, *[{"play": (10, 2, 1000)}] * 20)
    assert book.price("search") >= 1500 / PRIOR
    assert book.chance() < 0.1


def test_ways_without_tokens_have_chances_too():
    assert 0 <= prices({"play": (4, 0, 0), "search": (1, 0, 0)}).chance() <= 1
    assert 0 <= prices({"play": (4, 4, 100), "search": (1, 0, 0)}).chance() <= 1


@pytest.mark.parametrize(
    ("update", "searched"),
    [
        ({"play": (10, 1, 1000), "search": (4, 8, 4000)}, True),
        ({"play": (10, 1, 1000), "search": (4, 3, 4000)}, False),
        ({"play": (100, 50, 10_000), "search": (4, 1, 4000)}, False),
        ({"play": (10, 1, 1000), "search": (4, 0, 9000)}, False),
    ],
)
def test_failed_groups_are_searched_while_that_is_cheaper_than_plain_play(update, searched):
    chance = prices(update).chance()
    assert chance == 1 if searched else chance < 0.1


@pytest.mark.parametrize(
    ("search", "share"), [((5, 1, 5000), EXPLORED), ((1, 0, 1000), EXPLORED), ((0, 0, 0), EXPLORED)]
)
def test_what_is_explored_takes_a_twentieth_of_the_tokens(search, share):
    chance = prices({"play": (100, 50, 10_000), "search": search}).chance()
    cost = 1000 if search[0] else UNTRIED * 100
    # Of as many failed groups again, this chance costs so much.
    assert 50 * chance * cost == pytest.approx(share / (1 - share) * 10_000, rel=0.02)


def test_searches_that_never_succeeded_take_a_bounded_share():
    chance = prices({"play": (20, 0, 2000), "search": (1, 0, 500)}).chance()
    assert 20 * chance * 500 == pytest.approx(UNPROVEN / (1 - UNPROVEN) * 2000, rel=0.03)
    # Before any play, a search is taken to cost as ten groups.
    assert prices().chance() == pytest.approx(UNPROVEN / (1 - UNPROVEN) / UNTRIED)


def test_rounds_are_planned_for_what_the_next_group_costs():
    book = prices(*[{"play": (10, 2, 1000)}] * 9, {"play": (10, 0, 1000), "search": (9, 9, 4000)})
    assert book.chance() == 1
    assert book.dearer > 3
    assert prices(config=SearchConfig()).dearer == 1


def test_prices_are_in_a_checkpoint_and_a_damaged_file_is_refused(tmp_path):
    book = prices({"play": (10, 2, 1000), "search": (3, 1, 500)})
    book.save(tmp_path)
    again = prices()
    again.load(tmp_path)
    assert (again.metrics(), again.dearer) == (book.metrics(), book.dearer)
    for text in ("[1", "{}", '{"tried": {"play": [1]}, "counts": [1, 2, 3]}'):
        (tmp_path / "prices.json").write_text(text)
        with pytest.raises(CheckpointError, match=r"prices\.json"):
            prices().load(tmp_path)


def test_runs_without_prices_search_as_ever_and_write_nothing(tmp_path):
    book = prices({"play": (10, 2, 1000)}, config=SearchConfig())
    book.save(tmp_path)
    assert (book.chance(), book.metrics(), [*tmp_path.iterdir()]) == (1, {}, [])


def test_a_stopped_run_makes_the_same_choices(base_model, tmp_path, monkeypatch):
    # So short a run searches only if the first search is taken to be cheap.
    monkeypatch.setattr("tsr_gym.agents.runs.prices.UNTRIED", 0.5)
    changes = {
        "task": {"env_set": ("solution_length=[1,2]",), "eval_env_set": ("solution_length=[1,2]",)},
        "search": {"search": "levin(expansions=4)", "search_when": "cheaper", "naive": 1, "trajectories": 1},
        "learn": {"algorithm": "grpo"},
        "run": {"updates": 4, "checkpoint_every": 1},
    }  # fmt: skip
    whole, half = tmp_path / "whole", tmp_path / "half"
    start_run(short_run(whole, base_model, **changes), base_model).run()
    stops = iter((False, True))
    start_run(short_run(half, base_model, **changes), base_model).run(stop=lambda: next(stops))
    resume_run(half).run()
    assert result(half) == result(whole)
    lines = records(whole)
    assert all(line["price_play"] > 0 for line in lines)
    assert len({line["chance_search"] for line in lines}) > 1
    assert all(0 <= line["share_search"] <= 1 for line in lines)
    assert any(line["share_search"] > 0 for line in lines)


def test_the_recipe_auto_plays_first_and_lets_prices_decide():
    config = TrainConfig.from_recipe("auto", env="sokoban")
    assert (config.search.search_when, config.search.naive, config.task.score) == ("cheaper", 8, "reward")
    assert (config.store.fit_from, config.store.fit_lr, config.learn.lr > 0) == ("current", None, True)
