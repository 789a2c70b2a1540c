"""Who teaches a small model to shop: turn by turn on a tiny shop, and how well on the embedded one."""

from functools import partial

import gymnasium as gym
import numpy as np
import pytest

from tests.tsr_gym_envs.trips import trip
from tests.tsr_gym_envs.webshop.test_compact import PRODUCTS, TEXT, goal, shop_env
from tsr_gym_envs.webshop.teaching import poor_turn, teacher_turn

RNG = np.random.default_rng(0)


def test_the_teacher_searches_for_all_opens_the_first_that_will_do_chooses_and_buys():
    env = shop_env()
    expected = "search [ leak proof steel mugs kitchen navy blue 5 ]"
    assert trip(env, teacher_turn) == [expected, "click [ r1 ]", "click [ navy blue ]", "click [ 5 ]", "click [ buy ]"]
    assert env.teaching().accepts(env)


def test_the_teacher_goes_back_from_what_lacks_an_option_while_there_is_time():
    text = TEXT.replace("navy/blue", "green").replace("mugs", "mug")
    goals = [goal(PRODUCTS[0], text, options=[("color", "green")])]
    # The second result is dear. With two options to choose, another product takes more than five turns.
    tried = ["click [ r1 ]", "click [ prev ]", "click [ r3 ]", "click [ prev ]", "click [ r4 ]", "click [ buy ]"]
    assert trip(shop_env(goals=goals, max_turns=11), teacher_turn)[1:] == tried
    env = shop_env(goals=goals, max_turns=9)
    assert trip(env, teacher_turn)[1:] == [*tried[:3], "click [ buy ]"]
    assert not env.teaching().accepts(env)
    only = [goal(PRODUCTS[0], TEXT.replace("navy/blue", "green"), options=[("color", "green")])]
    assert trip(shop_env(goals=only), teacher_turn)[1:] == ["click [ r1 ]", "click [ 5 ]", "click [ buy ]"]


def test_the_teacher_reads_pages_and_not_the_goal():
    shown, hidden = shop_env(), shop_env(goals=[goal(PRODUCTS[1], TEXT, options=[("lid", "red")])])
    assert trip(shown, teacher_turn) == trip(hidden, teacher_turn)


def test_without_spelled_out_options_the_teacher_takes_the_longest_that_the_instruction_contains():
    assert trip(shop_env(number=1), teacher_turn)[2:] == ["click [ 5 oz ]", "click [ buy ]"]


def test_where_nothing_is_found_the_teacher_asks_for_less():
    goals = [goal(PRODUCTS[0], "socks made of wool")]
    assert trip(shop_env(goals=goals, max_turns=3), teacher_turn) == [
        "search [ socks made wool ]",
        "search [ socks ]",
        "search [ socks ]",
    ]


@pytest.mark.parametrize("mode", ["text", "text_options", "rich"])
def test_in_other_modes_the_teacher_uses_their_names(mode):
    turns = trip(shop_env(observation_mode=mode), teacher_turn)
    assert turns[1:] == ["click[b000000000]", "click[navy/blue]", 'click[5"]', "click[buy now]"]


def test_the_hasty_shopper_varies_its_turns_and_always_buys():
    queries, products, bought = set(), set(), 0
    for _ in range(60):
        turns = trip(shop_env(number=1), poor_turn, RNG)
        queries.add(turns[0])
        products.add(turns[1])
        bought += turns[-1] == "click [ buy ]"
    words = ("steel", "mug", "5", "oz")
    assert bought >= 40
    assert len(products) > 5
    # As the teacher begins, so that the form stays what it was.
    assert queries == {f"search [ {' '.join(words[:count])} ]" for count in (1, 2, 3)}


def test_a_poorer_shopper_hardly_chooses_and_a_patient_one_asks_for_everything():
    poorer = partial(poor_turn, p_choose=0.0, most_words=0)
    for _ in range(20):
        turns = trip(shop_env(), poorer, RNG)
        assert turns[0] == "search [ leak proof steel mugs kitchen navy blue 5 ]"
        assert (len(turns), turns[-1]) == (3, "click [ buy ]")
    always = trip(shop_env(max_turns=9), partial(poor_turn, p_choose=1.0), RNG)
    assert "click [ buy ]" not in always or always.index("click [ buy ]") == len(always) - 1


def test_on_generated_goods_the_hasty_shopper_uses_only_names_on_the_page_and_rarely_succeeds():
    env = gym.make("tsr/WebShop-v0", split="train", observation_mode="compact", max_turns=9).unwrapped
    solved = 0
    for seed in range(200):
        env.reset(seed=seed)
        # Every turn has to be valid.
        turns = trip(env, poor_turn, RNG)
        assert turns[-1] == "click [ buy ]" or len(turns) == 9
        solved += env.is_success(env.state)
    assert solved <= 20


def test_words_that_stand_for_goods_may_be_exchanged_and_those_of_the_page_may_not():
    teaching = shop_env().teaching()
    assert {"want", "r10", "click", "ok", "seen", "steel", "navy", "5"} <= set(teaching.words)
    assert {"steel", "navy"} <= teaching.permutable <= set(teaching.words)
    assert teaching.permutable.isdisjoint({"want", "r1", "buy", "ok", "5", "|"})
    assert (teaching.copying, teaching.history, teaching.max_tokens) == (True, "full", 40)
    assert teaching.env_settings == {"observation_mode": "compact", "max_turns": 9}
    assert gym.make("tsr/WebShop-v0", rules="original").unwrapped.teaching() is None


def test_on_generated_goods_the_teacher_succeeds_three_times_in_four_with_known_words():
    env = gym.make("tsr/WebShop-v0", split="train", observation_mode="compact", max_turns=9).unwrapped
    teaching, seen, solved = env.teaching(), set(), 0
    for seed in range(100):
        seen.update(env.reset(seed=seed)[0].split())
        while not (env.episode.terminated or env.episode.truncated):
            turn = teaching.teacher_turn(env, RNG)
            assert len(turn.split()) <= teaching.max_tokens
            seen.update((turn + " " + env.step(turn)[0]).split())
        solved += teaching.accepts(env)
    assert solved >= 65
    # A reward stands on no compact page.
    assert seen <= set(teaching.words)
