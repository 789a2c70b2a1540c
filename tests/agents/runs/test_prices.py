"""Prices of a run: what they are, what follows from them on failed play, and that a run repeats its choices."""

from math import inf

import pytest

from tests.agents.short_runs import records, result, short_run
from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.episodes.collect import SEARCHED, Odds, Tried
from tsr_gym.agents.episodes.settings import SearchConfig
from tsr_gym.agents.runs.prices import EXPLORED, KEPT, PRIOR, UNPROVEN, Prices
from tsr_gym.agents.runs.trainer import resume_run, start_run
from tsr_gym.errors import CheckpointError

CHEAPER = SearchConfig(search="levin", search_when="cheaper", naive=4, trajectories=1, groups=16, search_worth=3.0)


def prices(*updates, config=CHEAPER):
    book = Prices(config)
    for update in updates:
        book.keep({way: Tried(*counts) for way, counts in update.items()})
    return book


def test_a_price_is_tokens_over_useful_groups_and_old_measurements_fade():
    book = prices({"play": (10, 0, 1000)}, {"play": (10, 2, 900)})
    assert book.price("play") == pytest.approx((KEPT * 1000 + 900) / (2 + PRIOR))
    # None yet is a price that rises with what was spent, and not infinity.
    assert prices({"play": (10, 0, 1000)}).price("play") == 1000 / PRIOR < inf
    assert prices().price("search") == 0


def test_ways_without_tokens_have_chances_too():
    assert 0 <= prices({"play": (4, 0, 0), "search": (1, 0, 0), "wider": (1, 0, 0)}).odds().search <= 1


@pytest.mark.parametrize(
    ("update", "odds"),
    [
        # Search costs three times as much as plain play at most: failed groups are searched, but for a few.
        ({"play": (10, 1, 1000), "search": (4, 3, 4000), "wider": (2, 0, 200)}, "search"),
        # It costs more: failed groups are left, or played again where that is cheaper than new ones.
        ({"play": (100, 50, 10_000), "search": (4, 1, 4000), "wider": (2, 0, 400)}, "leave"),
        ({"play": (10, 1, 1000), "search": (4, 0, 9000), "wider": (4, 2, 400)}, "wider"),
    ],
)
def test_failed_groups_are_searched_while_that_is_worth_its_price(update, odds):
    search, wider = prices(update).odds()
    expected = {"search": search > 0.6, "wider": wider > 0.9, "leave": search < 0.1 and wider < 0.3}
    assert expected[odds]


def test_what_is_explored_takes_a_twentieth_of_the_tokens():
    update = {"play": (100, 50, 10_000), "search": (5, 1, 5000), "wider": (1, 0, 100)}
    search, wider = prices(update).odds()
    for chance, cost, others in ((search, 1000, 10_100), (wider, 100, 15_000)):
        # Of as many failed groups again, this chance costs so much.
        assert 50 * chance * cost == pytest.approx(EXPLORED / (1 - EXPLORED) * others, rel=0.02)


def test_searches_that_never_succeeded_take_a_bounded_share():
    book = prices({"play": (20, 0, 2000), "search": (1, 0, 500)})
    chance = book.odds().search
    assert 20 * chance * 500 == pytest.approx(UNPROVEN / (1 - UNPROVEN) * 2000, rel=0.02)
    # Before the first one, a round of sixteen groups has one search.
    assert prices({"play": (20, 0, 2000), "wider": (1, 0, 100)}).odds().search == 1 / 16


def test_rounds_are_planned_for_what_the_next_group_costs():
    book = prices(*[{"play": (10, 2, 1000)}] * 9, {"play": (10, 1, 1000), "search": (1, 1, 1000)})
    assert book.odds().search > 0.9
    assert book.dearer > 5
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
    assert (book.odds(), book.metrics(), [*tmp_path.iterdir()]) == (SEARCHED, {}, [])
    assert Odds() == SEARCHED


def test_a_stopped_run_makes_the_same_choices(base_model, tmp_path):
    changes = {
        "task": {"env_set": ("solution_length=[1,2]",), "eval_env_set": ("solution_length=[1,2]",)},
        "search": {"search": "levin(expansions=4)", "search_when": "cheaper", "naive": 3, "trajectories": 1},
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
    assert len({line["odds_search"] for line in lines}) > 1


def test_the_recipe_auto_plays_first_and_lets_prices_decide():
    config = TrainConfig.from_recipe("auto", env="sokoban")
    assert (config.search.search_when, config.search.naive, config.task.score) == ("cheaper", 4, "reward")
