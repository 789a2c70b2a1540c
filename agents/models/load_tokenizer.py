"""Load a tokenizer as what it was saved, or refuse it.

Transformers chooses the class of a tokenizer by the model beside it, and some classes build themselves anew from the
vocabulary: a tokenizer of whole words beside a Qwen2 model then comes back as one of bytes, and every text means
something else to the model.
"""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from tsr_gym.agents.models.card import ModelCard
from tsr_gym.errors import CheckpointError

# Names of the class that is nothing but its file.
_GENERIC = {"PreTrainedTokenizerFast", "TokenizersBackend"}
_TEXT = "Turn 12: push the box left, then up. <answer>Up || Left</answer>\nAsk: who wrote it? 3.50"
_WORDS = 64


def spelling_of(tokenizer: Any) -> dict[str, list[int]]:
    """Return a text with some of a tokenizer's words, and the ids that it makes of it."""
    last = len(tokenizer) - 1
    numbers = range(last + 1) if last < _WORDS else [last * place // (_WORDS - 1) for place in range(_WORDS)]
    text = " ".join([_TEXT, *(tokenizer.decode([number]).strip() for number in numbers)])
    return {text: _encoded(tokenizer, text)}


def load_tokenizer(folder: Path) -> Any:
    """Return the tokenizer in a folder.

    Raises:
        CheckpointError: It does not spell as it did when it was saved.
    """
    file, saved_as = folder / "tokenizer.json", _saved_class(folder)
    # What is nothing but its file is read from it; `AutoTokenizer` would make the model's own kind of it.
    kind: Any = PreTrainedTokenizerFast if saved_as in _GENERIC and file.exists() else AutoTokenizer
    tokenizer = kind.from_pretrained(folder, local_files_only=True)
    loaded_as, spelling = type(tokenizer).__name__, ModelCard.load(folder).spelling
    if not spelling and saved_as not in (*_GENERIC, "") and not loaded_as.startswith(saved_as.removesuffix("Fast")):
        spelling = _spelling_in(file)
    for text, ids in spelling.items():
        if (found := _encoded(tokenizer, text)) != ids:
            raise CheckpointError(
                f"{folder}: the tokenizer was saved as {saved_as or 'an unnamed class'} and is read as {loaded_as}, "
                f"which spells otherwise: wanted ids {ids[:8]}..., got {found[:8]}...; save it as {loaded_as} or as "
                "PreTrainedTokenizerFast, or use the version of transformers that it was saved with"
            )
    return tokenizer


def _spelling_in(file: Path) -> dict[str, list[int]]:
    """Return what the tokenizer in a file makes of a text, nothing where there is no such file."""
    return {_TEXT: Tokenizer.from_file(str(file)).encode(_TEXT, add_special_tokens=False).ids} if file.exists() else {}


def _encoded(tokenizer: Any, text: str) -> list[int]:
    return [int(number) for number in tokenizer(text, add_special_tokens=False)["input_ids"]]


def _saved_class(folder: Path) -> str:
    """Return the name of the class that a folder's tokenizer had, "" where it does not say."""
    config = folder / "tokenizer_config.json"
    return str(json.loads(config.read_text()).get("tokenizer_class") or "") if config.exists() else ""
