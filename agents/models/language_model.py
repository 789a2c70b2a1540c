"""Models from local folders, with their tokenizers and cards."""

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AutoModel, AutoModelForCausalLM
from transformers.utils import logging

from tsr_gym.agents.models.critic import Critic
from tsr_gym.agents.models.lora import (
    LoraReference,
    adapted_layers,
    add_lora,
    base_weights,
    merged_weights,
    restore_lora,
    save_adapter,
    save_lora,
)
from tsr_gym.agents.models.settings import LoraSettings, ModelCard, ModelConfig, check_model_folder
from tsr_gym.agents.models.tokenizer import load_tokenizer, spelling_of
from tsr_gym.agents.policies.engine import Host, start_host
from tsr_gym.errors import CheckpointError, ConfigError

LORA = "lora"


class LanguageModel(NamedTuple):
    """A language model with its tokenizer."""

    model: Any
    tokenizer: Any
    card: ModelCard


@contextmanager
def _without_progress_bars() -> Iterator[None]:
    """Keep transformers from drawing a bar for every file that it reads or writes."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


@_without_progress_bars()
def load_policy(
    folder: Path, *, device: torch.device, lora: LoraSettings | None = None, dtype: torch.dtype = torch.float32
) -> LanguageModel:
    """Return the model in a folder.

    Args:
        folder: A Hugging Face model; one that was saved with LoRA is read as the merged model that it also is.
        device: Where to put it.
        lora: Low-rank matrices to train in place of the model's own weights, new ones; None trains everything.
        dtype: Of the weights. Steps of 1e-6 vanish in bfloat16 ones; with LoRA, whose matrices are always float32,
            bfloat16 halves the memory of the rest. Merged weights are rounded to it.

    Raises:
        CheckpointError: The folder is missing, incomplete or damaged.
        MissingExtra: LoRA is wanted and PEFT is not installed.
        ConfigError: LoRA cannot stand where it is wanted.
    """
    check_model_folder(folder)
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, local_files_only=True, trust_remote_code=False, output_loading_info=True
        )
        tokenizer = load_tokenizer(folder)
    except CheckpointError:
        raise
    except Exception as error:  # Each file format raises different errors.
        raise CheckpointError(f"{folder}: the model or its tokenizer cannot be read ({error})") from error
    model, loading = loaded
    _check_loaded(folder, model, tokenizer, loading["missing_keys"])
    if lora is not None:
        add_lora(model, lora, base=str(folder.absolute()))
    return LanguageModel(model.to(device), tokenizer, ModelCard.load(folder))


def _check_loaded(folder: Path, model: Any, tokenizer: Any, missing: Iterable[str]) -> None:
    # Transformers fills missing parameters with random numbers and only logs it.
    if absent := sorted(missing):
        raise CheckpointError(f"{folder}: {len(absent)} parameters are missing, such as {absent[0]}")
    broken = [name for name, parameter in model.named_parameters() if not torch.isfinite(parameter).all()]
    if broken:
        raise CheckpointError(
            f"{folder}: {len(broken)} parameters are not finite, such as {broken[0]}: the weights are damaged"
        )
    if len(tokenizer) > model.config.vocab_size:
        raise CheckpointError(
            f"{folder}: the tokenizer has {len(tokenizer)} tokens and the model {model.config.vocab_size}: they do not "
            "belong together"
        )


@_without_progress_bars()
def save_policy(policy: LanguageModel, folder: Path, *, weights: Mapping[str, Tensor] | None = None) -> None:
    """Write model, tokenizer and card into a folder, in Hugging Face form.

    Of a model with LoRA the merged weights are written, which anything can load, and in the subfolder ``lora`` the
    adapter in PEFT's form with its base weights, which `restore_adapter` needs to continue bit for bit.

    Args:
        policy: Model, tokenizer and card.
        folder: The folder.
        weights: The model's `state_dict` in whole tensors, where its own are spread over processes.
    """
    model = policy.model
    adapted = bool(adapted_layers(model))
    if weights is not None:
        # Of tensors that are one in the model, such as a tied output layer, one is written.
        own = {name for name, _ in (*model.named_parameters(), *model.named_buffers())}
        weights = {name: value for name, value in weights.items() if name in own}
    state = dict(merged_weights(model, weights)) if adapted or weights is not None else None
    model.save_pretrained(folder, state_dict=state)
    if adapted:
        save_lora(model, folder / LORA, weights)
    policy.tokenizer.save_pretrained(folder)
    replace(policy.card, spelling=spelling_of(policy.tokenizer)).save(folder)


def restore_adapter(model: Any, folder: Path) -> None:
    """Put a model that was loaded with LoRA into the state in which `save_policy` wrote it, bit for bit.

    Of a model without LoRA nothing is missing, and nothing is done.

    Raises:
        CheckpointError: The folder has no adapter, or one of another rank or at other layers.
    """
    if adapted_layers(model):
        restore_lora(model, folder / LORA)


def frozen_reference(policy: LanguageModel) -> Any:
    """Return a model that stays as it is while a policy learns, for `Learner(reference=...)`.

    Without LoRA it is a copy of the policy as it is now, without gradients. With LoRA it is the policy read without its
    low-rank matrices, which takes no memory: the model that training began with, also after some of it.
    """
    if adapted_layers(policy.model):
        return LoraReference(policy.model)
    return copy.deepcopy(policy.model).requires_grad_(False).eval()


@_without_progress_bars()
def load_critic(folder: Path, *, device: torch.device) -> Critic:
    """Return a separate critic whose backbone begins as the policy in a folder; see `Critic.on` for a head alone."""
    backbone = AutoModel.from_pretrained(folder, dtype=torch.float32, local_files_only=True, trust_remote_code=False)
    return Critic(backbone).to(device)


def stop_ids(policy: LanguageModel, stop: str = "") -> list[int]:
    """Return the ids that end an answer: the tokenizer's and the model's end tokens, and the token of a text.

    Raises:
        CheckpointError: The model has no end token, or the text is not one token.
    """
    tokenizer, generation = policy.tokenizer, policy.model.generation_config
    ends = generation.eos_token_id if isinstance(generation.eos_token_id, list) else [generation.eos_token_id]
    # Model and tokenizer often disagree: chat models end a turn with a token that the tokenizer does not call its end.
    ids = {number for number in (*ends, tokenizer.eos_token_id) if number is not None}
    if stop:
        written = tokenizer(stop, add_special_tokens=False)["input_ids"]
        if len(written) != 1:
            raise CheckpointError(
                f"wanted {stop!r} to be one token, the tokenizer makes it {len(written)}: use another prompt"
            )
        ids.add(written[0])
    if not ids:
        raise CheckpointError("the model names no end token: set eos_token_id in its generation_config.json")
    return sorted(ids)


def pick_device(name: str) -> torch.device:
    """Return the device that a name stands for; ``auto`` is a GPU where there is one.

    Raises:
        ConfigError: There is no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"wanted a device such as auto, cpu, cuda or cuda:1, got {name!r}") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"wanted device {name}, this machine has {torch.cuda.device_count()} such: use auto or cpu")
    return device


def pick_autocast(name: str, device: torch.device) -> torch.dtype | None:
    """Return the lower precision to compute in, None for full; ``auto`` is bfloat16 on a GPU."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else None
    return torch.bfloat16 if name == "bfloat16" else None


def sampling_host(config: ModelConfig, folder: Path, *, lora_rank: int = 0) -> Host | None:
    """Return a new host of the model in a folder, None to sample from the model itself.

    Args:
        config: How the model is used.
        folder: A Hugging Face model with weights in safetensors.
        lora_rank: Of the adapters that vLLM in this process will be given; 0 for none.

    Raises:
        CheckpointError: The folder holds no such model.
        ConfigError: vLLM cannot compute the model here.
        EngineFailed: vLLM does not start, or its server does not answer.
        MissingExtra: vLLM is not installed.
    """
    lower = pick_autocast(config.dtype, pick_device(config.device))
    return start_host(
        config.engine,
        folder,
        url=config.engine_url,
        dtype="float32" if lower is None else str(lower).removeprefix("torch."),
        cache_gib=config.engine_gib,
        max_batch=config.max_batch,
        lora_rank=lora_rank,
    )


def policy_host(config: ModelConfig, model: Any, folder: Path, *, adapter_rank: int = 0) -> Host | None:
    """Return a new host of a policy, which gets its weights at each update; see `sampling_host`.

    Args:
        config: How the model is used.
        model: The policy.
        folder: Where it was read from.
        adapter_rank: Of the low-rank matrices, where these alone are handed over; 0 where all weights are.
    """
    return adapter_host(config, model, adapter_rank) if adapter_rank else sampling_host(config, folder)


def adapter_host(config: ModelConfig, model: Any, lora_rank: int) -> Host | None:
    """Return a new host of a model with LoRA as it is without its low-rank matrices; see `sampling_host`."""
    with TemporaryDirectory() as name:
        # In the folder of a resumed run the matrices are merged into the weights, so the folder cannot be used itself.
        model.save_pretrained(name, state_dict=dict(base_weights(model)))
        return sampling_host(config, Path(name), lora_rank=lora_rank)


def hand_over_adapter(host: Host, model: Any, *, version: int) -> None:
    """Give a host the low-rank matrices of a model, and nothing else.

    Raises:
        EngineFailed: The host does not take them.
        Unsupported: It has no room for any.
    """
    with TemporaryDirectory() as name:
        save_adapter(model, Path(name))
        host.load_adapter(Path(name), version=version)
