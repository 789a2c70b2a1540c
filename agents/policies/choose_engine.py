"""The engine that samples from a model in this process: the trie engine where it can compute the model and is faster.

Torch-free.
"""

from collections.abc import Mapping
from typing import Any, Literal

# Up to this hidden width the trie engine is as fast as transformers or faster (docs/engines.md, small models).
WIDEST = 512
_ARCHITECTURES = {"qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM"}
# Those whose angles depend on nothing but the position.
_ROTARY = ("default", "linear", "llama3", "yarn")


def why_no_trie(shape: Mapping[str, Any], *, device: str, dtype: str, model: str | None = None) -> str:
    """Return why the trie engine cannot compute a model; empty where it can.

    Args:
        shape: The model's configuration.
        device: Its type of device.
        dtype: Precision that it computes in.
        model: Name of the model's class; None for that of its architecture.
    """
    architecture = str(shape.get("model_type"))
    rotary = shape.get("rope_parameters") or {}
    layers = set(shape.get("layer_types") or ("full_attention",))
    needs: dict[str, tuple[bool, object]] = {
        f"an architecture of {', '.join(_ARCHITECTURES)}": (architecture in _ARCHITECTURES, architecture),
        "the plain class of it": (model is None or model == _ARCHITECTURES.get(architecture), model),
        "a CPU": (device == "cpu", device),
        "float32": (dtype == "float32", dtype),
        "SiLU": (shape.get("hidden_act") == "silu", shape.get("hidden_act")),
        "no biases outside of queries, keys and values": (
            not (shape.get("mlp_bias") or shape.get("attention_bias")),
            "biases of other layers",
        ),
        "full attention": (layers == {"full_attention"}, sorted(layers)),
        f"rotary positions of {', '.join(_ROTARY)}": (rotary.get("rope_type") in _ROTARY, rotary.get("rope_type")),
        "rotary positions in whole heads": (
            rotary.get("partial_rotary_factor") in (None, 1.0),
            rotary.get("partial_rotary_factor"),
        ),
    }
    return "; ".join(f"wanted {what}, got {got}" for what, (holds, got) in needs.items() if not holds)


def pick_engine(shape: Mapping[str, Any], reason: str) -> Literal["trie", "transformers"]:
    """Return the engine that ``auto`` stands for: trie where it is faster.

    Args:
        shape: The model's configuration.
        reason: Why the trie engine cannot compute the model; see `why_no_trie`.
    """
    return "transformers" if reason or shape["hidden_size"] > WIDEST else "trie"
