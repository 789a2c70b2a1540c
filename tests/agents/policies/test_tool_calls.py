"""Prompts with tools: prompts that grow by sampled ids, and calls in the form of each family of models."""

import json

import pytest

from tests.agents.tiny import CHATML, ScriptedEngine, chatml_tokenizer
from tests.agents.tools import LLAMA, MARKS, QWEN3, TEMPLATES, BoxEnv
from tests.agents.worlds import rooms
from tsr_gym import ConfigError, Expand
from tsr_gym.agents.bridges.export import tree_chats
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.episodes.trajectory import Group, harvest_all
from tsr_gym.agents.learning.batch import collate
from tsr_gym.agents.policies.chat_policy import ChatPolicy
from tsr_gym.agents.policies.prompts import History, choose_prompt, messages_for
from tsr_gym.agents.strategies import naive
from tsr_gym.agents.teaching.imitation import warm_rows
from tsr_gym.wrappers import ToolCalls, TreeSearchWrapper
from tsr_gym.wrappers.tool_calls import family_of

PROMPT = choose_prompt("tools", BoxEnv.instructions, tools=BoxEnv.tools)
CALLS = {
    "hermes": '<tool_call>\n{"name": "put", "arguments": {"thing": "pen"}}\n</tool_call>',
    "named": '<tool_call>{"name": "put", "arguments": {"thing": "pen"}}</tool_call>',
    "qwen3": '<think>a pen</think><tool_call>{"name": "put", "arguments": {"thing": "pen"}}</tool_call>',
    "llama": '<|python_tag|>{"name": "put", "parameters": {"thing": "pen"}}',
    "mistral": '[TOOL_CALLS] [{"name": "put", "arguments": {"thing": "pen"}, "id": "abcdefghi"}]',
}


def box(family="hermes"):
    env = TreeSearchWrapper(ToolCalls(BoxEnv(), family=family))
    env.reset(seed=0)
    return env


def made(name):
    """Return a tokenizer with a template, and the ids of a call that no encoder would write, ending the turn."""
    tokenizer = chatml_tokenizer(TEMPLATES[name])
    tokenizer.add_special_tokens({"additional_special_tokens": MARKS})
    ends = {"llama": "<|eot_id|>", "mistral": "</s>"}
    tokenizer.eos_token = ends.get(name, "<|im_end|>")
    said = []
    for part in CALLS[name].replace("[TOOL_CALLS]", "\0[TOOL_CALLS]\0").replace("_tag|>", "_tag|>\0").split("\0"):
        pieces = [part] if part in MARKS else list(part)
        said += [token for piece in pieces for token in tokenizer(piece, add_special_tokens=False)["input_ids"]]
    return tokenizer, (*said, tokenizer.eos_token_id)


def policy_of(tokenizer, said, prompt=PROMPT):
    return ChatPolicy(ScriptedEngine(lambda ids, seed: said), tokenizer, prompt, History(None))


@pytest.mark.parametrize("name", TEMPLATES)
def test_prompts_are_those_of_the_template_and_extend_what_was_sampled(name):
    tokenizer, said = made(name)
    env = box(family_of(TEMPLATES[name]))
    (tree,) = search([env], policy_of(tokenizer, said), naive, seeds=[1])
    assert [node.info["executed"] for node in tree.nodes[1:]] == [('put(thing="pen")',)] * 6
    schemas = [tool.schema for tool in BoxEnv.tools]
    past = []
    for node, child in zip(tree.nodes[:2], tree.nodes[1:3], strict=True):
        past = messages_for(PROMPT, node.observation, node.info, past=past)
        if past[-1]["role"] == "tool":
            past[-1] |= {"tool_call_id": "call00001", "name": "put"}
        written = tokenizer.apply_chat_template(past, tools=schemas, tokenize=False, add_generation_prompt=True)
        # Mistral's template puts a blank before answers in plain text, which calls do not have.
        assert tokenizer.decode(child.candidate.prompt_ids) == written.replace("[/INST] [TOOL", "[/INST][TOOL")
        past.append({"role": "assistant", "content": CALLS[name]})
    for node, child in zip(tree.nodes[1:], tree.nodes[2:], strict=False):
        before = node.candidate.prompt_ids + node.candidate.token_ids
        assert child.candidate.prompt_ids[: len(before)] == before


@pytest.mark.parametrize("name", TEMPLATES)
def test_exactly_the_sampled_tokens_are_learned_from(name):
    tokenizer, said = made(name)
    (tree,) = search([box(family_of(TEMPLATES[name]))], policy_of(tokenizer, said), naive, seeds=[1])
    batch = collate([Group(0, tuple(harvest_all(tree)))])
    assert batch.ids.shape[0] == 1
    assert batch.ids[batch.sampled].tolist() == list(said) * 6
    last = tree.nodes[-1].candidate
    assert batch.ids[0].tolist() == [*last.prompt_ids, *said]


@pytest.mark.parametrize("name", ["hermes", "named", "qwen3"])
def test_an_exported_episode_is_read_back_as_the_text_that_the_model_saw(name):
    tokenizer, said = made(name)
    policy = policy_of(tokenizer, said)
    (tree,) = search([box()], policy, naive, seeds=[1])
    (chat,) = tree_chats(tree, prompt="tools", instructions=BoxEnv.instructions, successes=False)
    assert [message["role"] for message in chat.messages[:4]] == ["system", "user", "assistant", "tool"]
    (row,) = warm_rows([chat._asdict()], policy, [tokenizer.eos_token_id])
    last = tree.nodes[-1].candidate
    assert tokenizer.decode(row.ids) == tokenizer.decode(last.prompt_ids + last.token_ids)
    learned = tokenizer.decode(row.ids[row.learned])
    assert learned == tokenizer.decode(said) * 6


def test_a_result_is_written_as_the_template_writes_it():
    text = 'The "box" holds:\npen'
    for name in TEMPLATES:
        tokenizer, said = made(name)
        policy = policy_of(tokenizer, said)
        env = box(family_of(TEMPLATES[name]))
        env.play(policy([(env.tree, Expand(0))])[0][0])
        prompt = tokenizer.decode(policy.prompt_ids(env.tree, 1))
        assert (json.dumps(text) if name in ("llama", "named") else text) in prompt.rpartition("put")[2]


def test_a_wrong_call_is_shown_to_the_model_as_an_error():
    tokenizer, _ = made("hermes")
    said = (*tokenizer("no call", add_special_tokens=False)["input_ids"], tokenizer.eos_token_id)
    policy, env = policy_of(tokenizer, said), box()
    env.play(policy([(env.tree, Expand(0))])[0][0])
    shown = '<tool_response>\nError: wanted one tool call, got none\nThe "box" holds:\nnothing\n'
    assert shown in tokenizer.decode(policy.prompt_ids(env.tree, 1))


REFUSED = {
    "rewrites the text of a tool's message": LLAMA.replace(
        "message.content | tojson", "message.content | replace('d', 'D')"
    ),
    "changes earlier turns": QWEN3.replace("loop.index0 + 1 > ns.last", "loop.index0 + 3 >= messages | length").replace(
        "message.content.split('</think>')[-1]", "message.content.replace('answer', '')"
    ),
    "does not show the tool 'put'": CHATML,
    "drops, repeats or rewrites messages": CHATML.replace("in messages %}", "in messages if message.role != 'tool' %}"),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_template_that_cannot_carry_an_episode_with_tools_is_refused(reason):
    with pytest.raises(ConfigError, match=reason):
        policy_of(chatml_tokenizer(REFUSED[reason]), (5,))


def test_thoughts_that_a_template_keeps_in_episodes_with_tools_are_not_left_out():
    tokenizer = made("qwen3")[0]
    with pytest.raises(ConfigError, match="does not drop earlier thoughts here"):
        ChatPolicy(ScriptedEngine(None), tokenizer, PROMPT, History.parse("without_thoughts"))


def test_a_world_without_tools_is_refused_by_the_policy_and_the_wrapper():
    with pytest.raises(ConfigError, match="no tools that a model can call"):
        policy_of(made("hermes")[0], (5,), choose_prompt("tools", "rules"))
    with pytest.raises(ConfigError, match="SokobanEnv has no tools"):
        ToolCalls(rooms(1).unwrapped)


@pytest.mark.parametrize("name", TEMPLATES)
def test_families_are_read_from_templates(name):
    assert family_of(TEMPLATES[name]) == {"qwen3": "hermes", "named": "hermes"}.get(name, name)


def test_a_template_without_a_readable_form_is_refused():
    for template in (CHATML, "<tool_call><function=name>", "<tool_call>name<arg_key>"):
        with pytest.raises(ConfigError, match="shows no form of tool calls"):
            family_of(template)
