"""Imitation in words: the contents of a row, its learned tokens, and the drill in copying."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tsr_gym import ConfigError
from tsr_gym.agents.models.tiny_model import set_copying_heads, tiny_model
from tsr_gym.agents.models.tokenizer import word_tokenizer
from tsr_gym.agents.policies.prompts import History
from tsr_gym.agents.teaching import imitation as module
from tsr_gym.agents.teaching.base_recipe import WordRecipe
from tsr_gym.agents.teaching.imitation import Answer, Exchange, Row, drill_copying, imitate_rows, rows_of

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


def test_an_episode_is_one_row_if_each_prompt_extends_the_last():
    (whole,) = episode("full")
    assert whole.ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert whole.learned.tolist() == [False, False, True, False, True, True]


def test_an_episode_is_a_row_per_turn_if_prompts_show_only_the_present_state():
    first, second = episode("markov")
    assert (first.ids.tolist(), first.learned.tolist()) == ([1, 2, 3], [False, False, True])
    assert (second.ids.tolist(), second.learned.tolist()) == ([4, 5, 6], [False, True, True])


def test_answers_of_other_players_are_shown_and_not_learned():
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
    assert len(seen) == 12
    assert before.ids.tolist() == [1, 4, 5, 2, 4, 9]


def test_words_are_exchanged_with_the_given_probability():
    exchange, rng = Exchange(100, range(100), 0.3), np.random.default_rng(0)
    before = row(range(20), [1] * 20)
    changed = sum(exchange(before, rng) is not before for _ in range(1000))
    assert changed == pytest.approx(300, abs=50)


def test_the_loss_covers_the_learned_tokens_alone():
    tokenizer = word_tokenizer(["red", "blue"])
    model = tiny_model(tokenizer, heads=2)
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


def test_a_drill_ends_when_the_model_copies_and_returns_its_steps():
    tokenizer = word_tokenizer([f"w{number}" for number in range(12)])
    words = tokenizer.convert_tokens_to_ids([f" w{number}" for number in range(12)])
    model = tiny_model(tokenizer, heads=2, theta=1e6)
    set_copying_heads(model)
    around = tuple(tokenizer.convert_tokens_to_ids(["<user>", "<assistant>", "<|im_end|>"]))
    taken = drill_copying(model, words, replace(RECIPE, drill_steps=200, copies=0.9), around=around)
    assert 5 <= taken < 200
    shown = [words[number] for number in (3, 7, 8, 2, 1, 11, 9)]
    with torch.no_grad():
        predicted = model(torch.tensor([[around[0], *shown, around[1], *shown]])).logits[0].argmax(-1)
    assert (predicted[8:-1] == torch.tensor(shown)[: len(predicted[8:-1])]).float().mean() > 0.7


def test_a_drill_that_does_not_end_in_time_reports_its_accuracy():
    tokenizer = word_tokenizer([f"w{number}" for number in range(12)])
    words = tokenizer.convert_tokens_to_ids([f" w{number}" for number in range(12)])
    around = tuple(tokenizer.convert_tokens_to_ids(["<user>", "<assistant>", "<|im_end|>"]))
    with pytest.raises(ConfigError, match=r"3 steps .* 0\.\d\d of the words, wanted 0.95"):
        drill_copying(tiny_model(tokenizer, hidden=16, heads=2), words, RECIPE, around=around)
