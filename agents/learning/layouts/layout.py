"""Layout: rows of a batch as a model reads them, padded or as a forest of tokens, with the same results."""

from typing import Any, Protocol

import torch
from torch import Tensor

from tsr_gym.agents.episodes.trajectory import Group, Trajectory, Turn
from tsr_gym.agents.learning.batch import Batch, collate
from tsr_gym.agents.learning.layouts.attention import Kernel, attending, attention_of
from tsr_gym.agents.learning.layouts.forest import LayoutName, TokenForest, grow_forest
from tsr_gym.agents.models.critic import Critic
from tsr_gym.agents.models.logprobs import Head, read_logprobs, token_logprobs
from tsr_gym.errors import ConfigError

# Layer types whose attention sees all tokens before, or a fixed number of them.
LAYER_TYPES = {"full_attention", "sliding_attention"}


class Layout(Protocol):
    """Rows of a batch, laid out for models; the results have the shape of the batch."""

    def logprobs(self, model: Any, *, temperature: float = 1.0, head: Head | None = None) -> tuple[Tensor, Tensor]:
        """Return the log-probability of each sampled token and the entropy of its distribution.

        Args:
            model: A Hugging Face causal language model.
            temperature: Temperature of the sampling distribution.
            head: Output layer from `read_head`, to compute the logits in parts; None computes all at once.

        Returns:
            Both `[B, T]`, 0 where nothing was sampled.
        """
        ...

    def values(self, critic: Critic) -> Tensor:
        """Return a critic's value of the state in which each token was sampled, `[B, T]`, 0 where none was."""
        ...


def lay_out(batch: Batch, layout: LayoutName, *, kernel: Kernel | None = None) -> Layout:
    """Return rows in a layout.

    Args:
        batch: Rows that go through the model together.
        layout: ``"padded"``: as they are. ``"packed"``: one after the other. ``"shared"``: as a trie.
        kernel: Attention over the forest, see `attention_of`.

    Raises:
        ValueError: There is no such layout.
    """
    if layout == "padded":
        return Padded(batch)
    if layout not in ("packed", "shared"):
        raise ValueError(f"wanted layout padded, packed or shared, got {layout!r}")
    return Forested(batch, grow_forest(batch, share=layout == "shared"), kernel)


class Padded:
    """Rows with their padding."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def logprobs(self, model: Any, *, temperature: float = 1.0, head: Head | None = None) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and entropies, see `Layout`."""
        batch = self.batch
        return token_logprobs(model, batch.ids, batch.present, batch.sampled, temperature=temperature, head=head)

    def values(self, critic: Critic) -> Tensor:
        """Return values, see `Layout`."""
        values: Tensor = critic(self.batch.ids, self.batch.present)
        return values * self.batch.sampled


class Forested:
    """Rows as a forest: tokens that several rows share are computed once, and copied to every row.

    Advantages and clips differ between rows that share a token. They are applied after the copies are made, and the
    gradients of the copies add up in the backward pass.

    Args:
        batch: The rows.
        forest: Their tokens.
        kernel: Attention over the forest, see `attention_of`.
    """

    def __init__(self, batch: Batch, forest: TokenForest, kernel: Kernel | None = None) -> None:
        self.shape = batch.sampled.shape
        self.forest = forest
        # Indices instead of masks: indexing by a mask would make a GPU wait for the count in every pass.
        self._sampled = batch.sampled.flatten().nonzero()[:, 0]
        different, self._where = torch.unique(forest.place.flatten()[self._sampled], return_inverse=True)
        self._tokens, self._before = forest.ids[different], forest.before[different]
        if (self._before < 0).any():
            raise ValueError("wanted a prompt before every sampled token, got a row that begins with a sampled token")
        self._inputs = {
            "input_ids": forest.ids[None],
            "position_ids": forest.depth[None],
            "use_cache": False,
            "forest_attention": attention_of(forest, kernel),
        }

    def logprobs(self, model: Any, *, temperature: float = 1.0, head: Head | None = None) -> tuple[Tensor, Tensor]:
        """Return log-probabilities and entropies, see `Layout`."""
        inputs = self._inputs | {"logits_to_keep": self._before}
        with attending(model):
            logprobs, entropy = read_logprobs(
                model, inputs, lambda read: read[0], self._tokens, temperature=temperature, head=head
            )
        return self._in_rows(logprobs), self._in_rows(entropy)

    def values(self, critic: Critic) -> Tensor:
        """Return values, see `Layout`."""
        with attending(critic.backbone):
            hidden = critic.backbone(**self._inputs).last_hidden_state[0, self._before]
        return self._in_rows(critic.head(hidden)[:, 0].float())

    def _in_rows(self, values: Tensor) -> Tensor:
        """Return the values of the forest's sampled tokens at their places in the rows, `[B, T]`."""
        rows = values.new_zeros(self.shape.numel()).index_copy(0, self._sampled, values[self._where])
        return rows.reshape(self.shape)


def why_only_padded(model: Any) -> str | None:
    """Return the reason why a model can only read padded rows; None if it reads forests as well.

    A model that mixes tokens by anything but the attention of transformers, such as a recurrence, would read a forest
    as one long row without an error. Therefore the results of a small forest and of its padded rows are compared.

    Args:
        model: A Hugging Face causal language model; for a sharded one, all processes must call this.
    """
    unknown = set(model.config.to_dict().get("layer_types") or ()) - LAYER_TYPES
    if unknown:
        return f"it has layers of the type {', '.join(sorted(unknown))}"
    batch = _small_batch().to(next(model.parameters()).device)
    try:
        with torch.no_grad():
            padded, shared = (lay_out(batch, name).logprobs(model)[0][batch.sampled] for name in ("padded", "shared"))
    except (ConfigError, TypeError, ValueError, KeyError, AttributeError) as error:
        return f"it does not take a forest ({error})"
    # A model that reads the forest as one row errs by about as much as its log-probabilities vary over tokens, so that
    # this spread is the unit. `not <=` also refuses NaN.
    spread = float((padded - padded.mean()).norm())
    rounding = torch.finfo(next(model.parameters()).dtype).eps ** 0.5
    if not float((shared - padded).norm()) <= rounding * spread:
        return "its results for a forest differ from those for the rows"
    return None


def _small_batch() -> Batch:
    """Return three rows that share a beginning, of different lengths, in which nearly all tokens are sampled."""
    rows = [(1, 2, 3, 4, 5, 6, 7, 8), (1, 2, 3, 9, 8, 7), (1, 2, 3, 4, 6, 8, 2, 4, 1, 5)]
    turns = [Turn(row[:1], row[1:], (0.0,) * len(row[1:]), 0.0, True, 1) for row in rows]
    return collate([Group(0, tuple(Trajectory((turn,), False, 0.0, "naive") for turn in turns))])
