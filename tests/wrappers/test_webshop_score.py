"""WebShopScore: Eq. 15 of the paper, and the variant that reads the instruction."""

import gymnasium as gym
import pytest

from tsr_gym import ConfigError
from tsr_gym.wrappers import AnswerFormat, WebShopScore
from tsr_gym_envs.webshop.score import fit, overlap, progress
from tsr_gym_envs.webshop.shoppers import RuleShopper


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TSR_GYM_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield gym.make("tsr/WebShop-v0", num_products=20)


def scores(env):
    """Return what the rule shopper's episode is scored, turn by turn, and the states it reached."""
    env.reset(seed=3)
    found, states, ended = [], [], False
    while not ended:
        *_, terminated, truncated, info = env.step(RuleShopper().act(env.unwrapped))
        found.append(info["score"])
        states.append(env.unwrapped.state)
        ended = terminated or truncated
    return found, states


@pytest.mark.parametrize(("variant", "similarity"), [("paper", overlap), ("attributes", fit)])
def test_the_score_weighs_progress_and_similarity_of_the_state_reached(bare, variant, similarity):
    found, states = scores(WebShopScore(bare, alpha=2.0, beta=0.5, variant=variant))
    shop = bare.unwrapped.shop
    assert found == [2.0 * progress(shop, state) + 0.5 * similarity(shop, state) for state in states]
    assert found[0] < found[1] < found[-1]


def test_a_weight_of_nothing_leaves_the_other_part(bare):
    found, states = scores(WebShopScore(bare, alpha=1.0, beta=0.0))
    assert found == [progress(bare.unwrapped.shop, state) for state in states]
    found, states = scores(WebShopScore(bare, alpha=0.0))
    assert found == [overlap(bare.unwrapped.shop, state) for state in states]


@pytest.mark.parametrize(("variant", "alpha"), [("paper", 0.5), ("attributes", 0.1)])
def test_each_variant_has_a_weight_of_its_own(bare, variant, alpha):
    assert scores(WebShopScore(bare, variant=variant)) == scores(WebShopScore(bare, variant=variant, alpha=alpha))
    assert scores(WebShopScore(bare, variant=variant)) != scores(WebShopScore(bare, variant=variant, alpha=2 * alpha))


def test_an_unknown_variant_is_refused(bare):
    with pytest.raises(ConfigError, match=r"variant of \['attributes', 'paper'\], got 'magic'"):
        WebShopScore(bare, variant="magic")


def test_scores_rate_states_and_survive_a_wrapper_and_a_spec(bare):
    env = WebShopScore(AnswerFormat(bare), alpha=0.25, variant="attributes")
    assert env.score_of == "state"
    again = gym.make(env.spec)
    assert (again.alpha, again.beta, again.variant) == (0.25, 1.0, "attributes")
    again.reset(seed=1)
    *_, info = again.step("<answer>search[cup]</answer>")
    assert info["score"] == fit(again.unwrapped.shop, again.unwrapped.state)
