"""Sessions with tokens, without OpenEnv."""

import base64

import pytest

from tsr_gym import ConfigError, MissingExtra, SnapshotError
from tsr_gym.agents.bridges.openenv import openenv_kinds, session_of

TURNS = ["<think></think><answer>Right</answer>", "<think></think><answer>Down</answer>"]


def lake(**settings):
    return session_of("frozenlake", {"is_slippery": False, **settings})


def test_a_token_takes_an_episode_back_in_another_session_too():
    here, there = lake(), lake()
    here.reset(seed=3)
    token = here.token()
    first = [here.step(turn) for turn in TURNS]
    here.enter(token)
    assert [here.step(turn) for turn in TURNS] == first
    assert there.enter(token).text == lake().reset(seed=3).text
    assert [there.step(turn) for turn in TURNS] == first
    # Entering shows the state and takes no turn.
    here.enter(token)
    moved, token = here.step(TURNS[0]), here.token()
    here.reset(seed=5)
    seen = here.enter(token)
    assert (seen.text, seen.reward, seen.terminated) == (moved.text, None, False)
    assert here.token() == token


def test_fresh_random_numbers_are_those_of_their_seed():
    session = lake(is_slippery=True)
    session.reset(seed=3)
    token = session.token()
    seen = []
    for seed in (*range(12), 0):
        session.enter(token, noise="fresh", seed=seed)
        seen.append(session.step(TURNS[0]).text)
    assert seen[0] == seen[-1]
    assert len(set(seen)) > 1


@pytest.mark.parametrize("token", ["", "no token", base64.b64encode(b"other bytes").decode()])
def test_a_damaged_token_is_refused_and_changes_nothing(token):
    session = lake()
    session.reset(seed=3)
    before = session.token()
    with pytest.raises(SnapshotError):
        session.enter(token)
    assert session.token() == before


def test_environments_that_do_not_fit_are_refused():
    other = lake(is_slippery=True)
    with pytest.raises(SnapshotError, match="under other rules"):
        lake().enter(other.token())
    with pytest.raises(ConfigError, match="wanted an environment of text"):
        session_of("CartPole-v1", {})


def test_without_openenv_its_extra_is_named(monkeypatch):
    monkeypatch.setattr("tsr_gym.optional.find_spec", lambda package: None)
    openenv_kinds.cache_clear()
    with pytest.raises(MissingExtra, match=r"pip install 'tsr-gym\[openenv\]'"):
        openenv_kinds()
