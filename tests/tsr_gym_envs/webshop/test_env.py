"""The environment and its settings."""

from hashlib import sha256

import gymnasium as gym
import numpy as np
import pytest

from tests.conftest import deep, run_python
from tests.tsr_gym_envs.webshop.shops import ODD_TEXTS, OPTION_VALUES, canonical, odd_files, play_transcripts
from tsr_gym import ConfigError, EpisodeOver, SnapshotError, restore, snapshot
from tsr_gym.testing import check_snapshot, check_text_env
from tsr_gym.testing.recording import JUNK
from tsr_gym_envs.webshop.catalogue.opening import import_catalogue
from tsr_gym_envs.webshop.repairs import NAMES, RULES
from tsr_gym_envs.webshop.rules import clickables, page_text, url
from tsr_gym_envs.webshop.settings import make_settings


@pytest.fixture
def shop_env(real_catalogue):
    return lambda **settings: gym.make("tsr/WebShop-v0", catalogue=str(real_catalogue.path), **settings)


@pytest.fixture(scope="module")
def odd_catalogue(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd")
    return import_catalogue(odd_files(folder / "files"), folder / "store")


def play(env, *texts):
    """Return the results of some actions."""
    return [env.step(text) for text in texts]


def way_to_buy(env):
    """Return actions that buy the target of a goal, found by its title, with nothing chosen."""
    goal = env.unwrapped.shop.goal(env.unwrapped.state)
    return f"search[{goal.name.replace('[', ' ')}]", f"click[{goal.asin}]", "click[buy now]"


def test_every_golden_transcript_comes_out(golden, real_catalogue):
    num_steps = num_purchases = 0
    for played in play_transcripts(golden, real_catalogue):
        expected, env = played.wanted, played.env
        seen = expected["obs_text"] if expected["returned_obs"] == "=obs_text" else expected["returned_obs"]
        assert played.observation == seen, played.where
        assert page_text(env.shop, env.state, "text") == expected["obs_text"], played.where
        assert page_text(env.shop, env.state, "rich") == expected["obs_rich"], played.where
        assert url(env.shop, env.state) == expected["url"], played.where
        assert list(clickables(env.shop, env.state)) == expected["clickables"], played.where
        available = played.info["available_actions"]
        assert available["clickables"] == expected["clickables"], played.where
        assert available["has_search_bar"] == expected["has_search_bar"], played.where
        assert (played.reward, played.terminated) == (expected.get("reward"), expected.get("done")), played.where
        if parts := expected.get("verbose_info"):
            assert canonical({name: played.info[name] for name in parts}) == canonical(parts), played.where
            num_purchases += 1
        num_steps += 1
    assert (num_steps, num_purchases) == (911, 68)


@pytest.mark.parametrize("mode", ["text", "rich", "html", "url", "text_options", "compact"])
def test_every_mode_of_observation_keeps_the_contract(shop_env, mode):
    check_text_env(shop_env(observation_mode=mode, num_prev_obs=1, num_prev_actions=2))


@pytest.mark.parametrize("preset", ["default", "paper", "tsr-code"])
def test_every_preset_keeps_the_contract(shop_env, preset):
    check_text_env(shop_env(preset=preset), seeds=tuple(range(8)), steps=20)


@pytest.mark.parametrize(
    ("settings", "other_processes"),
    [
        ({"rules": "original"}, True),
        *(({"rules": "fixed"}, False), ({"observation_mode": "compact"}, False)),
        *(deep({"rules": "fixed"}, True), deep({"observation_mode": "compact"}, True)),
    ],
    ids=str,
)
def test_snapshots_are_exact_in_every_process(shop_env, settings, other_processes):
    check_snapshot(shop_env(**settings), steps=20, seeds=(0,), other_processes=other_processes)


def episodes(catalogue):
    env = gym.make("tsr/WebShop-v0", catalogue=catalogue, num_prev_obs=1).unwrapped
    rng, seen = np.random.default_rng(1), []
    for seed in range(20):
        seen.append(env.reset(seed=seed))
        while not (env.episode.terminated or env.episode.truncated):
            legal = env.legal_actions(env.state)
            seen.append(env.step(legal[rng.integers(len(legal))]))
    return sha256(repr(seen).encode()).hexdigest()


def test_episodes_do_not_depend_on_the_hash_seed(real_catalogue):
    path = str(real_catalogue.path)
    code = f"from {__name__} import episodes; print(episodes({path!r}))"
    assert run_python(code, hash_seed="1").strip() == episodes(path)


def test_resets_follow_the_originals_sequence_and_seeds_begin_another(shop_env):
    env = shop_env(rules="original").unwrapped

    def draw(**options):
        env.reset(**options)
        return env.state.session, env.state.goal

    assert [draw() for _ in range(2)] == [("ayfoedaown", 5457), ("erjhquytqf", 3613)]
    first = [draw(seed=4), draw(), draw()]
    draw(options={"goal": 5})
    assert [draw(seed=4), draw(), draw()] == first


def test_a_session_keeps_its_goal_with_the_originals_fields(shop_env, golden):
    env = shop_env(rules="original")
    first = env.reset()[0]
    key = env.unwrapped.state.session
    assert env.reset()[0] != first
    assert env.reset(options={"session": key})[0] == first
    goals = shop_env(rules="original").unwrapped.goals
    for row in golden("webshop/goals_synthetic_seed0.jsonl")[:200]:
        assert goals[row["index"]] == {name: value for name, value in row.items() if name != "index"}


@pytest.mark.parametrize("options", [{"goal": 6910}, {"session": -6911}, {"goals": 1}, {"seed": 3}])
def test_unknown_goals_and_options_are_refused(shop_env, options):
    with pytest.raises(ConfigError):
        shop_env().reset(options=options)


def test_a_purchase_reports_its_reward_and_ends_the_episode(shop_env):
    env = shop_env()
    _, info = env.reset(options={"goal": 5})
    assert (info["purchased"], info["success"], info["noun_source"]) == (False, False, info["noun_source"])
    *before, (_, reward, terminated, truncated, info) = play(env, *way_to_buy(env))
    assert all(not result[4]["purchased"] and result[4]["r_type"] == 0.0 for result in before)
    assert (terminated, truncated, info["purchased"]) == (True, False, True)
    assert info["success"] is (reward == 1)
    parts = info["r_att"] * info["w_att"] + info["r_option"] * info["w_option"] + info["r_price"] * info["w_price"]
    assert reward == pytest.approx(parts * info["r_type"])
    with pytest.raises(EpisodeOver):
        env.step("search[more]")


def test_the_original_continues_after_a_purchase_and_several_actions_make_a_turn_where_that_is_wanted(shop_env):
    env = shop_env(rules="original", max_turns=2)
    env.reset(seed=1)
    assert [result[3] for result in play(env, "foo", "search[mug]")] == [False, True]
    for rules, is_valid in (("fixed", True), ("original", False)):
        env = shop_env(rules=rules)
        env.reset(seed=1)
        assert env.step(" search[mug]")[4]["action_is_valid"] is is_valid
    env = shop_env(rules="original")
    env.reset(options={"goal": 5})
    first = play(env, *way_to_buy(env))[-1]
    ignored = env.step("click[back to search]")
    assert ignored[:4] == (first[0], 0.0, False, False)
    assert ignored[4]["action_is_valid"] is False
    assert play(env, *way_to_buy(env))[-1][:4] == first[:4]
    env = shop_env(preset="paper")
    env.reset(seed=1)
    info = env.step("search[shirt] || click[next >] || click[next >]")[4]
    assert (info["executed"], info["actions_left"]) == (("search[shirt]", "click[next >]"), 8)
    assert env.unwrapped.state.number == 2
    single = shop_env()
    single.reset(seed=1)
    assert single.step("search[a || b]")[4]["executed"] == ("search[a || b]",)


def test_the_default_observation_shows_the_chosen_options(shop_env):
    env = shop_env()
    env.reset(options={"goal": 5})
    goal = env.unwrapped.shop.goal(env.unwrapped.state)
    before = play(env, *way_to_buy(env)[:2])[-1][0]
    (name, value), *_ = goal.goal_options
    after, *_, info = env.step(f"click[{value}]")
    assert f"{name}: {value}" in after.rpartition("You have chosen")[2]
    assert after != before
    assert info["action_is_effective"]


def test_the_past_is_shown_again_oldest_first(shop_env):
    env = shop_env(observation_mode="url", num_prev_obs=2, num_prev_actions=1)
    first = env.reset(options={"session": "5"})[0]
    texts = ["search[shoes]", "foo", "click[next >]"]
    second, third, fourth = (result[0] for result in play(env, *texts))
    results = "http://127.0.0.1:3000/search_results/5/shoes"
    assert second == f"{first} [SEP] search[shoes] [SEP] {results}/1"
    assert third == f"{first} [SEP] {results}/1 [SEP] foo [SEP] {results}/1"
    assert fourth == f"{results}/1 [SEP] {results}/1 [SEP] click[next >] [SEP] {results}/2"


def test_snapshots_of_another_catalogue_or_other_nouns_are_refused(shop_env, odd_catalogue):
    env = shop_env()
    env.reset(seed=1)
    snap = snapshot(env)
    restore(shop_env(), snap)
    others = (gym.make("tsr/WebShop-v0", catalogue=str(odd_catalogue.path)), shop_env(noun_fn=str.split))
    for other in others:
        with pytest.raises(SnapshotError):
            restore(other, snap)


def test_the_oracles_turns_earn_everything_where_the_limits_leave_time(shop_env):
    env = shop_env(split="test")
    for seed in range(12):
        env.reset(seed=seed)
        terminated = truncated = False
        while not (terminated or truncated):
            left = env.unwrapped.limits.max_turns - env.unwrapped.episode.turns
            text = env.unwrapped.optimal_turn(env.unwrapped.state, left, None)
            _, reward, terminated, truncated, info = env.step(text)
        assert (reward, info["success"]) == (1.0, True)


def test_states_that_differ_in_what_changes_no_rule_have_one_key(shop_env):
    env = shop_env().unwrapped
    env.reset(options={"goal": 5})
    play(env, *way_to_buy(env)[:2])
    state = env.state
    key = env.state_key(state)
    same = {"session": "other", "opened": (), "past": ("a", "b"), "dice": (3,), "known": (("a", 1),)}
    assert {env.state_key(state._replace(**{name: value})) for name, value in same.items()} == {key}
    others = {"goal": 6, "row": state.row + 1, "options": (("color", "red"),)}
    others |= {"keywords": ("mug",), "number": 2, "page": "done"}
    assert len({key, *(env.state_key(state._replace(**{name: value})) for name, value in others.items())}) == 7


def random_text(env, rng):
    """Return an action that is likely, odd or junk."""
    draw = rng.random()
    legal = env.legal_actions(env.state)
    if draw < 0.6 and legal:
        return legal[rng.integers(len(legal))]
    if draw < 0.8:
        odd = (*ODD_TEXTS, *OPTION_VALUES, "<r>", "<a> soft", "<c>", "<q> shirt", "\ud800", "shirt search_results")
        verb = ("search", "click", "Search", "")[rng.integers(4)]
        return f"{verb}[{odd[rng.integers(len(odd))]}]"
    if draw < 0.9:
        names = clickables(env.shop, env.state) or ("search",)
        return f"click[{names[rng.integers(len(names))]}]"
    return JUNK[rng.integers(len(JUNK))]


def play_at_random(env, num_episodes, seed):
    """Play episodes of up to 50 actions and return how many steps they had."""
    env, rng, num_steps = env.unwrapped, np.random.default_rng(seed), 0
    for _ in range(num_episodes):
        env.reset(seed=int(rng.integers(2**31)))
        for _ in range(50):
            observation, reward, terminated, truncated, _ = env.step(random_text(env, rng))
            assert observation in env.observation_space
            assert 0 <= reward <= 1
            num_steps += 1
            if truncated or (terminated and env.shop.repairs.ends_with_purchase):
                break
    return num_steps


FUZZED = [
    *({"rules": "fixed", "observation_mode": mode, "max_turns": None} for mode in ("text_options", "url", "compact")),
    *({"rules": "original", "observation_mode": mode, "max_turns": None} for mode in ("text_options", "rich")),
]


@pytest.mark.parametrize("settings", FUZZED, ids=str)
@pytest.mark.parametrize("catalogue", ["real", "odd"])
@pytest.mark.parametrize("episodes", [12, deep(1000)])
def test_no_text_ever_raises(real_catalogue, odd_catalogue, catalogue, settings, episodes):
    folder = {"real": real_catalogue, "odd": odd_catalogue}[catalogue].path
    env = gym.make("tsr/WebShop-v0", catalogue=str(folder), show_attrs=True, num_prev_actions=1, **settings)
    assert play_at_random(env, episodes, seed=7) > 8 * episodes


def test_settings_win_over_presets_and_presets_over_rules():
    original = make_settings("default", {"rules": "original"})
    assert (original.observation_mode, original.max_turns) == ("text", None)
    fixed = make_settings("default", {})
    assert (fixed.observation_mode, fixed.max_turns) == ("text_options", 15)
    assert make_settings("paper", {"rules": "original"}).max_turns == 5
    assert make_settings("tsr-code", {"rules": "original", "max_turns": 3}).max_turns == 3
    assert make_settings("tsr-code", {"observation_mode": "rich"}).observation_mode == "rich"
    paper, code = make_settings("paper", {}), make_settings("tsr-code", {})
    assert (paper.max_turns, paper.max_actions_per_turn, paper.max_actions) == (5, 2, 10)
    assert (code.max_turns, code.max_actions_per_turn, code.max_actions) == (9, 1, None)
    assert make_settings("default", {}).chosen_repairs == RULES["fixed"]
    assert make_settings("default", {"rules": "original"}).chosen_repairs == RULES["original"]
    config = make_settings("default", {"rules": "original", "repairs": ["plain_queries"]})
    assert config.is_original
    assert [name for name in NAMES if name in str(config.repairs)] == ["plain_queries"]
    assert config.chosen_repairs.plain_queries
    assert not config.chosen_repairs.page_state


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rules": "mine"}, "wanted rules of"),
        ({"repairs": ["everything"]}, "unknown repairs"),
        ({"observation_mode": "pixels"}, "wanted observation_mode of"),
        ({"observation_mode": "compact", "rules": "original"}, "rules cannot parse the actions of compact pages"),
        ({"split": "dev"}, "wanted split of"),
        ({"num_prev_obs": -1}, "wanted num_prev_obs >= 0"),
        ({"min_options": -1}, "wanted min_options >= 0"),
        ({"limit_goals": 0}, "wanted limit_goals >= 1"),
        ({"num_products": 0}, "wanted num_products >= 1"),
        ({"colour": "red"}, "unknown settings"),
        ({"preset": "quick"}, "wanted preset of"),
    ],
)
def test_impossible_settings_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        make_settings(given.pop("preset", "default"), given)
