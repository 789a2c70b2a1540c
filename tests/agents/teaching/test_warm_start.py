"""Warm start: the imitated tokens of given episodes, and that a run begins with the resulting model."""

import json
import tomllib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.agents.bridges.helpers import grown_trees
from tests.agents.short_runs import short_run
from tests.agents.tiny import ScriptedEngine, chatml_tokenizer
from tests.agents.worlds import lake
from tsr_gym import ConfigError
from tsr_gym.agents.bridges.export import export, tree_chats
from tsr_gym.agents.bridges.rows import tree_rows
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.policies.chat_policy import ChatPolicy
from tsr_gym.agents.policies.prompts import PROMPTS, History
from tsr_gym.agents.runs.checkpoint import checkpoints
from tsr_gym.agents.runs.trainer import first_model, resume_run, start_run
from tsr_gym.agents.strategies import naive
from tsr_gym.agents.teaching.imitation import warm_rows
from tsr_gym_envs.frozen_lake.env import FrozenLakeEnv


def scripted(history, prompt="paper"):
    """Return a policy that answers in canonical tokens, and an episode of three of its turns."""
    tokenizer = chatml_tokenizer()
    words = PROMPTS[prompt](FrozenLakeEnv.instructions)
    answers = ["why not</think> <answer>Left</answer>", "hm</think> <answer>Down || Up</answer>", "x</think> no"]
    ids = [(*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id) for text in answers]
    chat = ChatPolicy(
        ScriptedEngine(lambda prompt, seed: ids[len(prompt) % 3]), tokenizer, words, History.parse(history)
    )
    (tree,) = search([lake(3, max_turns=3, is_slippery=False)], chat, naive, seeds=[3])
    assert len(tree.path(tree.leaves()[0])) > 2
    return chat, tree


@pytest.mark.parametrize("history", ["full", "markov", "window(1)"])
def test_messages_become_the_tokens_that_the_runs_own_policy_would_have_read_and_answered(history):
    chat, tree = scripted(history)
    (episode,) = tree_chats(tree, successes=False)
    rows = warm_rows([episode._asdict()], chat, [chat.tokenizer.eos_token_id])
    encoded = [(row.ids.tolist(), row.learned.tolist()) for row in rows]
    if history == "full":
        (row,) = tree_rows(tree)
        assert encoded == [(list(row.input_ids), [bool(value) for value in row.mask])]
        return
    answers = [tree.nodes[node].candidate for node in tree.path(tree.leaves()[0])[1:]]
    shown = [([*answer.prompt_ids, *answer.token_ids], [False] * len(answer.prompt_ids)) for answer in answers]
    assert encoded == [(ids, mask + [True] * (len(ids) - len(mask))) for ids, mask in shown]


def test_rows_of_tokens_are_used_unchanged():
    chat, _ = scripted("full")
    (row,) = warm_rows([{"input_ids": [5, 6, 7], "mask": [0, 1, 0]}], chat, [0])
    assert (row.ids.tolist(), row.learned.tolist()) == ([5, 6, 7], [False, True, False])


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"prompt": "a"}, "got 'input_ids'"),
        ({"input_ids": [1, 2], "mask": [0]}, "2 ids and a mask of 1"),
        ({"input_ids": [1, 2], "mask": [1, 0]}, "1 of them to learn"),
        ({"input_ids": [1, 90_000], "mask": [0, 1]}, "2 ids"),
        ({"messages": [{"role": "user", "content": "a"}]}, "messages without an answer"),
        ({"messages": ["hello"]}, "string indices"),
    ],
)
def test_a_record_that_is_no_episode_is_refused_by_its_number(record, message):
    chat, _ = scripted("full")
    with pytest.raises(ConfigError, match=f"record 1 of the warm start: .*{message}"):
        warm_rows([{"input_ids": [5, 6, 7], "mask": [0, 1, 0]}, record], chat, [0])


def test_a_template_that_rewrites_earlier_answers_is_refused():
    chat, tree = scripted("full")
    (episode,) = tree_chats(tree, successes=False)
    # Some templates leave out the thinking of earlier turns.
    chat.tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{{ m.content.split('</think>')[-1] if m.role == 'assistant' else m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    with pytest.raises(ConfigError, match="a chat template that rewrites earlier messages"):
        warm_rows([episode._asdict()], chat, [0])


@pytest.fixture(scope="module")
def warm(base_model, tmp_path_factory):
    """A file of one episode, and a short run that begins with it."""
    folder = tmp_path_factory.mktemp("warm")
    line = {"messages": [{"role": "user", "content": "###\nturn 1 left 5"}]}
    line["messages"].append({"role": "assistant", "content": "<answer>Up || Left</answer>"})
    (folder / "episodes.jsonl").write_text(json.dumps(line) + "\n")
    changes = {"warm_start": folder / "episodes.jsonl", "warm_start_steps": 30, "warm_start_lr": 3e-3, "updates": 1}
    config = short_run(folder / "run", base_model, run={**changes, "eval_every": 0, "warm_start_batch": 2})
    return start_run(config, Path(base_model)), config, folder


def weights(folder):
    return load_file(folder / "model.safetensors")


def test_a_run_begins_with_the_model_that_the_warm_start_made(warm, base_model):
    trainer, _, folder = warm
    begun = weights(folder / "run-warm-start")
    assert all(
        torch.equal(begun[name], weight) for name, weight in weights(checkpoints(folder / "run")[0] / "model").items()
    )
    assert any(not torch.equal(begun[name], weight) for name, weight in weights(base_model).items())
    # The critic begins as the policy does.
    critic = load_file(checkpoints(folder / "run")[0] / "critic.safetensors")
    assert torch.equal(critic["backbone.embed_tokens.weight"], begun["model.embed_tokens.weight"])
    # The imitated answer is now the most likely one.
    chat = trainer.parts.chat
    ids = chat.tokenizer("<user>###\nturn 1 left 5<assistant><answer>", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        logits = trainer.parts.policy.model(torch.tensor([ids])).logits[0, -1]
    assert chat.tokenizer.decode(logits.argmax()).strip() == "Up"


def test_the_warm_start_is_recorded_and_a_resumed_run_does_not_repeat_it(warm):
    trainer, _, folder = warm
    saved = tomllib.loads((folder / "run" / "run.toml").read_text())["run"]
    assert (saved["warm_start"], saved["warm_start_steps"]) == (str(folder / "episodes.jsonl"), 30)
    assert trainer.parts.policy.card.about["warm_start"]["rows"] == 1
    (folder / "episodes.jsonl").rename(folder / "gone.jsonl")
    try:
        resumed = resume_run(folder / "run")
    finally:
        (folder / "gone.jsonl").rename(folder / "episodes.jsonl")
    before, after = trainer.parts.policy.model.state_dict(), resumed.parts.policy.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_warm_start_that_is_there_is_used_again_and_one_of_another_file_is_not(warm, base_model):
    _, config, folder = warm
    marker = folder / "run-warm-start" / "model.safetensors"
    stamp = marker.stat().st_mtime_ns
    assert first_model(config, Path(base_model)) == folder / "run-warm-start"
    assert marker.stat().st_mtime_ns == stamp
    text = (folder / "episodes.jsonl").read_text()
    (folder / "episodes.jsonl").write_text(text + text)
    first_model(config, Path(base_model))
    assert marker.stat().st_mtime_ns != stamp


def test_without_a_file_a_run_begins_with_its_model_and_a_missing_one_is_refused(base_model, tmp_path):
    assert first_model(short_run(tmp_path / "run", base_model), Path(base_model)) == Path(base_model)
    config = short_run(tmp_path / "run", base_model, run={"warm_start": tmp_path / "none.jsonl"})
    with pytest.raises(ConfigError, match=r"wanted a file of episodes, .*none\.jsonl"):
        first_model(config, Path(base_model))


def test_exported_rows_of_another_context_are_refused(base_model, tmp_path):
    (tree,), _, _ = grown_trees()
    tree.save(tmp_path / "tree.jsonl")
    export([tmp_path / "tree.jsonl"], tmp_path / "rows.jsonl", kind="trajectories")
    config = short_run(tmp_path / "run", base_model, run={"warm_start": tmp_path / "rows.jsonl"})
    with pytest.raises(ConfigError, match=r"ids and a mask of|the model's context"):
        first_model(config, Path(base_model))
    assert not (tmp_path / "run-warm-start").exists()
