"""From texts to token ids: what the dictionary finds is what the tokenizer's backend finds."""

import random

import pytest

from tests.agents.tiny import chatml_tokenizer
from tsr_gym.agents.models.tokenizer import END, tiny_tokenizer, word_tokenizer
from tsr_gym.agents.policies.text_encoder import text_encoder

WORDS = ["red", "redder", "[", "]", "b3", "<answer>", "</answer>", "a", "10", "||", "it's"]
OTHERS = ["", " ", "  ", "\n", "\t", "\x1c", "\u2003", "é", "x", "<", " <", "<b>", "left3", "10a", "A", END, "'s"]


@pytest.mark.parametrize("kind", [tiny_tokenizer, word_tokenizer])
def test_looked_up_texts_have_the_ids_of_the_backend(kind):
    tokenizer = kind(WORDS)
    encode, backend = text_encoder(tokenizer), tokenizer.backend_tokenizer
    vocabulary = [token.content for token in backend.get_added_tokens_decoder().values()]
    rng = random.Random(0)
    for _ in range(4_000):
        parts = [rng.choice(vocabulary if rng.random() < 0.85 else OTHERS) for _ in range(rng.randrange(7))]
        text = rng.choice(["", "", END]) + rng.choice(["", " ", "\n"]).join(parts)
        assert encode(text) == tuple(backend.encode(text, add_special_tokens=False).ids), repr(text)


@pytest.mark.parametrize("changes", ["nothing", "truncation", "padding", "special tokens split"])
def test_texts_are_encoded_as_a_call_of_the_tokenizer_encodes_them(changes):
    tokenizer, texts = chatml_tokenizer(), ["", " a  b\n", f"{END}<|im_start|>user\nUp || é√<|im_end|> 12"]
    tokenizer.split_special_tokens = changes == "special tokens split"
    expected = [tuple(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
    if changes == "truncation":
        tokenizer("a b c d", truncation=True, max_length=2)
    if changes == "padding":
        tokenizer(["a b c d"], padding="max_length", max_length=40)
    assert list(map(text_encoder(tokenizer), texts)) == expected
    assert len(expected[-1]) > 6
