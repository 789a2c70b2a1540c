"""ServedModel: what is known of a model's folder before an engine of its own process or library reads it."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tsr_gym.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from torch import Tensor

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
# Widths of a head that vLLM's attention on a CPU knows; with another one it dies at the first request.
CPU_HEADS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)


class ServedModel(NamedTuple):
    """A Hugging Face model in a folder.

    Attributes:
        folder: Where it is.
        context: Longest sequence.
        vocabulary: Number of tokens.
        head_width: Of an attention head.
        tied: Whether the output layer is the embedding.
        shapes: Of its parameters by name; a tied output layer is named as well.
    """

    folder: Path
    context: int
    vocabulary: int
    head_width: int
    tied: bool
    shapes: dict[str, tuple[int, ...]]

    def check_heads(self) -> None:
        """Refuse a model whose heads vLLM's attention on a CPU does not know.

        Raises:
            ConfigError: They are of another width.
        """
        if self.head_width not in CPU_HEADS:
            raise ConfigError(
                f"{self.folder}: the attention heads are {self.head_width} wide, and vLLM on a CPU takes one of "
                f"{CPU_HEADS}: use --engine transformers, or a base model with --hidden 128"
            )

    def whole_weights(self, weights: Iterable[tuple[str, Any]]) -> "dict[str, Tensor]":
        """Return all parameters that an update has to bring, the tied output layer by its name too.

        An engine that keeps the embedding twice would go on sampling by the old output layer if it were left out.

        Raises:
            ConfigError: One is missing, unknown or of another shape.
        """
        found: dict[str, Tensor] = {name: value.detach() for name, value in weights}
        if self.tied and HEAD not in found and EMBEDDING in found:
            found[HEAD] = found[EMBEDDING]
        if unknown := sorted(found.keys() - self.shapes.keys()):
            raise ConfigError(f"the model has no parameter {unknown[0]!r}; it has {len(self.shapes)}")
        for name, value in found.items():
            if tuple(value.shape) != self.shapes[name]:
                raise ConfigError(f"wanted {name} of shape {[*self.shapes[name]]}, got {[*value.shape]}")
        if missing := sorted(self.shapes.keys() - found.keys()):
            raise ConfigError(
                f"an update of vLLM's weights brings all {len(self.shapes)} parameters, and {missing[0]!r} is missing"
            )
        return found


def served_model(folder: Path) -> ServedModel:
    """Return what is known of a model's folder.

    Raises:
        CheckpointError: It holds no model in safetensors.
    """
    from safetensors import SafetensorError, safe_open

    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        shapes: dict[str, tuple[int, ...]] = {}
        for file in sorted(folder.glob("model*.safetensors")):
            with safe_open(file, "pt") as opened:
                shapes |= {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
        tied, width = bool(config.get("tie_word_embeddings")), config["hidden_size"] // config["num_attention_heads"]
        if tied:
            shapes[HEAD] = shapes[EMBEDDING]
        sizes = config["max_position_embeddings"], config["vocab_size"], config.get("head_dim") or width
    except (OSError, ValueError, LookupError, TypeError, SafetensorError) as error:
        raise CheckpointError(f"{folder}: wanted a Hugging Face model in safetensors ({error!r})") from error
    if not shapes:
        raise CheckpointError(f"{folder}: wanted a Hugging Face model in safetensors, found no weights")
    return ServedModel(folder, *sizes, tied, shapes)
