"""Initial weights that can copy: what their heads look at and say, read off before any training."""

import numpy as np
import pytest
import torch

from tsr_gym import ConfigError
from tsr_gym.agents.models.tiny_model import set_copying_heads, tiny_model
from tsr_gym.agents.models.tokenizer import word_tokenizer

NAMES = [f"w{number}" for number in range(200)]


@pytest.fixture(scope="module")
def tokenizer():
    return word_tokenizer(NAMES)


def copying_model(tokenizer, **more):
    model = tiny_model(tokenizer, heads=2, theta=1e6, **more)
    set_copying_heads(model)
    return model


def ids_of(tokenizer, numbers):
    return torch.tensor([tokenizer.convert_tokens_to_ids([f" w{number}" for number in numbers])])


def attention(model, ids):
    """Return the attention weights of every layer, `[H, T, T]` each."""
    model.set_attn_implementation("eager")
    with torch.no_grad():
        return [weights[0] for weights in model(ids, output_attentions=True).attentions]


def test_the_first_head_looks_one_token_back(tokenizer):
    ids = ids_of(tokenizer, np.random.default_rng(0).integers(200, size=60))
    looks = attention(copying_model(tokenizer), ids)[0][0]
    assert looks[torch.arange(1, 60), torch.arange(59)].min() > 0.7
    # By position alone: other words change nothing.
    other = attention(copying_model(tokenizer), ids.flip(1))[0][0]
    assert torch.allclose(looks, other, atol=1e-5)


def test_the_second_layer_finds_what_followed_the_present_word_and_says_it(tokenizer):
    model = copying_model(tokenizer)
    # After 7 came 9, after 9 came 4: so after a second "7 9" comes 4.
    ids = ids_of(tokenizer, [3, 7, 9, 4, 5, 8, 7, 9])
    looks = attention(model, ids)[1][0]
    assert looks[6].argmax() == 2
    assert looks[7].argmax() == 3
    with torch.no_grad():
        logits = model(ids).logits[0]
    # Untrained, a word still speaks for itself through the tied embeddings; of the others, the one that was found.
    assert max({3, 9, 4, 5, 8}, key=lambda word: logits[6, ids_of(tokenizer, [word])]) == 9
    assert max({3, 7, 4, 5, 8}, key=lambda word: logits[7, ids_of(tokenizer, [word])]) == 4


def test_without_them_the_same_model_finds_nothing(tokenizer):
    model = tiny_model(tokenizer, heads=2, theta=1e6)
    looks = attention(model, ids_of(tokenizer, [3, 7, 9, 4, 5, 8, 7, 9]))[1][0]
    assert looks[6, 2] < 0.5


def test_the_seed_decides_the_maps_and_the_embeddings_stay(tokenizer):
    plain = tiny_model(tokenizer, heads=2, theta=1e6)
    one, two, other = (tiny_model(tokenizer, heads=2, theta=1e6) for _ in range(3))
    for model, seed in ((one, 1), (two, 1), (other, 2)):
        set_copying_heads(model, seed=seed)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    maps = [model.model.layers[0].self_attn.v_proj.weight for model in (one, other)]
    assert not torch.equal(*maps)
    assert torch.equal(one.get_input_embeddings().weight, plain.get_input_embeddings().weight)


@pytest.mark.parametrize("shape", [{"layers": 1}, {"heads": 1}])
def test_a_model_without_room_for_two_heads_in_two_layers_is_refused(tokenizer, shape):
    model = tiny_model(tokenizer, **({"heads": 2} | shape))
    with pytest.raises(ConfigError, match="copying takes two layers and two heads"):
        set_copying_heads(model)
