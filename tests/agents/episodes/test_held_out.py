"""Held-out instances: the same whether they are drawn, kept or read, and anew where what was kept is damaged."""

import json
from hashlib import blake2b

import pytest

from tests.agents.worlds import WALKER
from tsr_gym.agents.episodes import play
from tsr_gym.agents.episodes.env_pool import EnvPool
from tsr_gym.agents.episodes.play import FILE, HeldOut, bars, evaluate
from tsr_gym.agents.episodes.play import held_out as seeds_of
from tsr_gym.stack import snapshot
from tsr_gym_envs.frozen_lake.env import FrozenLakeEnv

NUMBER = 6


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """An empty cache folder for each test."""
    monkeypatch.setenv("TSR_GYM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def drawn(monkeypatch):
    """The lakes that are drawn and the bars that are computed from now on."""
    calls = []
    initial, oracle = FrozenLakeEnv.initial, FrozenLakeEnv.success_bars
    monkeypatch.setattr(FrozenLakeEnv, "initial", lambda *args: (calls.append("drawn"), initial(*args))[1])
    monkeypatch.setattr(FrozenLakeEnv, "success_bars", lambda *args: (calls.append("solved"), oracle(*args))[1])
    return calls


def lakes(**settings):
    return EnvPool("frozen_lake", {"split": "test", **settings}, score="FrozenLakeScore")


def kept(cache):
    return sorted(cache.glob(f"held-out/*/{FILE}"))


@pytest.mark.parametrize("env", ["frozen_lake", "sokoban"])
def test_episodes_are_the_same_whether_instances_are_drawn_kept_or_read(env, cache):
    tasks = seeds_of(NUMBER)
    pools = [EnvPool(env, {"split": "test"}) for _ in range(3)]
    fresh = evaluate(pools[0], WALKER, tasks=tasks, seed=3), bars(pools[0], tasks=tasks)
    for pool in pools[1:]:
        exam = HeldOut(pool, NUMBER)
        limits = exam.bars
        assert (evaluate(pool, WALKER, tasks=exam.tasks, seed=3), limits) == fresh
        # Again, in environments that have played.
        assert evaluate(pool, WALKER, tasks=exam.tasks, seed=3) == fresh[0]
        assert pool.set(tasks, copies=2)[3].tree.nodes[0] == pools[0].set(tasks, copies=2)[3].tree.nodes[0]
    assert len(kept(cache)) == 1


def test_instances_are_drawn_and_solved_once(drawn):
    exam = HeldOut(lakes(), NUMBER)
    assert drawn == []
    first = exam.bars
    assert (drawn.count("drawn"), drawn.count("solved")) == (NUMBER, NUMBER)
    evaluate(exam.pool, WALKER, tasks=exam.tasks)
    assert exam.bars is first
    assert (drawn.count("drawn"), drawn.count("solved")) == (NUMBER, NUMBER)
    # In another run one instance is drawn, to compare, and none is solved.
    drawn.clear()
    again = HeldOut(lakes(), NUMBER)
    assert again.bars == first
    evaluate(again.pool, WALKER, tasks=again.tasks)
    assert drawn == ["drawn"]
    # Another pool that plays them gets the same ones.
    assert again.starts == exam.starts
    assert again.starts == [snapshot(env) for env in lakes().set(again.tasks)]


@pytest.mark.parametrize("other", [{"settings": {"size": 5}}, {"number": NUMBER + 1}, {"version": "9.9"}])
def test_another_setting_number_or_version_has_instances_of_its_own(cache, monkeypatch, drawn, other):
    assert HeldOut(lakes(), NUMBER).bars.optimal is not None
    drawn.clear()
    monkeypatch.setattr(play, "__version__", other.get("version", play.__version__))
    number = other.get("number", NUMBER)
    assert HeldOut(lakes(**other.get("settings", {})), number).bars.optimal is not None
    assert drawn.count("solved") == number
    assert len(kept(cache)) == 2


def cut(data):
    return data[: len(data) // 2]


def altered(data):
    digest, text = data.split(b"\n")
    return digest + b"\n" + text.replace(b'"random": 0', b'"random": 1', 1)


def signed(text):
    return f"{blake2b(text.encode(), digest_size=16).hexdigest()}\n{text}"


def foreign(data):
    return signed("[1, 2]").encode()


@pytest.mark.parametrize("harm", [cut, altered, foreign, lambda data: b"", lambda data: b"\xff\xfe"])
def test_what_is_damaged_is_computed_anew(cache, drawn, harm):
    wanted = HeldOut(lakes(), NUMBER).bars
    (file,) = kept(cache)
    sound = file.read_bytes()
    assert harm(sound) != sound
    file.write_bytes(harm(sound))
    drawn.clear()
    assert HeldOut(lakes(), NUMBER).bars == wanted
    assert drawn.count("solved") == NUMBER
    assert file.read_bytes() == sound


def test_instances_that_an_environment_draws_no_more_are_drawn_anew(cache, drawn):
    wanted = HeldOut(lakes(), NUMBER).bars
    (file,) = kept(cache)
    sound = file.read_text()
    found = json.loads(sound.split("\n")[1])
    # As if the data of a world had been other data then.
    file.write_text(signed(json.dumps({**found, "starts": found["starts"][::-1]})))
    drawn.clear()
    assert HeldOut(lakes(), NUMBER).bars == wanted
    assert drawn.count("solved") == NUMBER
    assert file.read_text() == sound


def test_an_environment_without_an_oracle_is_kept_in_the_process_alone(cache, drawn):
    exam = HeldOut(lakes(max_actions=None), NUMBER)
    assert exam.bars.optimal is None
    drawn.clear()
    evaluate(exam.pool, WALKER, tasks=exam.tasks)
    assert (drawn, kept(cache)) == ([], [])


def test_a_cache_that_cannot_be_written_changes_nothing(cache):
    cache.write_text("no folder")
    assert HeldOut(lakes(), NUMBER).bars == bars(lakes(), tasks=seeds_of(NUMBER))
