"""The tokenizer of worlds of words: a word and the blank before it are one token, so decoded text has its blanks."""

from collections.abc import Iterable
from typing import Any

from tokenizers import AddedToken

from tsr_gym.agents.models.tiny_model import END, byte_tokenizer

_ROLES = ("<user>", "<assistant>")
_TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}> {{ message.content | trim }}"
    "{% if message.role == 'assistant' %}" + END + "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def word_tokenizer(words: Iterable[str]) -> Any:
    """Return a byte-level Qwen2 tokenizer in which every word is one token, together with the blank before it.

    A tokenizer of whole words of another kind would be read back beside a Qwen2 model as a byte-level one, without an
    error. Any other text falls apart into bytes, so nothing is unknown.

    Args:
        words: Without blanks; tags such as ``<answer>`` are words like others.

    >>> tokenizer = word_tokenizer(["red", "shoes", "search", "[", "]"])
    >>> ids = tokenizer(" search [ red shoes ]")["input_ids"]
    >>> len(ids), tokenizer.decode(ids)
    (5, ' search [ red shoes ]')
    """
    spaced = (f" {word}" for word in sorted(set(words)))
    tokens = [
        AddedToken(text, lstrip=False, rstrip=False, normalized=False, special=False) for text in (*_ROLES, *spaced)
    ]
    return byte_tokenizer(tokens, _TEMPLATE)
