"""The success of random play: against every way that an episode can go, in a tiny shop."""

from fractions import Fraction

import pytest

from tests.tsr_gym_envs.webshop.test_compact import shop_env
from tests.tsr_gym_envs.webshop.tiny_shop import goal, product

PRODUCTS = [
    product(
        0, "Steel mug", options=[("color", ("blue", "red")), ("size", ("12 oz", "8 oz"))], attributes=["leak proof"]
    ),
    product(1, "Glass mug", options=[("color", ("blue", "tan"))]),
    product(2, "Plain mug"),
]
GOALS = [
    goal(PRODUCTS[0], "a mug with color: blue, and size: 8 oz", options=[("color", "blue"), ("size", "8 oz")]),
    goal(PRODUCTS[0], "steel mug, blue", options=["blue"]),
]


def every_way(env, state, left):
    """Return the success of random play by walking all ways, one at a time."""
    actions = env.legal_actions(state)
    if not left or not actions:
        return Fraction(0)
    total = Fraction(0)
    for action in actions:
        after, _, terminated, info = env.transition(state, action, None)
        total += Fraction(int(info["success"])) if terminated else every_way(env, after, left - 1)
    return total / len(actions)


@pytest.mark.parametrize("mode", ["compact", "text"])
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("max_turns", [2, 4, 5])
def test_random_success_is_the_mean_over_all_ways(mode, number, max_turns):
    env = shop_env(number=number, goals=GOALS, products=PRODUCTS, observation_mode=mode, max_turns=max_turns)
    random, best = env.success_bars(env.state)
    assert random == pytest.approx(float(every_way(env, env.state, max_turns)))
    # A search, the product, as many options as are wanted, the purchase.
    assert best == float(max_turns >= (5 if number == 0 else 4))
    assert (random > 0) == (best == 1)


def test_there_are_no_bars_where_turns_or_limits_are_others():
    for settings in ({"max_turns": None}, {"max_actions_per_turn": 2}):
        env = shop_env(goals=GOALS, products=PRODUCTS, **settings)
        assert env.success_bars(env.state) is None
