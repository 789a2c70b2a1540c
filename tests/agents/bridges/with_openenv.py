"""Environments of text behind OpenEnv's server, over its web socket. Not collected; `make test-openenv` runs it."""

import json
import socket
import threading
import time
from types import SimpleNamespace

import pytest
import uvicorn
from openenv.cli._validation import validate_running_environment
from openenv.validation.graders.runtime.basic import (
    ObservationSchemaGrader,
    RewardWellFormedGrader,
    StateContractGrader,
)
from openenv.validation.runtime.collector import collect_runtime_evidence
from openenv.validation.runtime.contracts import RuntimePlan
from openenv.validation.types import CheckStatus

from tests.abuse.test_tokens import NO_SEEDS, NO_TEXTS, NONSENSE, token_campaign
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
        token = first_client.reset(seed=4, keep="true").observation.token
        assert first_client.state().token == token
        assert first_client.reset(seed=4, keep="false").observation.token is None
        first = acted(first_client, text=TURNS[0]).observation.text
        assert acted(first_client, enter=token, text=TURNS[0]).observation.text == first
        second_client.reset(seed=8)
        assert acted(second_client, enter=token, text=TURNS[0]).observation.text == first
        shown = first_client.reset(enter=token)
        assert (shown.observation.text, shown.reward) == (first_client.reset(seed=4).observation.text, None)


def test_fresh_random_numbers_over_the_socket_are_those_of_their_seed(address):
    with openenv_kinds().client(base_url=address).sync() as client:
        client.reset(seed=4)
        token = client.state().token
        ways = ({"enter": token, "noise": "fresh", "seed": seed, "text": TURNS[0]} for seed in (*range(12), 0))
        seen = [acted(client, **way).observation.text for way in ways]
    assert seen[0] == seen[-1]
    assert len(set(seen)) > 1


REFUSED = {
    "a damaged token": ({"enter": "no token"}, "wanted a token"),
    "a seed of no new dice": ({"enter": "TOKEN", "seed": 3}, "takes no seed"),
    "dice without a token": ({"noise": "fresh", "seed": 3}, "give enter=TOKEN"),
    "an unknown field": ({"entre": "TOKEN"}, "Invalid message|[Ee]xtra"),
    "no truth value": ({"keep": "perhaps"}, "Invalid message|valid boolean"),
}


@pytest.mark.parametrize("call", ["reset", "step"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_an_error_of_the_client_and_the_episode_stays(address, name, call):
    fields, message = REFUSED[name]
    with openenv_kinds().client(base_url=address).sync() as client:
        client.reset(seed=4)
        acted(client, text=TURNS[0])
        before = client.state()
        sent = {key: before.token if value == "TOKEN" else value for key, value in fields.items()}
        with pytest.raises((RuntimeError, ValueError), match=message):
            client.reset(**sent) if call == "reset" else acted(client, text=TURNS[0], **sent)
        assert client.state() == before


@pytest.mark.parametrize("turns", [["nothing of the form"] * 9, TURNS * 9], ids=["invalid", "valid"])
def test_the_graders_of_openenv_find_nothing_and_rewards_add_up_to_the_return(address, turns):
    actions = [{"text": turn, "keep": number % 2 == 0} for number, turn in enumerate(turns)]
    reset = {"episode_id": "a", "seed": 4, "options": {"keep": True}}
    plan = RuntimePlan.model_validate({"plan_schema_version": "1", "reset": reset, "actions": actions})
    evidence = collect_runtime_evidence(address, plan, episode_timeout_s=60.0)
    manifest = SimpleNamespace(reward=SimpleNamespace(range=(-1.0, 1.0)))
    for grader in (RewardWellFormedGrader(), ObservationSchemaGrader(), StateContractGrader()):
        result = grader.run(SimpleNamespace(runtime_evidence=evidence, manifest=manifest))
        assert (result.status, result.evidence) == (CheckStatus.PASS, ["observed runtime contract holds"])
    steps = [json.loads(row.response_json)["data"] for row in evidence.exchanges if row.operation == "step"]
    session = session_of("frozenlake", {})
    session.reset(seed=4)
    assert [step["reward"] for step in steps] == [session.step(turn).reward for turn in turns[: len(steps)]]


def test_openenv_validates_the_server(address):
    report = validate_running_environment(address, timeout_s=30.0)
    assert [(check["id"], check["passed"]) for check in report["criteria"] if not check["passed"]] == []
    assert report["passed"]


def test_the_environment_can_be_used_without_a_server():
    env = openenv_factory("sokoban")()
    kinds = openenv_kinds()
    start = env.reset(seed=1)
    # A step without a turn would give the reward of the turn before again.
    with pytest.raises(ValueError, match="text"):
        kinds.action(keep=True)
    seen = env.step(kinds.action(text="<think></think><answer>Up</answer>", keep=True))
    assert seen.token
    assert env.reset(enter=seen.token).text == seen.text
    assert env.reset(seed=1).text == start.text


def test_random_calls_have_one_result_and_nonsense_changes_nothing():
    env, action = openenv_factory("frozenlake")(), openenv_kinds().action
    calls = {
        "reset": env.reset,
        "enter": lambda token, **more: env.reset(enter=token, **more),
        "step": lambda **given: env.step(action(**given)),
        "token": lambda: env.state.token,
    }
    no_bools, unknown = ("perhaps", 7, 0.5, [], {}), {"entre": ("x", None)}
    nonsense = {
        "reset": {"seed": NO_SEEDS, "enter": ("bad", *NO_TEXTS[1:]), "keep": no_bools, **unknown},
        "enter": {**NONSENSE["enter"], "keep": no_bools, **unknown},
        "step": {"text": NO_TEXTS, "enter": ("bad", *NO_TEXTS[1:]), "seed": NO_SEEDS, "keep": no_bools, **unknown},
    }
    counts = token_campaign(1000, 0, calls, nonsense)
    assert (counts.wrong, counts.crashed) == (0, 0), "\n".join(counts.faults)
    assert counts.refused > 0 < counts.right
