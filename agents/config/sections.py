"""The sections of a configuration: RunConfig, and the table of all of them; torch-free."""

from collections.abc import Iterator
from dataclasses import Field, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.learning.settings import LearnConfig
from tsr_gym.agents.lessons.settings import LessonConfig, StoreConfig
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.errors import ConfigError
from tsr_gym.sections import check_numbers, setting, setting_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Length, frequencies and folder of a run."""

    out: Path | None = setting(None, metavar="FOLDER")
    """Folder of the run, which must not exist; None for runs/ENV-SEARCH-SEED."""
    label: str = setting("", metavar="NAME")
    """Name of the method in reports; runs with the same label and different seeds belong together."""
    updates: int = 200
    """Updates (paper: 200 for Sokoban and FrozenLake)."""
    total_tokens: int | None = None
    """End the run when training has counted this many tokens, or after its updates, whichever comes first. No group
    (all searches and plain play of an instance) begins after that; the last update has the groups before. Groups are
    searched together only while four times their average cost is left, then one at a time, or one per process. So a
    run exceeds the number by less than the cost of its last group, unless groups become four times as long."""
    sampled_price: float = 1.0
    """Weight of a sampled token in total_tokens, update_tokens and match_tokens."""
    prompt_price: float = 0.0
    """Weight of a prompt token there, counted for every sample that reads it: for example 0.1 in addition to sampled
    tokens, or 1 with sampled_price=0 for prompts alone."""
    update_tokens: int | None = None
    """Search instances for an update until the run has sampled this many tokens per update on average; groups is then
    only the number of instances that are searched together. None searches exactly as many instances as groups."""
    update_trajectories: int | None = None
    """Search instances for an update until the filter keeps this many trajectories (dynamic sampling, DAPO), so that
    all updates have equal size, or until total_tokens, which it requires, are used up. None searches a fixed number
    of instances and learns from all that are kept."""
    seed: int = 0
    """Seed of everything random in the run."""
    eval_every: int = 10
    """Evaluate every so many updates, and at the beginning and the end; 0 for these two only."""
    eval_instances: int = 256
    """Held-out instances (paper: 256). Those with equal first states are played once, and share the episode."""
    eval_temperature: float = 0.5
    """Of sampling in evaluation (RAGEN)."""
    checkpoint_every: int = 10
    """Write a checkpoint every so many updates, and at the end."""
    keep_checkpoints: int = 2
    """How many of the latest checkpoints stay, and an earlier one until an update from the latest has succeeded."""
    save_trees: int = 2
    """Groups per checkpoint whose trees are saved."""
    warm_start: Path | None = setting(None, metavar="FILE")
    """Episodes to imitate before the first update, as JSON lines or Parquet: messages of role and content, or input_ids
    and mask, as tsr export writes them of kind chats and trajectories. All weights are trained, also with LoRA."""
    warm_start_steps: int = 200
    """Optimizer steps of the warm start."""
    warm_start_lr: float = 1e-5
    """Learning rate of the warm start, which falls to a tenth; the embedded models want 1e-3."""
    warm_start_batch: int = 16
    """Episodes per step of the warm start."""
    overlap: bool = False
    """Search for the next update by the weights from before this one: workers of Ray then search while it is learned,
    and all but the first update after a checkpoint are one step off-policy. Importance ratios correct for it, with
    old_logprobs=sampler as they are, with old_logprobs=learner by mismatch."""
    parity_tolerance: float | None = None
    """Most nats by which the engine's log-probabilities may differ from the learner's after an update of its weights;
    above it the run stops with a checkpoint. None for 0.001, and 0.25 in bfloat16; 0 turns the check off."""

    def __post_init__(self) -> None:
        check_numbers(self, "eval_instances", "checkpoint_every", "keep_checkpoints", least=1)
        check_numbers(self, "warm_start_steps", "warm_start_batch", least=1)
        check_numbers(self, "total_tokens", "update_tokens", "update_trajectories", least=1)
        check_numbers(self, "updates", "eval_every", "eval_temperature", "save_trees", least=0)
        check_numbers(self, "sampled_price", "prompt_price", "warm_start_lr", "parity_tolerance", least=0)
        if not self.sampled_price + self.prompt_price:
            raise ConfigError("sampled_price=0 and prompt_price=0 count no tokens: wanted one of them above 0")


# The sections of `TrainConfig`, by the names that their tables have in a file.
SECTIONS: dict[str, type[Any]] = {
    "task": TaskConfig,
    "search": SearchConfig,
    "model": ModelConfig,
    "lessons": LessonConfig,
    "store": StoreConfig,
    "learn": LearnConfig,
    "run": RunConfig,
}


def all_settings() -> Iterator[tuple[tuple[str, ...], "Field[Any]", Any]]:
    """Yield every setting of a run but the environment: the tables that it stands in, its field and its type."""
    for name, section in SECTIONS.items():
        for path, item, hint in setting_fields(section):
            yield (name, *path), item, hint


@cache
def tables() -> dict[str, tuple[str, ...]]:
    """Return the tables that each setting stands in, outermost first, by its name."""
    return {item.name: path for path, item, _ in all_settings()}
