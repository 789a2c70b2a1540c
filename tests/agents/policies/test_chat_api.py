"""ChatApi and ApiPolicy against a stub server: answers, limits, retries and costs."""

import json
import logging
import threading
from dataclasses import replace
from email.utils import formatdate
from functools import partial

import pytest

from tests.agents.policies.stub_server import completion, error, serving
from tests.agents.tools import BoxEnv
from tests.agents.worlds import rooms
from tsr_gym import Candidate, ConfigError, EngineFailed, Expand, MissingExtra, PromptTooLong
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.policies.chat_api import Answer, ApiConfig, ApiPolicy, ChatApi, Ledger, read_answer, retry_after
from tsr_gym.agents.policies.chat_policy import sample_seeds
from tsr_gym.agents.policies.prompts import History, choose_prompt, paper_prompt
from tsr_gym.agents.strategies import best_of_n
from tsr_gym.wrappers import ToolCalls, TreeSearchWrapper

ASKED = [{"role": "user", "content": "Where to?"}]
KEY = "sk-very-secret-7"


class Clock:
    """Time that passes only during waits."""

    def __init__(self):
        self.now = 100.0
        self.waits = []
        self.lock = threading.Lock()

    def __call__(self):
        return self.now

    def wait(self, seconds):
        with self.lock:
            self.waits.append(round(seconds, 6))
            self.now += seconds


def api_of(url, clock=None, **settings):
    clock = clock or Clock()
    return ChatApi("stub", ApiConfig(base_url=url, **settings), wait=clock.wait, clock=clock)


def ask(api, **settings):
    return api.ask(ASKED, **{"seed": 2**40 + 3, "temperature": 0.7, "max_tokens": 9, **settings})


def test_a_question_is_sent_as_documented_and_its_answer_read(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(lambda number, body: (200, completion("Up"))) as (url, stub):
        api = api_of(url + "/")
        assert ask(api) == Answer("Up", "stop", 20, 4, 5)
    ((path, body),) = stub.asked
    assert path == "/v1/chat/completions"
    assert body == {"model": "stub", "messages": ASKED, "temperature": 0.7, "seed": 3, "max_tokens": 9}
    assert stub.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert api.ledger == Ledger(requests=1, prompt_tokens=20, cached_tokens=4, sampled_tokens=5)


def test_without_a_key_none_is_sent_and_the_limit_may_have_its_other_name(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with serving(lambda number, body: (200, completion("Up"))) as (url, stub):
        ask(api_of(url, limit_as="max_completion_tokens"))
    assert "Authorization" not in stub.headers[0]
    assert stub.asked[0][1]["max_completion_tokens"] == 9
    assert "max_tokens" not in stub.asked[0][1]


@pytest.mark.parametrize(
    ("status", "headers", "waits"),
    [
        *((status, {}, [1.0, 2.0, 4.0]) for status in (408, 409, 429, 500, 502, 503, 529)),
        # The server may name how long it wants no request.
        *((429, {"retry-after": text}, [wait]) for text, wait in (("7", 7.0), ("0.25", 0.25), ("never", 1.0))),
    ],
)
def test_limits_and_faults_of_the_server_are_met_with_patience(status, headers, waits):
    def answer(number, body):
        return (status, error("busy"), headers) if number < len(waits) else (200, completion("Up"))

    clock = Clock()
    with serving(answer) as (url, stub):
        api = api_of(url, clock)
        assert ask(api).text == "Up"
    assert (clock.waits, stub.asked[0]) == (waits, stub.asked[-1])
    assert (api.ledger.requests, api.ledger.retries, api.ledger.failed) == (len(waits) + 1, len(waits), 0)


def test_a_date_to_come_back_at_is_kept_and_silence_met_with_another_request():
    assert 25 < retry_after(formatdate(__import__("time").time() + 30, usegmt=True)) <= 30
    assert retry_after(formatdate(0)) == 0.0
    assert retry_after("nan") is None
    assert retry_after("1e9") == 600.0
    with serving(lambda number, body: (200, completion("Up") if number else 0.6)) as (url, _):
        api = api_of(url, patience=0.2)
        assert ask(api).text == "Up"
    assert api.ledger.retries == 1


def test_a_server_that_is_not_there_is_asked_a_few_times_and_then_the_work_stops():
    with serving(lambda number, body: (200, completion("Up"))) as (url, _):
        pass
    api = api_of(url, retries=2, max_failures=1)
    assert ask(api) == Answer("", "failed")
    with pytest.raises(EngineFailed, match=r"2 questions stayed without an answer after 2 retries each.*ConnectError"):
        ask(api)
    assert api.ledger == Ledger(requests=6, retries=4, failed=2)


MALFORMED = [
    b"", b"<html>gateway</html>", b"\xff\xfe", b"[" * 100_000, {}, [], None, {"choices": []}, {"choices": None},
    {"choices": [{"message": None}]}, {"choices": [{"text": "Up"}]}, completion(["Up"]),
    completion({"type": "text", "text": "Up"}),
]  # fmt: skip


@pytest.mark.parametrize("body", MALFORMED, ids=lambda body: str(body)[:40])
def test_an_answer_that_cannot_be_read_is_an_empty_one_that_is_counted(body):
    with serving(lambda number, asked: (200, body)) as (url, _):
        api = api_of(url)
        said = ask(api)
    assert (said.text, said.finish_reason) == ("", "malformed")
    assert (api.ledger.requests, api.ledger.malformed) == (1, 1)


@pytest.mark.parametrize(
    "usage", [None, {}, {"prompt_tokens": "many", "completion_tokens": -3}, {"prompt_tokens": 1.5}]
)
def test_counts_that_are_none_are_counted_as_0(usage):
    body = completion("Up", usage=usage)
    with serving(lambda number, asked: (200, body)) as (url, _):
        assert ask(api_of(url)) == Answer("Up", "stop")


def test_a_refusal_and_a_filtered_answer_are_empty_answers():
    refused = b'{"choices": [{"message": {"content": null, "refusal": "no"}, "finish_reason": "stop"}]}'
    assert read_answer(refused) == Answer("", "stop")
    assert read_answer(b'{"choices": [{"message": {"content": ""}, "finish_reason": "content_filter"}]}').text == ""
    assert read_answer(b'{"choices": [{"message": {"content": "Up"}, "finish_reason": 7}]}').finish_reason == "7"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_a_request_that_is_refused_is_not_repeated_and_the_key_is_not_shown(status, monkeypatch, caplog):
    monkeypatch.setenv("MY_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    with serving(lambda number, body: (status, error(f"Incorrect API key provided: {KEY}"))) as (url, stub):
        api = api_of(url, api_key_from="MY_KEY")
        with pytest.raises(EngineFailed, match=f"refuses to answer as 'stub' with status {status}: .*MY_KEY") as caught:
            ask(api)
    assert len(stub.asked) == 1
    assert "provided: ***" in str(caught.value)
    assert KEY not in f"{caught.value} {caught.value!r} {api.config} {caplog.text}"


def test_a_conversation_that_is_too_long_is_told_so():
    refusal = error("This model's maximum context length is 8192 tokens", "context_length_exceeded")
    with serving(lambda number, body: (400, refusal)) as (url, _), pytest.raises(PromptTooLong, match="8192 tokens"):
        ask(api_of(url))


def test_requests_keep_the_pace_that_is_wanted():
    clock = Clock()
    with serving(lambda number, body: (200, completion("Up"))) as (url, _):
        api = api_of(url, clock, per_minute=30)
        for _ in range(4):
            ask(api)
    # One every two seconds, the first at once.
    assert clock.waits == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    "settings",
    [
        *({"base_url": url} for url in ("127.0.0.1:8000", "ftp://example.org")),
        *({"base_url": f"https://{url}"} for url in (f"user:{KEY}@example.org/v1", f"example.org/v1?key={KEY}")),
        *({name: 0} for name in ("at_once", "per_minute", "patience")),
        *({name: -1} for name in ("retries", "max_failures")),
        {"limit_as": "tokens"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_impossible_settings_are_refused_and_keys_in_addresses_not_repeated(settings):
    with pytest.raises(ConfigError) as caught:
        replace(ApiConfig(), **settings)
    assert KEY not in str(caught.value)


def test_without_httpx_the_pip_line_is_told(monkeypatch):
    monkeypatch.setattr("tsr_gym.optional.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'tsr-gym\[openai\]'"):
        api_of("http://127.0.0.1:1/v1")


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
    counts = [(each.prompt_tokens, each.prompt_tokens_saved, each.sampled_tokens) for each in spent]
    assert counts == [(60, 12, 15), (40, 8, 10)]


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


def test_each_thread_keeps_a_client_that_no_other_thread_uses():
    with serving(lambda number, body: (200, completion("Up"))) as (url, _):
        policy = policy_of(url, at_once=4)
        make, makers = policy.api._make_client, []
        policy.api._make_client = lambda: makers.append(threading.get_ident()) or make()
        for _ in range(3):
            policy([(rooms(4).tree, Expand(0, 8))])
    assert 1 <= len(makers) == len(set(makers)) <= 4


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


def called(arguments, content=None):
    body = completion(content, "tool_calls")
    function = {"name": "put", "arguments": arguments}
    body["choices"][0]["message"]["tool_calls"] = [{"id": "x1", "type": "function", "function": function}]
    return 200, body


def test_calls_of_tools_are_sent_and_read_and_their_results_follow_them():
    env = TreeSearchWrapper(ToolCalls(BoxEnv()))
    env.reset(seed=0)
    prompt = choose_prompt("tools", BoxEnv.instructions, tools=BoxEnv.tools)
    answers = [called('{"thing": "pen"}', "I put it."), called('{"thing": '), called('{"thing": "cup"}')]
    with serving(lambda number, body: answers[number]) as (url, stub):
        policy = ApiPolicy(api_of(url), prompt, History(None), temperature=1.0)
        for _ in range(3):
            env.play(policy([(env.tree, Expand(env.cursor))])[0][0])
    assert [node.info["executed"] for node in env.tree.nodes[1:]] == [('put(thing="pen")',), (), ('put(thing="cup")',)]
    assert stub.asked[0][1]["tools"] == [tool.schema for tool in BoxEnv.tools]
    _, _, answer, result, damaged, shown = stub.asked[2][1]["messages"]
    assert (answer["content"], answer["tool_calls"][0]["function"]["arguments"]) == ("I put it.", '{"thing": "pen"}')
    assert result == {"role": "tool", "tool_call_id": answer["tool_calls"][0]["id"], "content": 'The "box" holds:\npen'}
    # A damaged call stays text, because servers accept no result without a call.
    assert (damaged["role"], shown["role"]) == ("assistant", "user")
    assert shown["content"].startswith("Error: the tool call is no JSON")


@pytest.mark.parametrize("calls", [5, [5], [{}], [{"function": {"name": "a"}}]])
def test_calls_that_have_no_shape_are_malformed_answers(calls):
    body = completion("text")
    body["choices"][0]["message"]["tool_calls"] = calls
    assert read_answer(json.dumps(body).encode()).finish_reason == "malformed"
