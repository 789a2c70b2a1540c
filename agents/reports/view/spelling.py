"""Spelling: the text of each sampled token, by the tokenizer that a run's folder holds."""

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

Spell = Callable[[Sequence[int]], list[str]]


def find_spelling(folder: Path) -> Spell | None:
    """Return what spells the tokens of a run; None where no tokenizer is found, or none can be read here.

    Args:
        folder: Of the run; its newest checkpoint's tokenizer is taken, or else that of the model it began with.
    """
    try:
        # Trees can be looked at where the extra of the agents is not installed.
        from tokenizers import Tokenizer
    except ImportError:
        return None
    for file in _tokenizer_files(folder):
        # The library raises plain exceptions for a damaged file.
        try:
            return spelling_of(Tokenizer.from_file(str(file)))
        except Exception:
            continue
    return None


def spelling_of(tokenizer: Any) -> Spell:
    """Return what gives the text of each token as it stands in the whole: the pieces add up to the decoded text."""

    def spell(ids: Sequence[int]) -> list[str]:
        return list(_pieces(tuple(ids)))

    @lru_cache(maxsize=4096)
    def _pieces(ids: tuple[int, ...]) -> tuple[str, ...]:
        pieces, start = [], 0
        for number in range(len(ids)):
            # A few tokens before a token decide how it is written; more would make long texts slow.
            start = max(0, number - _CONTEXT)
            before = decode(ids[start:number])
            after = decode(ids[start : number + 1])
            pieces.append(after[len(before) :] if after.startswith(before) else decode(ids[number : number + 1]))
        return tuple(pieces)

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=False)) if ids else ""

    return spell


_CONTEXT = 4


def _tokenizer_files(folder: Path) -> list[Path]:
    saved = sorted(folder.glob("checkpoints/*/model/tokenizer.json"), reverse=True)
    try:
        model = json.loads((folder / "config.json").read_bytes())["model"]["model"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return saved
    began = Path(model) / "tokenizer.json" if isinstance(model, str) else None
    return [*saved, *([began] if began is not None and began.is_file() else [])]
