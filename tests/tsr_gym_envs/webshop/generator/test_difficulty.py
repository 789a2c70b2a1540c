"""How hard generated catalogues are, played with the fixed rules by shoppers of known skill."""

import gymnasium as gym
import numpy as np
import pytest

from tsr_gym_envs.webshop.catalogue.opening import import_catalogue
from tsr_gym_envs.webshop.generator import write_catalogue
from tsr_gym_envs.webshop.oracle import as_query
from tsr_gym_envs.webshop.shoppers import FirstHitShopper, OracleShopper, RuleShopper, play


def open_shop(tmp_path, seed, num_products=1000):
    write_catalogue(tmp_path / "files", num_products, seed)
    store = import_catalogue(tmp_path / "files", tmp_path / "store", with_nouns=False)
    return gym.make("tsr/WebShop-v0", catalogue=str(store.path), max_turns=15).unwrapped


def success(env, shopper, goals):
    return float(np.mean([played.success for played in play(env, shopper, goals)]))


def in_top_ten(env, goals):
    queries = {goal: as_query(env.shop.goals.goal(goal).instruction_text).lower() for goal in goals}
    return float(np.mean([env.shop.goals.row(goal) in env.shop.engine.rows(queries[goal])[:10] for goal in goals]))


def check_bounds(env, goals):
    assert 0.80 <= in_top_ten(env, goals) <= 0.95
    assert 0.30 <= success(env, RuleShopper(), goals) <= 0.60
    assert success(env, FirstHitShopper(), goals) <= 0.10
    assert success(env, OracleShopper(), goals) >= 0.97


def test_the_embedded_catalogue_is_neither_easy_nor_hopeless(tmp_path):
    env = open_shop(tmp_path, seed=0)
    rng = np.random.default_rng(0)
    assert 4500 < len(env.goals) < 8000
    check_bounds(env, rng.permutation(len(env.goals))[:250].tolist())


def test_every_product_that_is_asked_for_can_be_found_and_bought_for_the_full_reward(tmp_path):
    env = open_shop(tmp_path, seed=1, num_products=300)
    goals = {env.shop.goals.row(goal): goal for goal in range(len(env.goals))}
    assert len(goals) > 80
    assert success(env, OracleShopper(), goals.values()) == 1


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(5))
def test_catalogues_of_other_seeds_are_as_hard(seed, tmp_path):
    env = open_shop(tmp_path, seed)
    rng = np.random.default_rng(0)
    check_bounds(env, rng.permutation(len(env.goals))[:1000].tolist())
    # Draws by weight are nearly draws of products; goals without options are more frequent among them.
    drawn = [env.shop.goals.draw(share) for share in rng.random(1000)]
    assert 0.80 <= in_top_ten(env, drawn) <= 0.95
    assert 0.30 <= success(env, RuleShopper(), drawn) <= 0.60
    # On the real small set it is 0.16.
    assert success(env, FirstHitShopper(), drawn) <= 0.12
    assert success(env, OracleShopper(), drawn) >= 0.97
