"""Tokenizers of small models, and loading a tokenizer exactly as it was saved.

The tokenizers are byte-level Qwen2 ones with added tokens. Transformers chooses the class of a tokenizer by the model
next to it, and some classes rebuild themselves from the vocabulary: a tokenizer of whole words next to a Qwen2 model is
then read back as one of bytes. `load_tokenizer` therefore compares the ids of a text with those at the time of saving.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen2Tokenizer

from tsr_gym.agents.models.settings import ModelCard
from tsr_gym.agents.policies.text_encoder import SYMBOL
from tsr_gym.errors import CheckpointError

END, PAD = "<|im_end|>", "<|endoftext|>"
_ROLES, _ANSWER = ("<user>", "<assistant>"), ("<answer>", "</answer>")
_SYMBOL_TEMPLATE = (
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}"
    "{% if message.role == 'assistant' %}" + END + "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
_WORD_TEMPLATE = _SYMBOL_TEMPLATE.replace("{{ message.content }}", " {{ message.content | trim }}")
# Names of the class that is fully described by its file.
_GENERIC = {"PreTrainedTokenizerFast", "TokenizersBackend"}
_TEXT = "Turn 12: push the box left, then up. <answer>Up || Left</answer>\nAsk: who wrote it? 3.50"
_WORDS = 64


def symbols(text: str) -> list[str]:
    """Return the symbols of a text: words, whole numbers, tags, separators, and every other character alone.

    >>> symbols("P b3 # a10 || Up</answer>")
    ['P', 'b3', '#', 'a10', '||', 'Up', '</answer>']
    """
    return SYMBOL.findall(text)


def tiny_tokenizer(texts: Iterable[str]) -> Any:
    """Return a byte-level Qwen2 tokenizer in which every symbol of the texts is one token and blanks are none.

    Any other text is split into bytes, so every text can be encoded.
    """
    tags = (*_ROLES, *_ANSWER)
    vocabulary = (*tags, *sorted({symbol for text in texts for symbol in symbols(text)} - set(tags)))
    tokens = [AddedToken(symbol, lstrip=True, rstrip=True, normalized=False, special=False) for symbol in vocabulary]
    return byte_tokenizer(tokens, _SYMBOL_TEMPLATE)


def word_tokenizer(words: Iterable[str]) -> Any:
    """Return a byte-level Qwen2 tokenizer in which every word is one token, together with the blank before it.

    Decoded text therefore has its blanks. Any other text is split into bytes, so every text can be encoded.

    Args:
        words: Without blanks; tags such as ``<answer>`` are words like others.

    >>> tokenizer = word_tokenizer(["red", "shoes", "search", "[", "]"])
    >>> ids = tokenizer(" search [ red shoes ]")["input_ids"]
    >>> len(ids), tokenizer.decode(ids)
    (5, ' search [ red shoes ]')
    """
    vocabulary = (*_ROLES, *(f" {word}" for word in sorted(set(words))))
    tokens = [AddedToken(text, lstrip=False, rstrip=False, normalized=False, special=False) for text in vocabulary]
    return byte_tokenizer(tokens, _WORD_TEMPLATE)


def byte_tokenizer(tokens: Sequence[AddedToken], template: str) -> Any:
    """Return a Qwen2 tokenizer of single bytes and of the given tokens, with a chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Qwen2Tokenizer(
        vocab={letter: number for number, letter in enumerate(alphabet)},
        merges=[],
        eos_token=END,
        pad_token=PAD,
        unk_token=PAD,
    )
    tokenizer.add_tokens(list(tokens))
    tokenizer.chat_template = template
    return tokenizer


def spelling_of(tokenizer: Any) -> dict[str, list[int]]:
    """Return a text that contains some of a tokenizer's words, with the ids that encode it."""
    last = len(tokenizer) - 1
    numbers = range(last + 1) if last < _WORDS else [last * place // (_WORDS - 1) for place in range(_WORDS)]
    text = " ".join([_TEXT, *(tokenizer.decode([number]).strip() for number in numbers)])
    return {text: _encoded(tokenizer, text)}


def load_tokenizer(folder: Path) -> Any:
    """Return the tokenizer in a folder.

    Raises:
        CheckpointError: Its vocabulary is missing, or it encodes a text otherwise than when it was saved.
    """
    file, saved_as = folder / "tokenizer.json", _saved_class(folder)
    # `AutoTokenizer` would turn a tokenizer of the generic class into one of the model's class.
    loader: Any = PreTrainedTokenizerFast if saved_as in _GENERIC and file.exists() else AutoTokenizer
    tokenizer = loader.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    # Where the files are missing, transformers makes an empty tokenizer, which encodes every text as nothing.
    if not file.exists() and len({*_encoded(tokenizer, _TEXT)} - {*tokenizer.all_special_ids}) < 2:
        names = " or ".join(dict.fromkeys([file.name, *type(tokenizer).vocab_files_names.values()]))
        raise CheckpointError(f"{folder}: wanted the tokenizer's {names}, got neither: copy all files of the model")
    loaded_as, spelling = type(tokenizer).__name__, ModelCard.load(folder).spelling
    if not spelling and saved_as not in (*_GENERIC, "") and not loaded_as.startswith(saved_as.removesuffix("Fast")):
        spelling = _spelling_in(file)
    for text, ids in spelling.items():
        if (encoded := _encoded(tokenizer, text)) != ids:
            raise CheckpointError(
                f"{folder}: the tokenizer was saved as {saved_as or 'an unnamed class'} and is read as {loaded_as}, "
                f"which encodes otherwise: wanted ids {ids[:8]}..., got {encoded[:8]}...; save it as {loaded_as} "
                "or as PreTrainedTokenizerFast, or use the version of transformers that it was saved with"
            )
    return tokenizer


def _spelling_in(file: Path) -> dict[str, list[int]]:
    """Return a text with the ids that the tokenizer in a file makes of it; empty where the file does not exist."""
    return {_TEXT: Tokenizer.from_file(str(file)).encode(_TEXT, add_special_tokens=False).ids} if file.exists() else {}


def _encoded(tokenizer: Any, text: str) -> list[int]:
    return [int(number) for number in tokenizer(text, add_special_tokens=False)["input_ids"]]


def _saved_class(folder: Path) -> str:
    """Return the class name that a folder's tokenizer was saved with, "" where the folder does not name one."""
    config = folder / "tokenizer_config.json"
    return str(json.loads(config.read_text()).get("tokenizer_class") or "") if config.exists() else ""
