"""Whether everything that is wanted can still be bought, against trying everything on a shop of fifteen products."""

import pytest

from tests.tsr_gym_envs.webshop.test_oracle import GOALS, PRODUCTS, TRIPS, after, try_everything
from tests.tsr_gym_envs.webshop.tiny_shop import tiny_shop
from tsr_gym_envs.webshop.env import WebShopEnv
from tsr_gym_envs.webshop.settings import make_settings


def shop_env(shop, **settings):
    shop.catalogue.digest = "tiny"
    return WebShopEnv(make_settings("default", settings), shop)


@pytest.mark.parametrize("per_turn", [1, 2])
def test_a_state_is_worth_one_where_some_way_of_shopping_meets_every_wish(per_turn):
    shop = tiny_shop(PRODUCTS, GOALS)
    env, truth = shop_env(shop, max_actions_per_turn=per_turn), try_everything(shop)
    seen = set()
    for number in range(len(GOALS)):
        for trip in TRIPS:
            state = after(shop, number, *trip)
            for turns in range(6 // per_turn):
                for actions in (None, 4):
                    left = turns * per_turn if actions is None else min(actions, turns * per_turn)
                    wanted = float(truth(state, left) == 1)
                    assert env.best_value(state, turns, actions) == wanted, (number, trip, turns, actions)
                    seen.add(wanted)
    assert seen == {0.0, 1.0}


def test_a_purchase_is_final():
    shop = tiny_shop(PRODUCTS, GOALS)
    env = shop_env(shop)
    trip = ("search[steel]", "click[b000000000]", "click[navy blue]", "click[20 oz]")
    right, wrong = after(shop, 0, *trip, "click[buy now]"), after(shop, 0, *trip[:-1], "click[buy now]")
    assert env.best_value(right, 0, None) == 1.0
    # A mug without its size was bought: turns that are left do not help.
    assert env.best_value(wrong, 10, None) == 0.0
