"""ApiPolicy: a model behind a server plays, searches and is charged for what it says."""

import threading
from functools import partial

import pytest

from tests.agents.policies.stub_server import completion, error, serving
from tests.agents.worlds import rooms
from tsr_gym import Candidate, EngineFailed, Expand
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.policies.chat_api import ApiPolicy, ChatApi
from tsr_gym.agents.policies.chat_policy import sample_seeds
from tsr_gym.agents.policies.prompts import History, paper_prompt
from tsr_gym.agents.policies.settings import ApiConfig
from tsr_gym.agents.strategies import best_of_n

PROMPT = paper_prompt("Push the box.")
SAID = "<think>so</think><answer>Up</answer>"


def policy_of(url, *, history="full", **settings):
    api = ChatApi("stub", ApiConfig(base_url=url, **settings), wait=lambda seconds: None)
    return ApiPolicy(api, PROMPT, History.parse(history), temperature=0.5, max_tokens=7)


def by_seed(number, body):
    """Answer by the seed of a request, so that order and company cannot matter unseen."""
    return 200, completion(f"<think>{body['seed']}</think><answer>Up</answer>")


def test_each_sample_is_a_request_with_a_seed_of_its_own_and_comes_back_in_order():
    envs = [rooms(4), rooms(5)]
    wishes = [(envs[0].tree, Expand(0, 3)), (envs[1].tree, Expand(0, 2))]
    with serving(by_seed) as (url, stub):
        answers = policy_of(url)(wishes)
    wanted = [[f"<think>{seed % 2**31}</think><answer>Up</answer>" for seed in row] for row in sample_seeds(wishes)]
    assert answers == [[Candidate(text) for text in row] for row in wanted]
    assert len({body["seed"] for _, body in stub.asked}) == 5
    assert {(body["temperature"], body["max_tokens"]) for _, body in stub.asked} == {(0.5, 7)}
    # As the server counted them: 20 prompt tokens, 4 of them known, and 5 sampled for each answer.
    spent = [env.tree.spent for env in envs]
    assert [(one.prompt_tokens, one.prompt_tokens_saved, one.sampled_tokens) for one in spent] == [
        (60, 12, 15),
        (40, 8, 10),
    ]


@pytest.mark.parametrize(("history", "roles"), [("full", "suauau"), ("markov", "su"), ("window(1)", "suau")])
def test_a_conversation_repeats_as_much_as_the_history_says(history, roles):
    env = rooms(4)
    for text in (SAID, "nonsense"):
        env.play(Candidate(text))
    messages = policy_of("http://127.0.0.1:1", history=history).messages(env.tree, 2)
    assert "".join(message["role"][0] for message in messages) == roles
    assert messages[0]["content"] == PROMPT.system
    assert messages[-1]["content"] == PROMPT.turn(env.tree.nodes[2])
    if history == "full":
        assert [messages[2]["content"], messages[4]["content"]] == [SAID, "nonsense"]


def test_a_search_plays_through_a_server_and_its_tree_does_not_depend_on_how_many_are_asked_at_once():
    def texts(at_once):
        with serving(by_seed) as (url, _):
            (tree,) = search([rooms(4)], policy_of(url, at_once=at_once), partial(best_of_n, n=3), seeds=[1])
        return [node.candidate.text for node in tree.nodes]

    assert texts(1) == texts(5)


def test_no_more_are_asked_at_once_than_wanted():
    barrier = threading.Barrier(3)

    def answer(number, body):
        barrier.wait(timeout=10)
        return 200, completion(SAID)

    with serving(answer) as (url, stub):
        policy_of(url, at_once=3)([(rooms(4).tree, Expand(0, 6))])
    assert stub.most_open == 3


def test_malformed_answers_are_turns_without_a_meaning():
    env = rooms(4)
    with serving(lambda number, body: (200, b"<html>")) as (url, _):
        ((candidate,),) = policy_of(url)([(env.tree, Expand(0))])
    env.play(candidate)
    assert candidate.text == ""
    assert env.tree.nodes[1].info["action_is_valid"] is False


def test_where_the_server_refuses_the_rest_is_not_asked():
    with serving(lambda number, body: (401, error("no"))) as (url, stub):
        with pytest.raises(EngineFailed, match="status 401"):
            policy_of(url, at_once=1)([(rooms(4).tree, Expand(0, 50))])
        assert len(stub.asked) < 50
