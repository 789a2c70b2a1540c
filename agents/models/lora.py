"""LoRA: a model with frozen weights and small added matrices that train; PEFT inserts them.

The model remains of its class, so code that reads it needs to know nothing of this. A folder of such a model is a plain
one: its weights are merged, and a subfolder holds what training needs to continue.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tsr_gym.agents.models.settings import LoraSettings
from tsr_gym.errors import CheckpointError, ConfigError
from tsr_gym.optional import require

ADAPTER = "default"
# Where torch.compile keeps the model that it wraps.
COMPILED = "_orig_mod."
ADAPTER_FILE, BASE_FILE, SETTINGS_FILE = "adapter_model.safetensors", "base.safetensors", "adapter_config.json"


def add_lora(model: Any, settings: LoraSettings, *, base: str = "") -> None:
    """Freeze a model and add low-rank matrices in float32 to some of its layers; only these train.

    At first the model computes the same as before. The state of torch's generator does not change.

    Args:
        model: A Hugging Face causal language model on the CPU.
        settings: Sizes and places.
        base: What files of the adapter name as the model that it belongs to.

    Raises:
        MissingExtra: PEFT is not installed.
        ConfigError: A name is that of no layer, or that of the embedding or the output layer.
    """
    require("peft", "lora")
    from peft import LoraConfig, inject_adapter_in_model

    _check_targets(model, settings)
    # PEFT types alpha as an int, but only divides it by the rank, so fractions work.
    alpha: Any = settings.alpha
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=alpha,
        target_modules=settings.targets if isinstance(settings.targets, str) else list(settings.targets),
        base_model_name_or_path=base,
        task_type="CAUSAL_LM",
    )
    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(settings.seed)
            inject_adapter_in_model(config, model, adapter_name=ADAPTER)
    except ValueError as error:
        raise ConfigError(f"{type(model).__name__} cannot have LoRA at {settings.targets}: {error}") from error
    # PEFT keeps a set, which every process would write in another order.
    config.target_modules = sorted(config.target_modules or ())
    for layer in adapted_layers(model).values():
        layer.lora_A.float()
        layer.lora_B.float()


def adapted_layers(model: nn.Module) -> dict[str, Any]:
    """Return the layers of a model that have low-rank matrices, by name; none for a model without LoRA."""
    parts = {name: dict(module.named_children()) for name, module in model.named_modules()}
    return {name: model.get_submodule(name) for name, part in parts.items() if {"base_layer", "lora_A"} <= part.keys()}


def merged_weights(model: nn.Module, weights: Mapping[str, Tensor] | None = None) -> Iterator[tuple[str, Tensor]]:
    """Yield a model's parameters under the names they have without LoRA, what was learned added to them.

    The model stays as it is, and one merged weight is made at a time. A model without LoRA gives its `state_dict`, and
    one that `torch.compile` wraps gives that of the model inside.

    Args:
        model: With LoRA or without.
        weights: Its `state_dict` in whole tensors, where its own are spread over processes.
    """
    layers = adapted_layers(model)
    weights = model.state_dict() if weights is None else weights
    for name, value in weights.items():
        layer, _, own = name.partition(".base_layer.")
        if layer in layers:
            merged = _merged(layers[layer], layer, weights) if own == "weight" else value
            yield f"{layer}.{own}".removeprefix(COMPILED), merged
        elif name.partition(".lora_")[0] not in layers:
            yield name.removeprefix(COMPILED), value


def base_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield a model's parameters under the names they have without LoRA, without what was learned."""
    layers = adapted_layers(model)
    for name, value in model.state_dict().items():
        if name.partition(".lora_")[0] not in layers:
            yield name.replace(".base_layer.", ".").removeprefix(COMPILED), value


def save_adapter(model: Any, folder: Path, weights: Mapping[str, Tensor] | None = None) -> None:
    """Write the low-rank matrices of a model into a folder, in PEFT's form.

    Args:
        model: With LoRA.
        folder: Where to.
        weights: See `merged_weights`.
    """
    folder.mkdir(exist_ok=True)
    save_file(_tensors(model, weights)[0], folder / ADAPTER_FILE, metadata={"format": "pt"})
    model.peft_config[ADAPTER].save_pretrained(folder)


def save_lora(model: Any, folder: Path, weights: Mapping[str, Tensor] | None = None) -> None:
    """Write the adapter and its base weights, which merging loses; see `save_adapter`."""
    save_adapter(model, folder, weights)
    save_file(_tensors(model, weights)[1], folder / BASE_FILE, metadata={"format": "pt"})


def restore_lora(model: Any, folder: Path) -> None:
    """Put a model with LoRA, loaded from the merged weights, into the state that `save_lora` wrote, bit for bit.

    Its base is again the model that it was first added to: on top of the merged weights the adapter would count twice.

    Raises:
        CheckpointError: There is no adapter, or it is of other sizes and places.
    """
    adapter, base = _tensors(model)
    try:
        saved = {name: load_file(folder / name) for name in (ADAPTER_FILE, BASE_FILE)}
        named = json.loads((folder / SETTINGS_FILE).read_text())["base_model_name_or_path"]
    except (OSError, SafetensorError, ValueError, LookupError, TypeError) as error:
        raise CheckpointError(f"{folder}: wanted the adapter of a model with LoRA ({error})") from error
    for name, own in ((ADAPTER_FILE, adapter), (BASE_FILE, base)):
        shapes = {key: value.shape for key, value in saved[name].items()}
        if shapes != {key: value.shape for key, value in own.items()}:
            raise CheckpointError(f"{folder / name}: of LoRA with another rank or other targets: use those of its run")
        for key, value in own.items():
            value.copy_(saved[name][key])
    model.peft_config[ADAPTER].base_model_name_or_path = named


@contextmanager
def without_lora(model: nn.Module) -> Iterator[None]:
    """Read a model without its low-rank matrices while inside."""
    layers = adapted_layers(model).values()
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


class LoraReference(nn.Module):
    """The model that a policy with LoRA began as, read off the policy itself: it takes no memory.

    Args:
        model: The policy, which continues to learn.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.config = model.config

    def forward(self, **inputs: Any) -> Any:
        """Return the model's output without its low-rank matrices."""
        with without_lora(self.model):
            return self.model(**inputs)

    def get_output_embeddings(self) -> Any:
        """Return the output layer."""
        return self.model.get_output_embeddings()

    def set_attn_implementation(self, name: str) -> None:
        """Set the attention, of the policy too."""
        self.model.set_attn_implementation(name)


def _check_targets(model: Any, settings: LoraSettings) -> None:
    """Raise ConfigError for targets that PEFT would pass over, or adapt in a way that cannot be merged."""
    if isinstance(settings.targets, str):
        return
    for target in settings.targets:
        named = [module for name, module in model.named_modules() if f".{name}".endswith(f".{target}")]
        if not named:
            raise ConfigError(f"LoRA targets: {type(model).__name__} has no layer whose name ends in {target!r}")
        # They are often one tensor, of which only one would be merged.
        if any(module in (model.get_input_embeddings(), model.get_output_embeddings()) for module in named):
            raise ConfigError(f"LoRA targets: wanted layers between embedding and output layer, {target!r} is neither")


def _merged(layer: Any, name: str, weights: Mapping[str, Tensor]) -> Tensor:
    down, up = (weights[f"{name}.lora_{part}.{ADAPTER}.weight"] for part in "AB")
    change = layer.scaling[ADAPTER] * (up @ down)
    weight = weights[f"{name}.base_layer.weight"]
    # Layers of GPT-2 hold the transpose of a linear layer's weight.
    merged: Tensor = weight + (change.T if layer.fan_in_fan_out else change)
    return merged.to(weight.dtype)


def _tensors(model: Any, weights: Mapping[str, Tensor] | None = None) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the tensors of an adapter by PEFT's names, and its base weights."""
    weights = model.state_dict() if weights is None else weights
    layers = adapted_layers(model)
    # In PEFT's files a model stands inside two others.
    adapter = {
        f"base_model.model.{layer}.lora_{part}.weight": weights[f"{layer}.lora_{part}.{ADAPTER}.weight"]
        for layer in layers
        for part in "AB"
    }
    return adapter, {f"{layer}.weight": weights[f"{layer}.base_layer.weight"] for layer in layers}
