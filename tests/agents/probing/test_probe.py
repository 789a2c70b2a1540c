"""Probe: the cost of a success in a world and with a player in which it can be counted by hand."""

import json
import shutil
from dataclasses import replace
from functools import cache

import gymnasium as gym
import numpy as np
import pytest

from tests.agents.worlds import Letters
from tsr_gym import Candidate, CheckpointError, ConfigError
from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.probing.probe import (
    FILE,
    PLAIN,
    SEARCHES,
    Measured,
    Probe,
    ProbeConfig,
    Tally,
    Way,
    best_search,
    model_digest,
    probe_env,
    race,
    read_tallies,
    stop_the_worse,
    ways_to_play,
)
from tsr_gym.agents.probing.report import advice, draw_probe, probe_heading, probe_rows, probe_table


class Typed(Letters):
    """Letters whose answers are the letters themselves."""

    reads_tags = True


gym.register("probe/Letters-v0", Typed)

# An episode is one letter, and b is success. The answers at the root are a, a, b, a, a, b ...: two tokens each, after a
# prompt of five.
FINDS = "beam(width=1, branching=3)"
DEAR = "beam(width=1, branching=12)"
NEVER = "best_of_n(n=2)"
CONFIG = ProbeConfig(env="probe/Letters-v0", search=(FINDS, DEAR, NEVER), instances=24, batch=8, split=None)


class Speaker:
    """Answers a, a, b in turn at every node, and counts the calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, requests):
        self.calls += 1
        answers = [Candidate(letter, (0,) * 5, (1, 1), (0.0, 0.0)) for letter in "aab"]
        firsts = [len(tree.children(wish.node)) for tree, wish in requests]
        return [
            [answers[(first + number) % 3] for number in range(wish.samples)]
            for first, (_, wish) in zip(firsts, requests, strict=True)
        ]


@cache
def pool(score):
    return EnvPool("probe/Letters-v0", {"pays": {"a": 0.0, "b": 1.0}, "ends": "b", "turns": 1}, score=score)


@pytest.fixture(scope="module")
def probed():
    return race(CONFIG, pool, Speaker())


def test_the_cost_of_a_success_is_the_counted_one(probed):
    plain, finds, dear, never = probe_rows(probed)
    # Four plain episodes, a a b a, are eight tokens and one success, on each of 24 instances; equal letters share a
    # step of the environment.
    assert (plain["search"], plain["score"], plain["success"], plain["episodes"]) == ("naive", "reward", 0.25, 96)
    assert (plain["sampled_tokens"], plain["prompt_tokens"], plain["env_steps"]) == (192, 480, 48)
    assert (plain["tokens_per_success"], plain["prompt_tokens_per_success"]) == (8.0, 20.0)
    # Garwood's interval of a count of 24 is 15.377 to 35.710 (Biometrika 28, 1936); all instances won equally often.
    ends = [pytest.approx(192 / end, rel=1e-4) for end in (35.710, 15.377)]
    assert plain["tokens_per_success_interval"] == ends
    # Three candidates contain a b, which has the highest reward.
    assert (finds["success"], finds["episodes"], finds["tokens_per_success"]) == (1.0, 24, 6.0)
    # Twelve candidates do, too; the first eight instances, 192 tokens for 8 (3.45 to 15.76), are at 12.2 or more. When
    # the cheap search has sixteen, 96 tokens for 16 (9.15 to 25.98), it is at most 10.5.
    assert (dear["success"], dear["instances"], dear["tokens_per_success"]) == (1.0, 8, 24.0)
    # Two never do. At four tokens an episode, and with at most 3.689 successes, a success costs 17.3 after sixteen.
    assert (never["success"], never["instances"], never["tokens_per_success"]) == (0.0, 16, None)
    assert never["tokens_per_success_interval"] == [pytest.approx(64 / 3.68888, rel=1e-5), None]
    assert [row["stopped"] for row in (plain, finds, dear, never)] == [False, False, True, True]


def test_a_search_that_might_still_be_better_is_not_stopped():
    # After eight instances without success a success may cost as little as 32 / 3.689 = 8.7, less than 13.9.
    once = race(replace(CONFIG, instances=8), pool, Speaker())
    assert [way.stopped for way in once.tallies] == [False, False, False, False]
    with pytest.raises(ConfigError, match="cannot be trained: wanted engine transformers, got openai"):
        ProbeConfig(env="probe/Letters-v0", model=ModelConfig(engine="openai"))


def test_a_stopped_probe_continues_where_it_was(probed, tmp_path):
    whole, first, second = Speaker(), Speaker(), Speaker()
    assert race(CONFIG, pool, whole) == probed
    steps = []

    def interrupt(*step):
        steps.append(step)
        if len(steps) == 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        race(CONFIG, pool, first, out=tmp_path, watch=interrupt)
    assert steps == [("plain play", 8, 24), (FINDS, 8, 24), (DEAR, 8, 24)]
    again = race(CONFIG, pool, second, kept=read_tallies(tmp_path, CONFIG), out=tmp_path)
    assert again == probed
    assert first.calls + second.calls == whole.calls
    # Kept measurements are not repeated, and more instances are added to them.
    idle = Speaker()
    assert race(CONFIG, pool, idle, kept=read_tallies(tmp_path, CONFIG), out=tmp_path) == probed
    assert idle.calls == 0
    more = race(replace(CONFIG, instances=26), pool, idle, kept=read_tallies(tmp_path, CONFIG), out=tmp_path)
    assert [len(way.measured) for way in more.tallies] == [26, 26, 8, 16]
    # A probe of fewer searches keeps the measurements of the others.
    race(replace(CONFIG, search=(FINDS,), instances=28), pool, idle, kept=read_tallies(tmp_path, CONFIG), out=tmp_path)
    assert [len(way.measured) for way in read_tallies(tmp_path, CONFIG).values()] == [28, 28, 8, 16]


def test_a_folder_of_other_settings_or_a_damaged_one_is_refused(probed, tmp_path):
    race(replace(CONFIG, instances=1), pool, Speaker(), out=tmp_path)
    with pytest.raises(ConfigError, match=r"probe.json was measured with other settings \(episodes, seed\)"):
        read_tallies(tmp_path, replace(CONFIG, episodes=5, seed=1))
    (tmp_path / FILE).write_text('{"settings": {}, "ways": [{}]}')
    with pytest.raises(CheckpointError, match="not the file of a probe"):
        read_tallies(tmp_path, CONFIG)


@pytest.mark.parametrize("way", [[5], "[[", {"way": [[], []], "measured": [], "stopped": False}, [[]] * 3], ids=str)
def test_a_damaged_file_of_measurements_is_named(tmp_path, way):
    text = "[" * 100_000 if way == "[[" else json.dumps({"settings": {}, "ways": [way]})
    (tmp_path / FILE).write_text(text)
    with pytest.raises(CheckpointError, match=r"probe.json: not the file of a probe"):
        read_tallies(tmp_path, CONFIG)


def test_a_model_is_known_by_its_files_and_not_by_its_path(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(b"one")
    before = model_digest(str(tmp_path / "model"))
    shutil.copytree(tmp_path / "model", tmp_path / "copy")
    assert model_digest(str(tmp_path / "copy")) == before
    (tmp_path / "model" / "model.safetensors").write_bytes(b"two")
    assert model_digest(str(tmp_path / "model")) != before
    assert model_digest("random") == "random"


def test_plain_play_comes_first_and_nothing_is_measured_twice():
    ways = ways_to_play(ProbeConfig(env="sokoban"))
    assert ways == [Way(PLAIN, "reward"), *(Way(search, "reward") for search in SEARCHES)]
    # Best-of-N follows the reward and not the score; plain play and Levin's search follow neither.
    searches = ("beam", "best_of_n(n=3)", "naive", "beam", "levin")
    config = ProbeConfig(env="sokoban", search=searches, score=("A", "B"))
    ways = ("naive", "reward"), ("beam", "A"), ("beam", "B"), ("best_of_n(n=3)", "reward"), ("levin", "reward")
    assert ways_to_play(config) == [Way(*way) for way in ways]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"instances": 0}, "wanted instances as a whole number >= 1, got 0"),
        ({"batch": 0}, "wanted batch as a whole number >= 1, got 0"),
        ({"score": ()}, "wanted a score, got none"),
        ({"noise": "loud"}, "wanted noise of"),
        ({"score": ("WebShopScore",)}, "WebShopScore rates a ShopState, and FrozenLakeEnv has a FrozenLakeState"),
    ],
)
def test_impossible_settings_are_refused(wrong, message):
    settings = {"env": "frozenlake", "search": ("beam",), "model": ModelConfig(model="random"), **wrong}
    with pytest.raises(ConfigError, match=message):
        probe_env(ProbeConfig(**settings))


def tally(search, costs, successes):
    """Return the measurements of a search with one episode per instance."""
    pairs = zip(costs, successes, strict=True)
    return Tally(Way(search, "reward"), tuple(Measured(1, won, cost, 0, 1) for cost, won in pairs))


NONE = tally(PLAIN, [10] * 20, [0] * 20)
SOME = tally(PLAIN, [10] * 20, [1, 0, 0, 0] * 5)
ALL = tally(PLAIN, [10] * 20, [1] * 20)


@pytest.mark.parametrize(
    ("plain", "search", "words"),
    [
        (NONE, tally("beam", [20] * 20, [0] * 20), "Nothing succeeded: try a score"),
        (SOME, tally("beam", [20] * 20, [0] * 20), "Plain play is enough: a success costs 40 sampled tokens ["),
        # Intervals of a count of 20 are 12.217 to 30.888. None of 20 plain episodes: at most 3.689 successes.
        (
            NONE,
            tally("beam", [20] * 20, [1] * 20),
            "Use beam: a success costs 20 sampled tokens [13, 33], by plain play more than 54 sampled tokens (none "
            "succeeded).",
        ),
        (
            ALL,
            tally("beam", [60] * 20, [1] * 20),
            "Plain play is enough: by the best search, beam, a success costs 60 sampled tokens [39, 98], by plain play "
            "10 sampled tokens [6, 16].",
        ),
        (SOME, tally("beam", [20] * 20, [1, 1, 0, 0] * 5), "Plain play is enough as far as 20 instances show: by"),
        (NONE, tally("beam", [70] * 20, [1] * 20), "Undecided as far as 20 instances show: by the best search, beam"),
        (NONE, tally("beam", [192_000] * 20, [1] + [0] * 19), "Undecided as far as 20 instances show: by the best"),
    ],
)
def test_the_advice_follows_the_intervals(plain, search, words):
    assert advice(Probe(replace(CONFIG, instances=20), (plain, search))).startswith(words)


def test_the_best_of_equal_searches_is_priced_as_high_as_they_are():
    """Equal searches of price 100 succeed by luck; the price of the chosen one is right on average."""
    rng, naive, fair = np.random.default_rng(0), [], []
    for _ in range(300):
        searches = [tally(f"search{number}", [20] * 64, rng.random(64) < 0.2) for number in range(5)]
        best, price = best_search([NONE, *searches], "sampled_tokens")
        naive.append(1 / best.price("sampled_tokens").mean)
        fair.append(1 / price.mean if price.mean else 0.0)
        # The interval counts every instance once.
        assert len(best.measured) == 64
    # Rates are averaged, because a price of few successes is not even on average right.
    assert 1 / np.mean(naive) < 84
    assert 1 / np.mean(fair) == pytest.approx(100, rel=0.03)
    assert best_search([ALL, NONE], "sampled_tokens") is None


def test_neither_plain_play_nor_an_unmeasured_search_is_stopped():
    cheap, unmeasured = tally("beam", [1] * 20, [1] * 20), tally("puct", [], [])
    stopped = stop_the_worse([ALL, cheap, unmeasured], "sampled_tokens", looks=1)
    assert [way.stopped for way in stopped] == [False, False, False]
    # The same costs as those of plain play stop a search.
    stopped = stop_the_worse([cheap, replace(ALL, way=unmeasured.way)], "sampled_tokens", looks=1)
    assert [way.stopped for way in stopped] == [False, True]


def test_none_of_equal_searches_is_stopped_though_prices_are_compared_often():
    """Five equal searches, compared after each of 64 instances: intervals of 95 % stop one in 3 of 100 probes."""
    rng, stopped = np.random.default_rng(0), {1: 0, 64: 0}
    for _ in range(100):
        costs, won = 1000 * rng.lognormal(0, 0.3, (5, 64)), rng.random((5, 64)) < 0.2
        for looks in stopped:
            stopped[looks] += any(
                any(way.stopped for way in stop_the_worse(ways, "sampled_tokens", looks=looks))
                for end in range(16, 65, 4)
                if (ways := [tally(f"search{way}", costs[way, :end], won[way, :end]) for way in range(5)])
            )
    assert stopped[64] <= 1 < stopped[1]


def test_the_report_names_world_and_player_and_draws_every_way(probed, tmp_path):
    assert probe_heading(probed) == (
        "probe/Letters-v0, preset paper, 24 instances, seed 0; default at temperature 1, noise fresh"
    )
    shown = probe_table(probed)
    assert [row[0] for row in shown.rows] == ["plain play", FINDS, DEAR, NEVER]
    assert shown.rows[0][-2:] == ("8 [5, 12]", "")
    assert shown.rows[3][-2:] == ("none [17, -]", "stopped: clearly worse")
    draw_probe(probed, tmp_path / "probe.png")
    assert (tmp_path / "probe.png").read_bytes().startswith(b"\x89PNG")


def test_a_player_without_tokens_pays_in_steps_of_the_environment():
    config = ProbeConfig(env="frozenlake", search=("beam",), instances=8, model=ModelConfig(model="random"))
    plain, beam = probe_env(config).tallies
    assert (plain.total("sampled_tokens"), plain.total("episodes"), beam.total("episodes")) == (0, 32, 8)
    assert plain.price("env_steps").mean == plain.total("env_steps") / plain.total("successes")
    probed = Probe(config, (plain, beam))
    assert "steps of the environment" in advice(probed)
    assert "its price is in steps of the environment" in probe_table(probed).caption
    assert [row["counts"] for row in probe_rows(probed)] == ["env_steps"] * 2
