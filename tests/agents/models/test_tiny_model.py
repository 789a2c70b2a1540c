"""Tiny models: their sizes, their seeds, and initial weights that can copy."""

import numpy as np
import pytest
import torch

from tsr_gym import ConfigError
from tsr_gym.agents.models.tiny_model import set_copying_heads, tiny_model
from tsr_gym.agents.models.tokenizer import symbols, tiny_tokenizer, word_tokenizer

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


def test_longer_signs_come_first_and_other_text_falls_apart_into_bytes(tokenizer):
    longer = tiny_tokenizer(["a1 a10 a", "1 10 100"])
    assert words(longer, "a10 a1 a 100 1 10") == ["a10", "a1", "a", "100", "1", "10"]
    for text in ("Zebra!", "北京 é", "b7"):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert len(ids) >= len(text)
        assert tokenizer.decode(ids) == text
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


NAMES = [f"w{number}" for number in range(200)]


@pytest.fixture(scope="module")
def copying_tokenizer():
    return word_tokenizer(NAMES)


def copying_model(copying_tokenizer, **more):
    model = tiny_model(copying_tokenizer, heads=2, theta=1e6, **more)
    set_copying_heads(model)
    return model


def ids_of(copying_tokenizer, numbers):
    return torch.tensor([copying_tokenizer.convert_tokens_to_ids([f" w{number}" for number in numbers])])


def attention(model, ids):
    """Return the attention weights of every layer, `[H, T, T]` each."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        return [weights[0] for weights in model(ids, output_attentions=True).attentions]


def test_the_first_head_looks_one_token_back(copying_tokenizer):
    ids = ids_of(copying_tokenizer, np.random.default_rng(0).integers(200, size=60))
    looks = attention(copying_model(copying_tokenizer), ids)[0][0]
    assert looks[torch.arange(1, 60), torch.arange(59)].min() > 0.7
    # By position alone: other words change nothing.
    other = attention(copying_model(copying_tokenizer), ids.flip(1))[0][0]
    assert torch.allclose(looks, other, atol=1e-5)


def test_the_second_layer_finds_what_followed_the_present_word_and_says_it(copying_tokenizer):
    model = copying_model(copying_tokenizer)
    # After 7 came 9, after 9 came 4: so after a second "7 9" comes 4.
    ids = ids_of(copying_tokenizer, [3, 7, 9, 4, 5, 8, 7, 9])
    looks = attention(model, ids)[1][0]
    assert (looks[6].argmax(), looks[7].argmax()) == (2, 3)
    with torch.no_grad():
        logits = model(ids).logits[0]
    # Untrained, a word still speaks for itself through the tied embeddings; of the others, the one that was found.
    assert max({3, 9, 4, 5, 8}, key=lambda word: logits[6, ids_of(copying_tokenizer, [word])]) == 9
    assert max({3, 7, 4, 5, 8}, key=lambda word: logits[7, ids_of(copying_tokenizer, [word])]) == 4
    model = tiny_model(copying_tokenizer, heads=2, theta=1e6)
    looks = attention(model, ids_of(copying_tokenizer, [3, 7, 9, 4, 5, 8, 7, 9]))[1][0]
    assert looks[6, 2] < 0.5


def test_the_seed_decides_the_maps_and_the_embeddings_stay(copying_tokenizer):
    plain = tiny_model(copying_tokenizer, heads=2, theta=1e6)
    one, two, other = (tiny_model(copying_tokenizer, heads=2, theta=1e6) for _ in range(3))
    for model, seed in ((one, 1), (two, 1), (other, 2)):
        set_copying_heads(model, seed=seed)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    maps = [model.model.layers[0].self_attn.v_proj.weight for model in (one, other)]
    assert not torch.equal(*maps)
    assert torch.equal(one.get_input_embeddings().weight, plain.get_input_embeddings().weight)


@pytest.mark.parametrize("shape", [{"layers": 1}, {"heads": 1}])
def test_a_model_without_room_for_two_heads_in_two_layers_is_refused(copying_tokenizer, shape):
    model = tiny_model(copying_tokenizer, **({"heads": 2} | shape))
    with pytest.raises(ConfigError, match="copying takes two layers and two heads"):
        set_copying_heads(model)
