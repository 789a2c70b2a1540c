"""Imitation of episodes, and the warm start of a run."""

import json
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
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
from tsr_gym.agents.models.tiny_model import set_copying_heads, tiny_model
from tsr_gym.agents.models.tokenizer import word_tokenizer
from tsr_gym.agents.policies.chat_policy import ChatPolicy
from tsr_gym.agents.policies.prompts import PROMPTS, History
from tsr_gym.agents.runs.progress import checkpoints
from tsr_gym.agents.runs.trainer import first_model, resume_run, start_run
from tsr_gym.agents.strategies import naive
from tsr_gym.agents.teaching import imitation as module
from tsr_gym.agents.teaching.base_recipe import WordRecipe
from tsr_gym.agents.teaching.imitation import Answer, Exchange, Row, drill_copying, imitate_rows, rows_of, warm_rows
from tsr_gym_envs.frozen_lake.env import FrozenLakeEnv

RECIPE = WordRecipe(batch=4, drill_steps=3)
NO_EXCHANGE = Exchange(10, [], 0.0)


def row(ids, learned):
    return Row(np.array(ids), np.array(learned, dtype=bool))


def episode(history, *, learned=True):
    """Return the rows of two turns: prompt 1 2 with answer 3, then prompt 4 with answer 5 6."""
    prompts = {0: (1, 2), 1: (1, 2, 3, 4) if history == "full" else (4,)}
    tree = SimpleNamespace(path=lambda end: [0, 1, 2])
    chat = SimpleNamespace(prompt_ids=lambda tree, node: prompts[node], history=History.parse(history))
    return rows_of(tree, 2, chat, [Answer([3], learned), Answer([5, 6])])


def test_an_episode_is_one_row_or_one_per_turn_and_answers_of_others_are_not_learned():
    (whole,) = episode("full")
    assert whole.ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert whole.learned.tolist() == [False, False, True, False, True, True]
    first, second = episode("markov")
    assert (first.ids.tolist(), first.learned.tolist()) == ([1, 2, 3], [False, False, True])
    assert (second.ids.tolist(), second.learned.tolist()) == ([4, 5, 6], [False, True, True])
    (whole,) = episode("full", learned=False)
    assert whole.ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert whole.learned.tolist() == [False, False, False, False, True, True]
    (second,) = episode("markov", learned=False)
    assert second.ids.tolist() == [4, 5, 6]


def test_words_are_exchanged_throughout_a_row_and_others_stay():
    exchange, rng = Exchange(10, [4, 5, 6, 7], 1.0), np.random.default_rng(0)
    before = row([1, 4, 5, 2, 4, 9], [0, 0, 0, 0, 1, 1])
    seen = set()
    for _ in range(200):
        after = exchange(before, rng)
        first, second = after.ids[1], after.ids[2]
        assert after.ids.tolist() == [1, first, second, 2, first, 9]
        assert {first, second} <= {4, 5, 6, 7}
        assert first != second
        assert after.learned is before.learned
        seen.add((int(first), int(second)))
    # Every ordered pair of the four words.
    assert (len(seen), before.ids.tolist()) == (12, [1, 4, 5, 2, 4, 9])
    # With the given probability.
    exchange, rng = Exchange(100, range(100), 0.3), np.random.default_rng(0)
    before = row(range(20), [1] * 20)
    changed = sum(exchange(before, rng) is not before for _ in range(1000))
    assert changed == pytest.approx(300, abs=50)


def test_the_loss_covers_the_learned_tokens_alone():
    model = tiny_model(word_tokenizer(["red", "blue"]), heads=2)
    rows = [row([256, 257, 258, 259], [0, 0, 1, 1]), row([259, 258], [0, 1])]
    ids, learned = module._padded(rows)
    loss, accuracy = module._loss(model, ids, learned)
    # By hand: the log-probability of each learned token, given the tokens before it in its row.
    losses, hits = [], []
    with torch.no_grad():
        for ids, learned in rows:
            logits = model(torch.tensor([ids.tolist()])).logits[0].log_softmax(-1)
            places = learned.nonzero()[0]
            losses += [-float(logits[place - 1, ids[place]]) for place in places]
            hits += [int(logits[place - 1].argmax()) == ids[place] for place in places]
    assert float(loss.detach()) == pytest.approx(np.mean(losses), abs=1e-5)
    assert accuracy == pytest.approx(np.mean(hits))


def test_batches_hold_every_row_about_equally_often_and_rows_of_similar_length_together():
    rows = [row(range(length), [1] * length) for length in range(1, 41)]
    dealt = module._deal(rows, 4, np.random.default_rng(0))
    batches = [[len(row.ids) for row in next(dealt)] for _ in range(400)]
    counts = np.bincount([length for batch in batches for length in batch], minlength=41)[1:]
    assert counts.min() > 15
    # The lengths of four random rows of forty span 24 on average.
    assert np.mean([max(batch) - min(batch) for batch in batches]) < 8


def test_an_imitated_answer_becomes_the_most_likely_one():
    tokenizer = word_tokenizer(["red", "blue", "green"])
    model = tiny_model(tokenizer, hidden=16, heads=2)
    first, *others = tokenizer.convert_tokens_to_ids([" red", " blue", " green"])
    rows = [row([first, *others], [0, 1, 1])]
    imitate_rows(model, rows, RECIPE, exchange=NO_EXCHANGE, steps=60, lr=1e-2, final=0.1)
    with torch.no_grad():
        answer = model(torch.tensor([[first, others[0]]])).logits[0].argmax(-1)
    assert answer.tolist() == others
    assert not model.training


@pytest.fixture
def drilled():
    """A tokenizer of twelve words, the words, and the tokens around a drill."""
    tokenizer = word_tokenizer([f"w{number}" for number in range(12)])
    words = tokenizer.convert_tokens_to_ids([f" w{number}" for number in range(12)])
    return tokenizer, words, tuple(tokenizer.convert_tokens_to_ids(["<user>", "<assistant>", "<|im_end|>"]))


def test_a_drill_ends_when_the_model_copies_and_returns_its_steps(drilled):
    tokenizer, words, around = drilled
    model = tiny_model(tokenizer, heads=2, theta=1e6)
    set_copying_heads(model)
    taken = drill_copying(model, words, replace(RECIPE, drill_steps=200, copies=0.9), around=around)
    assert 5 <= taken < 200
    shown = [words[number] for number in (3, 7, 8, 2, 1, 11, 9)]
    with torch.no_grad():
        predicted = model(torch.tensor([[around[0], *shown, around[1], *shown]])).logits[0].argmax(-1)
    assert (predicted[8:-1] == torch.tensor(shown)[: len(predicted[8:-1])]).float().mean() > 0.7


def test_a_drill_that_does_not_end_in_time_reports_its_accuracy(drilled):
    tokenizer, words, around = drilled
    with pytest.raises(ConfigError, match=r"3 steps .* 0\.\d\d of the words, wanted 0.95"):
        drill_copying(tiny_model(tokenizer, hidden=16, heads=2), words, RECIPE, around=around)


def scripted(history, prompt="paper"):
    """Return a policy that answers in canonical tokens, and an episode of three of its turns."""
    tokenizer = chatml_tokenizer()
    words = PROMPTS[prompt](FrozenLakeEnv.instructions)
    answers = ["why not</think> <answer>Left</answer>", "hm</think> <answer>Down || Up</answer>", "x</think> no"]
    ids = [(*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id) for text in answers]
    engine = ScriptedEngine(lambda prompt, seed: ids[len(prompt) % 3])
    chat = ChatPolicy(engine, tokenizer, words, History.parse(history))
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
        # Rows of tokens are used unchanged.
        (row,) = warm_rows([{"input_ids": [5, 6, 7], "completion_mask": [0, 1, 0]}], chat, [0])
        assert (row.ids.tolist(), row.learned.tolist()) == ([5, 6, 7], [False, True, False])
        (row,) = tree_rows(tree)
        assert encoded == [(list(row.input_ids), [bool(value) for value in row.completion_mask])]
        return
    answers = [tree.nodes[node].candidate for node in tree.path(tree.leaves()[0])[1:]]
    shown = [([*answer.prompt_ids, *answer.token_ids], [False] * len(answer.prompt_ids)) for answer in answers]
    assert encoded == [(ids, mask + [True] * (len(ids) - len(mask))) for ids, mask in shown]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"prompt": "a"}, "got 'input_ids'"),
        ({"input_ids": [1, 2], "completion_mask": [0]}, "2 ids and a mask of 1"),
        ({"input_ids": [1, 2], "completion_mask": [1, 0]}, "1 of them to learn"),
        ({"input_ids": [1, 90_000], "completion_mask": [0, 1]}, "2 ids"),
        ({"messages": [{"role": "user", "content": "a"}]}, "messages without an answer"),
        ({"messages": ["hello"]}, "string indices"),
    ],
)
def test_a_record_that_is_no_episode_is_refused_by_its_number(record, message):
    chat, _ = scripted("full")
    with pytest.raises(ConfigError, match=f"record 1 of the warm start: .*{message}"):
        warm_rows([{"input_ids": [5, 6, 7], "completion_mask": [0, 1, 0]}, record], chat, [0])


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
    first = weights(checkpoints(folder / "run")[0] / "model")
    assert all(torch.equal(begun[name], weight) for name, weight in first.items())
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
    # A copy of the model is the same model; another history, or another file, makes another warm start.
    assert first_model(config, Path(shutil.copytree(base_model, folder / "copy"))) == folder / "run-warm-start"
    assert marker.stat().st_mtime_ns == stamp
    settings = json.loads((folder / "run-warm-start" / module.MARKER).read_text())
    assert (settings["env"], settings["history"]) == ("tsr/Sokoban-v0", config.model.history)
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
