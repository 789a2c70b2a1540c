"""Tiny models: a tokenizer in which every sign is a token, and a Qwen2 of about 0.1 million parameters."""

import pytest
import torch

from tsr_gym.agents.models.tiny_model import tiny_model
from tsr_gym.agents.models.tokenizer import symbols, tiny_tokenizer

TEXTS = ["P b3 X c2 O d4 # a1 a2\nturn 1 left 10", "Up || Down</answer>", "√"]


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer(TEXTS)


def words(tokenizer, text):
    return tokenizer.convert_ids_to_tokens(tokenizer(text, add_special_tokens=False)["input_ids"])


def test_every_sign_of_the_texts_is_one_token_and_blanks_are_none(tokenizer):
    assert words(tokenizer, "P b3 X c2\nturn 1 left 10") == ["P", "b3", "X", "c2", "turn", "1", "left", "10"]
    assert words(tokenizer, "<user>P b3<assistant><answer>Up || Down</answer><|im_end|>") == [
        "<user>",
        "P",
        "b3",
        "<assistant>",
        "<answer>",
        "Up",
        "||",
        "Down",
        "</answer>",
        "<|im_end|>",
    ]


def test_a_longer_sign_is_not_read_as_a_shorter_one_and_a_rest(tokenizer):
    longer = tiny_tokenizer(["a1 a10 a", "1 10 100"])
    assert words(longer, "a10 a1 a 100 1 10") == ["a10", "a1", "a", "100", "1", "10"]


def test_any_other_text_falls_apart_into_bytes_and_comes_back(tokenizer):
    for text in ("Zebra!", "北京 é", "b7"):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert len(ids) >= len(text)
        assert tokenizer.decode(ids) == text


def test_the_order_of_the_texts_does_not_matter():
    assert tiny_tokenizer(TEXTS).get_vocab() == tiny_tokenizer(TEXTS[::-1]).get_vocab()


def test_the_template_writes_roles_as_tags_and_ends_answers(tokenizer):
    messages = [
        {"role": "user", "content": "P b3"},
        {"role": "assistant", "content": "Up</answer>"},
        {"role": "user", "content": "P b2"},
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<user>P b3<assistant>Up</answer><|im_end|><user>P b2<assistant>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("P b3 # a10", ["P", "b3", "#", "a10"]),
        ("Up||Left</answer>", ["Up", "||", "Left", "</answer>"]),
        ("turn 12 left 3", ["turn", "12", "left", "3"]),
        ("(1, 2)√", ["(", "1", ",", "2", ")", "√"]),
        ("<|im_end|>", ["<", "|", "im", "_", "end", "|", ">"]),
        ("", []),
    ],
)
def test_signs_are_words_numbers_squares_tags_and_single_characters(text, expected):
    assert symbols(text) == expected


def test_the_model_is_small_and_knows_its_tokenizer(tokenizer):
    model = tiny_model(tokenizer)
    # Two layers of width 64: 4 * 64 * 64 + 3 * 64 (biases) for attention, 3 * 64 * 128 for the rest, two norms; an
    # embedding that is also the head; a last norm.
    layer = 4 * 64 * 64 + 3 * 64 + 3 * 64 * 128 + 2 * 64
    assert sum(parameter.numel() for parameter in model.parameters()) == 2 * layer + len(tokenizer) * 64 + 64
    assert model.config.eos_token_id == tokenizer.eos_token_id
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert not model.training


def test_the_seed_decides_the_parameters_and_nothing_else_is_touched(tokenizer):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, two, other = (tiny_model(tokenizer, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert not torch.equal(next(one.parameters()), next(other.parameters()))
