"""Tiny models: a Qwen2 architecture of about 0.1 million parameters and a tokenizer in which every sign is a token."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from tokenizers import AddedToken, pre_tokenizers
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

END, PAD = "<|im_end|>", "<|endoftext|>"
_TAGS = ("<user>", "<assistant>", "<answer>", "</answer>")
# A tag, the separator of actions, a square such as b3, a word, a whole number, or any other sign alone.
_SIGN = re.compile(r"</?[a-z]+>|\|\||[a-z]{1,2}[0-9]+|[A-Z]?[a-z]+|[0-9]+|\S")
_TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}"
    "{% if message.role == 'assistant' %}" + END + "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def signs(text: str) -> list[str]:
    """Return the signs of a text: words, whole numbers, tags, separators, and every other character alone.

    >>> signs("P b3 # a10 || Up</answer>")
    ['P', 'b3', '#', 'a10', '||', 'Up', '</answer>']
    """
    return _SIGN.findall(text)


def tiny_tokenizer(texts: Iterable[str]) -> Any:
    """Return a byte-level Qwen2 tokenizer in which every sign of the texts is one token and blanks are none.

    Any other text falls apart into bytes, so nothing is unknown.
    """
    found = sorted({sign for text in texts for sign in signs(text)} - set(_TAGS))
    tokens = [AddedToken(sign, lstrip=True, rstrip=True, normalized=False, special=False) for sign in (*_TAGS, *found)]
    return byte_tokenizer(tokens, _TEMPLATE)


def byte_tokenizer(tokens: Sequence[AddedToken], template: str) -> Any:
    """Return a Qwen2 tokenizer of single bytes and of some tokens, with a chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Qwen2Tokenizer(
        vocab={sign: number for number, sign in enumerate(alphabet)},
        merges=[],
        eos_token=END,
        pad_token=PAD,
        unk_token=PAD,
    )
    tokenizer.add_tokens(list(tokens))
    tokenizer.chat_template = template
    return tokenizer


def tiny_model(
    tokenizer: Any,
    *,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    context: int = 512,
    theta: float = 1e4,
    seed: int = 0,
) -> Any:
    """Return an untrained causal language model of Qwen2's architecture for a tokenizer.

    Args:
        tokenizer: Its vocabulary and end tokens.
        hidden: Width.
        layers: Depth.
        heads: Attention heads.
        context: Longest sequence.
        theta: Base of the rotary positions; a large one leaves heads that look for equal words undisturbed by distance.
        seed: Of the parameters.
    """
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        rope_parameters={"rope_theta": theta, "rope_type": "default"},
        # The usual 0.02 is for widths in the thousands; at this width it makes learning several times slower.
        initializer_range=0.1,
        use_sliding_window=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed % 2**63)
        model: Any = Qwen2ForCausalLM(config)
    return model.eval()
