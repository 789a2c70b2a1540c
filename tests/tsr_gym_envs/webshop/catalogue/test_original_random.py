"""The original's random numbers, against Python's own global functions and the golden cases."""

import json
import random
import string

import pytest

from tsr_gym_envs.webshop.catalogue.original_random import draw_name, draw_order, draw_rows, generator_of


@pytest.fixture
def global_random():
    """Python's global generator, put back afterwards."""
    state = random.getstate()
    yield random
    random.setstate(state)


@pytest.mark.parametrize("count", [0, 1, 2, 13, 6910])
def test_goals_are_shuffled_as_a_list_is(global_random, count):
    expected = list(range(count))
    global_random.seed(233)
    global_random.shuffle(expected)
    order, dice = draw_order(count)
    assert order.tolist() == expected
    assert dice == global_random.getstate()


def test_the_order_of_the_real_goals_is_the_golden_one(shared):
    row = json.loads((shared / "golden" / "webshop" / "rng_reset_sequence.json").read_text())
    assert draw_order(6910)[0][:50].tolist() == row["perm_head"]


def test_names_and_rows_are_drawn_as_the_original_draws_them(global_random):
    global_random.seed(7)
    ours = generator_of(7)
    products = list(range(1000))
    for _ in range(5):
        assert draw_name(ours) == "".join(global_random.choices(string.ascii_lowercase, k=10))
        assert draw_rows(ours, 1000) == tuple(global_random.sample(products, k=50))
    assert ours.getstate() == global_random.getstate()


def test_few_products_are_all_listed():
    assert sorted(draw_rows(generator_of(1), 7)) == list(range(7))


def test_a_state_continues_where_it_was_taken_and_the_global_generator_is_left_alone(global_random):
    before = global_random.getstate()
    generator = generator_of(3)
    generator.random()
    state = generator.getstate()
    expected = [generator.random() for _ in range(3)]
    again = generator_of(state)
    assert [again.random() for _ in range(3)] == expected
    assert global_random.getstate() == before
