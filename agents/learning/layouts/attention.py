"""Attention over a forest of tokens: each sees itself and what comes before it in its rows, in three ways.

It stands in the place of a model's own attention while `attending`, layer by layer, so that keys and values of a token
are computed once for all rows that it stands in, and their gradients add up.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, Protocol

from torch import Tensor
from transformers import AttentionInterface

from tsr_gym.agents.learning.layouts.blocks import ByBlocks, ByMask
from tsr_gym.agents.learning.layouts.forest import TokenForest
from tsr_gym.agents.learning.layouts.runs import ByRuns
from tsr_gym.errors import ConfigError

NAME = "tsr_gym_forest"

Kernel = Literal["runs", "mask", "flex"]


class Attention(Protocol):
    """Attention over the tokens of one forest."""

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float | None, window: int | None) -> Tensor:
        """Return the attention of each token to the tokens that it sees, `[1, H, U, D]`.

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
        kernel: ``"runs"``: a call for each run of tokens, or for several where that costs less. ``"mask"``: one call
            with a dense mask. ``"flex"``: one call of FlexAttention, which leaves out empty blocks; it has no backward
            pass on CPU. None for flex on a GPU and runs elsewhere.
    """
    kinds: dict[Kernel, Callable[[TokenForest], Attention]] = {"runs": ByRuns, "mask": ByMask, "flex": ByBlocks}
    return kinds[kernel or ("flex" if forest.ids.is_cuda else "runs")](forest)


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
    **unused: Any,  # Transformers hands its attention all arguments of a layer.
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
            if own == NAME:
                continue
            stack.callback(model.set_attn_implementation, own)
            model.set_attn_implementation(NAME)
            if model.config._attn_implementation != NAME:
                raise ConfigError(f"{type(model).__name__} has an attention of its own: use the padded layout")
        yield
