"""Environments of text behind OpenEnv's server, over its web socket. Not collected; `make test-openenv` runs it."""

import socket
import threading
import time

import pytest
import uvicorn

from tsr_gym.agents.bridges.openenv import openenv_app, openenv_factory, openenv_kinds, session_of

TURNS = ["<think></think><answer>Right</answer>", "<think></think><answer>Down</answer>", "nothing of the form"]


@pytest.fixture(scope="module")
def address():
    """Serve a slippery lake on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(openenv_app("frozenlake"), port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    for _ in range(600):
        if server.started:
            break
        time.sleep(0.1)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(timeout=20)


def acted(client, **fields):
    return client.step(openenv_kinds().action(**fields))


def test_an_episode_over_the_socket_is_that_of_the_environment(address):
    session = session_of("frozenlake", {})
    with openenv_kinds().client(base_url=address).sync() as client:
        assert client.reset(seed=4).observation.text == session.reset(seed=4).text
        for turn in TURNS:
            result, seen = acted(client, text=turn), session.step(turn)
            assert (result.observation.text, result.reward) == (seen.text, seen.reward)
            assert (result.observation.terminated, result.observation.truncated) == (seen.terminated, seen.truncated)
            assert result.observation.metadata["action_is_valid"] is seen.info["action_is_valid"]
            if result.done:
                break
        assert client.state().step_count >= 1


def test_a_client_returns_to_a_token_and_another_client_continues_from_it(address):
    kinds = openenv_kinds()
    with kinds.client(base_url=address).sync() as first_client, kinds.client(base_url=address).sync() as second_client:
        token = first_client.reset(seed=4, keep=True).observation.token
        first = acted(first_client, text=TURNS[0]).observation.text
        assert acted(first_client, enter=token, text=TURNS[0]).observation.text == first
        second_client.reset(seed=8)
        assert acted(second_client, enter=token, text=TURNS[0]).observation.text == first
        shown = acted(first_client, enter=token).observation
        assert (shown.text, shown.reward) == (first_client.reset(seed=4).observation.text, None)


def test_fresh_random_numbers_over_the_socket_are_those_of_their_seed(address):
    with openenv_kinds().client(base_url=address).sync() as client:
        token = client.reset(seed=4, keep=True).observation.token
        seen = [
            acted(client, enter=token, noise="fresh", seed=seed, text=TURNS[0]).observation.text
            for seed in (*range(12), 0)
        ]
    assert seen[0] == seen[-1]
    assert len(set(seen)) > 1


def test_a_damaged_token_is_an_error_of_the_client_and_the_session_continues(address):
    with openenv_kinds().client(base_url=address).sync() as client:
        before = client.reset(seed=4).observation.text
        with pytest.raises(RuntimeError):
            acted(client, enter="no token")
        assert client.reset(seed=4).observation.text == before


def test_the_environment_can_be_used_without_a_server():
    env = openenv_factory("sokoban")()
    kinds = openenv_kinds()
    start = env.reset(seed=1)
    seen = env.step(kinds.action(text="<think></think><answer>Up</answer>", keep=True))
    assert seen.token
    assert env.step(kinds.action(enter=seen.token)).text == seen.text
    assert env.reset(seed=1).text == start.text
