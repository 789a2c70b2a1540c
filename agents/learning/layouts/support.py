"""Support: whether a model can read forests, found by letting it read a small one."""

from typing import Any

import torch

from tsr_gym.agents.episodes.trajectory import Group, Trajectory, Turn
from tsr_gym.agents.learning.batch import Batch, collate
from tsr_gym.agents.learning.layouts.layout import lay_out
from tsr_gym.errors import ConfigError

# Kinds of layers whose attention sees all tokens before, or so many of them.
KNOWN = {"full_attention", "sliding_attention"}


def why_only_padded(model: Any) -> str | None:
    """Return why a model can only read padded rows; None where it reads forests as well.

    A model that mixes its tokens by anything but the attention that transformers hands it, such as a recurrence, would
    read a forest as one long row, without a word. So a small forest and its padded rows are compared.

    Args:
        model: A Hugging Face causal language model; all processes of a sharded one have to ask.
    """
    kinds = set(model.config.to_dict().get("layer_types") or ()) - KNOWN
    if kinds:
        return f"it has layers of the kind {', '.join(sorted(kinds))}"
    batch = _small_batch().to(next(model.parameters()).device)
    try:
        with torch.no_grad():
            padded, shared = (lay_out(batch, name).logprobs(model)[0][batch.sampled] for name in ("padded", "shared"))
    except (ConfigError, TypeError, ValueError, KeyError, AttributeError) as error:
        return f"it does not take a forest ({error})"
    spread = float((padded - padded.mean()).norm())
    rounding = torch.finfo(next(model.parameters()).dtype).eps ** 0.5
    if not float((shared - padded).norm()) <= rounding * spread:
        return "it reads a forest otherwise than its rows"
    return None


def _small_batch() -> Batch:
    """Return three rows that share a beginning, of different lengths, in which nearly all tokens are said."""
    rows = [(1, 2, 3, 4, 5, 6, 7, 8), (1, 2, 3, 9, 8, 7), (1, 2, 3, 4, 6, 8, 2, 4, 1, 5)]
    turns = [Turn(row[:1], row[1:], (0.0,) * len(row[1:]), 0.0, True, 1) for row in rows]
    return collate([Group(0, tuple(Trajectory((turn,), False, 0.0, "naive") for turn in turns))])
