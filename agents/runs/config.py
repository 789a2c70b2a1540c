"""TrainConfig: every setting of a training run, composed of the sections that stand beside what they configure.

Torch-free, so that the command line can show its help without it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.learning.settings import LearnConfig
from tsr_gym.agents.lessons.settings import LessonConfig
from tsr_gym.agents.models.settings import LoraSettings, ModelConfig
from tsr_gym.agents.policies.engine import find_engine
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import parse_call
from tsr_gym.sections import check_numbers, read_section


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """How long, how often, and where to."""

    out: Path | None = None
    """Folder of the run, which must not exist; None for runs/ENV-SEARCH-SEED."""
    label: str = ""
    """What reports call the method; runs with the same label and other seeds belong together."""
    updates: int = 200
    """Updates (paper: 200 for Sokoban and FrozenLake)."""
    total_tokens: int | None = None
    """End the run when as many tokens have been counted in training, or after its updates, whichever comes first. No
    group, which is all searches and plain play of an instance, is begun after that; the last update has those before.
    Groups are searched together only while four times what they take on average is left, and then one at a time, or one
    a process: so a run goes beyond the number by less than the last of them took, unless groups became four times as
    long."""
    sampled_price: float = 1.0
    """What a sampled token counts in total_tokens, update_tokens and match_tokens."""
    prompt_price: float = 0.0
    """What a token of a prompt counts there, for every sample that it was read for: 0.1 beside sampled tokens, or 1
    with sampled_price=0 for prompts alone."""
    update_tokens: int | None = None
    """Search instances for an update until the run has sampled as many tokens for each update so far; None for as many
    instances as groups says, which is then only how many are searched side by side."""
    update_trajectories: int | None = None
    """Search instances for an update until the filter keeps as many trajectories (dynamic sampling, DAPO), so that
    steps of as many are alike, or until total_tokens, which it needs, are used up; None learns from what comes."""
    seed: int = 0
    """Everything random in the run derives from it."""
    eval_every: int = 10
    """Evaluate every so many updates, and at the beginning and the end; 0 for these two only."""
    eval_instances: int = 256
    """Held-out instances (paper: 256)."""
    eval_temperature: float = 0.5
    """Of sampling in evaluation (RAGEN)."""
    checkpoint_every: int = 10
    """Write a checkpoint every so many updates, and at the end."""
    keep_checkpoints: int = 2
    """How many of the latest checkpoints stay."""
    save_trees: int = 2
    """Groups per checkpoint whose trees are saved."""
    warm_start: Path | None = None
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
    above it the run stops with a checkpoint. None for 0.001, and 0.25 in bfloat16; 0 to look at nothing."""

    def __post_init__(self) -> None:
        check_numbers(self, "eval_instances", "checkpoint_every", "keep_checkpoints", least=1)
        check_numbers(self, "warm_start_steps", "warm_start_batch", least=1)
        check_numbers(self, "total_tokens", "update_tokens", "update_trajectories", least=1)
        check_numbers(self, "updates", "eval_every", "eval_temperature", "save_trees", least=0)
        check_numbers(self, "sampled_price", "prompt_price", "warm_start_lr", "parity_tolerance", least=0)
        if not self.sampled_price + self.prompt_price:
            raise ConfigError("sampled_price=0 and prompt_price=0 count no tokens: wanted one of them above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """One training run.

    Attributes:
        env: Gymnasium id, or a short name such as sokoban.
    """

    env: str
    task: TaskConfig = field(default_factory=TaskConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    lessons: LessonConfig = field(default_factory=LessonConfig)
    learn: LearnConfig = field(default_factory=LearnConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        if self.model.engine == "openai":
            raise ConfigError("a model behind a server cannot be trained: wanted engine transformers, got openai")
        ends = {
            "match_tokens": self.search.match_tokens,
            "update_tokens": self.run.update_tokens,
            "update_trajectories": self.run.update_trajectories,
        }
        if len(given := [name for name, end in ends.items() if end is not None]) > 1:
            raise ConfigError(f"{given[0]} and {given[1]} both say when an update has enough: leave one out")
        if self.run.update_trajectories is not None and self.run.total_tokens is None:
            raise ConfigError(
                "where the filter keeps nothing, update_trajectories searches for ever: wanted total_tokens, got None"
            )
        if self.learn.lora_engine == "adapter" and not (
            find_engine(self.model.engine).takes_adapters and self.learn.lora_rank
        ):
            raise ConfigError(
                "lora_engine=adapter hands low-rank matrices alone to the engine: wanted one that takes them, such as "
                f"vllm, and lora_rank >= 1, got {self.model.engine} and {self.learn.lora_rank}"
            )
        if self.run.overlap:
            self._check_overlap({**ends, "total_tokens": self.run.total_tokens})
        if self.learn.algorithm == "grpo" and self.search.trajectories + self.search.naive < 2:
            raise ConfigError("grpo compares the trajectories of a group: wanted trajectories >= 2, got 1")

    def _check_overlap(self, ends: Mapping[str, object]) -> None:
        """Raise ConfigError where the next search cannot begin before this update is learned, or not be corrected."""
        if given := [name for name, end in ends.items() if end is not None]:
            raise ConfigError(f"overlap begins the next search before {given[0]} says how long it is: leave one out")
        if self.search.start_states:
            raise ConfigError(
                "overlap begins the next search before its start states are known: wanted start_states=0 with it"
            )
        if self.learn.old_logprobs == "learner" and self.learn.objective.mismatch == "none":
            raise ConfigError(
                "overlap learns from samples of earlier weights, and old_logprobs=learner with mismatch=none would not "
                "correct for them: wanted old_logprobs=sampler, or mismatch of truncate or mask"
            )

    @property
    def folder(self) -> Path:
        """Where the run lives."""
        env, search = (text.replace("/", "-").replace(":", "-") for text in (self.env, self.search.name))
        name = f"{env}-{search}-{self.run.seed}"
        return self.run.out or Path("runs") / name

    @property
    def lora(self) -> LoraSettings | None:
        """The low-rank matrices that train; None where the weights do."""
        learn = self.learn
        if not learn.lora_rank:
            return None
        targets = learn.lora_targets or "all-linear"
        return LoraSettings(rank=learn.lora_rank, alpha=learn.lora_alpha, targets=targets, seed=self.run.seed)

    @property
    def adapter_rank(self) -> int:
        """Of the low-rank matrices that vLLM gets at each update in place of all weights; 0 where it gets these."""
        return self.learn.lora_rank if self.learn.lora_engine == "adapter" else 0

    def to_json(self) -> str:
        """Return the configuration as JSON."""
        return json.dumps(asdict(self), indent=2, default=str)

    @classmethod
    def from_json(cls, text: str | bytes, *, source: str = "config.json") -> "TrainConfig":
        """Return the configuration that `to_json` wrote.

        Raises:
            ConfigError: The text is no JSON, or has unknown or missing settings.
        """
        try:
            data = json.loads(text)
            if "lessons" not in data:
                data = _of_version_0(data)
            if missing := sorted({item.name for item in fields(cls)} - set(data)):
                raise ValueError(f"there is no {missing[0]}")
            return read_section(cls, data, source)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"{source}: not the configuration of a run ({error})") from error


# Numbers that configurations once held beside the strategy, by the strategies that needed them.
_NUMBERS = {
    "best_of_n": ("n",),
    "beam": ("width", "branching"),
    "greedy": ("branching",),
    "lookahead": ("branching", "depth"),
}
_KEEPS = {"uncertainty": "ratio", "mixed_success": "ratio", "top_p": "p"}


def _of_version_0(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the data of a configuration in which numbers of strategy and filter stood beside their calls."""
    search, learn = dict(data["search"]), dict(data["learn"])
    numbers = {name: search.pop(name) for name in ("n", "width", "branching", "depth")}
    call = parse_call(search["search"])
    needed = {name: numbers[name] for name in _NUMBERS.get(call.name, ())}
    search["search"] = str(call._replace(keywords=needed | call.keywords))
    if search["learn_from"] == "selected":
        search["learn_from"] = "auto"
    keep, of_filter = search.pop("keep"), parse_call(search.pop("filter"))
    if of_filter.name in _KEEPS and not of_filter.keywords:
        of_filter = of_filter._replace(keywords={_KEEPS[of_filter.name]: keep})
    lessons = {"filter": str(of_filter), "filter_when": search.pop("filter_when"), "credit": learn.pop("credit")}
    return {**data, "search": search, "learn": learn, "lessons": lessons}
