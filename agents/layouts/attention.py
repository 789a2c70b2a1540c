"""Attention over a forest of tokens: each sees itself and what comes before it in its rows, in three ways.

It stands in the place of a model's own attention while `attending`, layer by layer, so that keys and values of a token
are computed once for all rows that it stands in, and their gradients add up.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, Literal, Protocol

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from tsr_gym.agents.layouts.forest import TokenForest
from tsr_gym.errors import ConfigError

NAME = "tsr_gym_forest"

Kernel = Literal["runs", "mask", "flex"]
Sees = Callable[[Any, Any, Tensor, Tensor], Tensor]


class Attention(Protocol):
    """Attention over the tokens of one forest."""

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None, window: int | None) -> Tensor:
        """Return what each token makes of the tokens that it sees.

        Args:
            query: `[1, H, U, D]`.
            key: `[1, K, U, D]`; each of the K heads serves H / K heads of the query.
            value: `[1, K, U, D]`.
            scale: Factor of the scores; None for ``D ** -0.5``.
            window: How many tokens back a token sees, itself included; None for all.
        """
        ...


def attention_of(forest: TokenForest, kernel: Kernel | None = None) -> Attention:
    """Return the attention over a forest.

    Args:
        forest: Which token sees which.
        kernel: ``"runs"``: a call for each run of tokens, without anything computed in vain. ``"mask"``: one call with
            a dense mask. ``"flex"``: one call of FlexAttention, which leaves out empty blocks; it has no backward pass
            on CPU. None for flex on a GPU and runs elsewhere.
    """
    kinds: dict[Kernel, Callable[[TokenForest], Attention]] = {"runs": _ByRuns, "mask": _ByMask, "flex": _ByBlocks}
    return kinds[kernel or ("flex" if forest.ids.is_cuda else "runs")](forest)


def sees(forest: TokenForest, window: int | None = None) -> Sees:
    """Return which tokens of a forest see which: the one definition of it, for dense masks and for FlexAttention.

    Args:
        forest: Tokens.
        window: How many tokens back a token sees, itself included; None for all.

    Returns:
        A function of batch, head, and the numbers of the token that sees and of the one that is seen.
    """
    end, depth = forest.end, forest.depth

    def above(batch: Any, head: Any, seeing: Tensor, seen: Tensor) -> Tensor:
        return (seen <= seeing) & (seeing < end[seen])

    if window is None:
        return above

    def near(batch: Any, head: Any, seeing: Tensor, seen: Tensor) -> Tensor:
        return above(batch, head, seeing, seen) & (depth[seeing] - depth[seen] < window)

    return near


class _ByMask:
    def __init__(self, forest: TokenForest) -> None:
        self.forest = forest
        self.masks: dict[int | None, Tensor] = {}

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None, window: int | None) -> Tensor:
        if window not in self.masks:
            numbers = torch.arange(query.shape[2], device=query.device)
            self.masks[window] = sees(self.forest, window)(0, 0, numbers[:, None], numbers)
        key, value = _for_each_head(query, key), _for_each_head(query, value)
        return scaled_dot_product_attention(query, key, value, attn_mask=self.masks[window], scale=scale)


class _ByBlocks:
    def __init__(self, forest: TokenForest) -> None:
        self.forest = forest
        self.masks: dict[int | None, Any] = {}

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None, window: int | None) -> Tensor:
        size = query.shape[2]
        if window not in self.masks:
            self.masks[window] = create_block_mask(
                sees(self.forest, window), None, None, size, size, device=query.device.type
            )
        found: Tensor = _flex(query.device.type)(
            query, key, value, block_mask=self.masks[window], scale=scale, enable_gqa=key.shape[1] != query.shape[1]
        )
        return found


@cache
def _flex(device: str) -> Callable[..., Any]:
    """Return FlexAttention, compiled where that is what makes it fast."""
    plain: Callable[..., Any] = flex_attention
    return plain if device == "cpu" else torch.compile(plain, dynamic=True)


class _ByRuns:
    def __init__(self, forest: TokenForest) -> None:
        self.forest = forest
        self.masks: dict[tuple[int, int, int | None], Tensor] = {}

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None, window: int | None) -> Tensor:
        keys, values = (torch.split(part, list(self.forest.pieces), dim=2) for part in (key, value))
        lengths = [run.length for run in self.forest.runs]
        found = []
        for run, asked in zip(self.forest.runs, torch.split(query, lengths, dim=2), strict=True):
            path_keys, path_values = (
                _for_each_head(query, torch.cat([parts[piece] for piece in run.path], dim=2))
                for parts in (keys, values)
            )
            mask = self._mask(run.length, path_keys.shape[2], window)
            found.append(
                scaled_dot_product_attention(
                    asked, path_keys, path_values, attn_mask=mask, is_causal=mask is None, scale=scale
                )
            )
        return torch.cat(found, dim=2)

    def _mask(self, new: int, whole: int, window: int | None) -> Tensor | None:
        """Return what the last tokens of a row see of it; None where that is what causal attention is anyway."""
        if window is not None and window >= whole:
            window = None
        if new == whole and window is None:
            return None
        if (new, whole, window) not in self.masks:
            mask = torch.ones(new, whole, dtype=torch.bool, device=self.forest.ids.device).tril(whole - new)
            self.masks[new, whole, window] = mask if window is None else mask.triu(whole - new - window + 1)
        return self.masks[new, whole, window]


def _for_each_head(query: Tensor, part: Tensor) -> Tensor:
    times = query.shape[1] // part.shape[1]
    return part if times == 1 else part.repeat_interleave(times, dim=1)


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    forest_attention: Attention | None = None,
    **unused: Any,  # Transformers hands its attention whatever a layer was given.
) -> tuple[Tensor, None]:
    """Attend to a forest, in the form in which transformers calls an attention."""
    if forest_attention is None:
        raise ConfigError("the model does not hand the forest on to its attention: use the padded layout")
    if dropout or softcap is not None or s_aux is not None or position_bias is not None:
        raise ConfigError(
            "attention with dropout, capped scores, sinks or a position bias is only there in the padded layout: use it"
        )
    found = forest_attention(query, key, value, scale=scaling, window=sliding_window)
    return found.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, _attend)


@contextmanager
def attending(*models: Any) -> Iterator[None]:
    """Let Hugging Face models attend to forests, which they have to be given; leave them as they were.

    A backward pass that computes activations again has to run inside, too.

    Raises:
        ConfigError: A model's attention cannot be replaced.
    """
    with ExitStack() as stack:
        for model in models:
            own = model.config._attn_implementation
            stack.callback(model.set_attn_implementation, own)
            model.set_attn_implementation(NAME)
            if model.config._attn_implementation != NAME:
                raise ConfigError(f"{type(model).__name__} has an attention of its own: use the padded layout")
        yield
