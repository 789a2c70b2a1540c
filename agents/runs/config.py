"""TrainConfig: every setting of a training run, with the paper's numbers as defaults.

Numbers in parentheses name their source: TSR (arXiv 2602.11767), its released code, or the project's own choice.
Torch-free, so that the command line can show its help without it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tsr_gym.agents.learning.objective import Objective
from tsr_gym.agents.models.lora_settings import LoraSettings
from tsr_gym.agents.policies.prompts import History
from tsr_gym.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskConfig:
    """What is played."""

    preset: str = "paper"
    """Settings of the environment: paper (what the paper states) or tsr-code (what its released code does)."""
    env_set: tuple[str, ...] = ()
    """More settings of the environment as KEY=VALUE, the value in JSON, such as solution_length=[3,10]."""
    score: str = "reward"
    """Guide of the search: reward, or a scorer such as FrozenLakeScore or "SokobanScore(potential='estimate')"."""
    penalty: float = 0.1
    """Price of an answer without the wanted form (paper)."""
    train_split: str | None = "train"
    """Instances to train on; None where the environment has no splits."""
    eval_split: str | None = "test"
    """Held-out instances, which share none with training up to symmetry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """How trajectories come to be."""

    search: str = "naive"
    """naive, best_of_n, beam, lookahead or another strategy, with numbers of its own as in puct(simulations=64), or
    package.module:name of one of yours."""
    groups: int = 8
    """Task instances per update, the paper's P (paper: 8)."""
    trajectories: int = 16
    """Trajectories per instance that are learned from, the paper's L, whatever the search (paper: 16)."""
    n: int = 32
    """Best-of-N: episodes per instance, of which the best `trajectories` are kept (paper: 32)."""
    width: int = 2
    """Beam: paths that are kept, the paper's B (paper: 2)."""
    branching: int = 4
    """Beam, lookahead: candidates per turn, the paper's M (paper: 4)."""
    depth: int = 2
    """Lookahead: further turns per candidate, the paper's D (paper: 2)."""
    paths_per_search: int = 1
    """Beam, lookahead: best paths taken from one search (paper: 1, with as many searches as trajectories)."""
    noise: Literal["fresh", "common", "same"] = "fresh"
    """Dice of imagined turns; same is clairvoyant and is marked in the results."""
    repeats: int = 1
    """Draws on which an imagined turn is scored that leaves something to chance."""
    risk: float | None = None
    """Quantile of the draws' scores that counts; None for their mean."""
    dead_ends: Literal["off", "proven", "limits"] = "off"
    """What a search leaves out: nothing, what is proven lost, or also what the limits leave no room for."""
    rater: str | None = None
    """Scores of whole rounds in place of the scorer's, such as SelfConsistency or "CriticValue(critic='FOLDER')"."""
    naive: int = 0
    """Trajectories of plain play per instance beside the searched ones, for mixed groups."""
    learn_from: Literal["selected", "leaves"] = "selected"
    """Learn from the selected trajectories, or from all branches of the searches, as tree_backup and treerl want."""
    filter: str = "uncertainty"
    """Which groups are learned from: uncertainty (those whose returns vary most; paper), mixed_success (with successes
    and failures), top_p (that hold a share of all variation; RAGEN-2), varied, none (all), learnable (TSPO's gate with
    the rules of `credit`), or a filter of tsr_gym.agents.lessons.filters with its numbers, as in
    keep_concise(keep=4)."""
    keep: float = 0.25
    """Share of the groups that the filter keeps (paper: top 25 %); with top_p, of the variation."""
    filter_when: Literal["after", "before"] = "after"
    """Filter by the selected trajectories (released code), or before selection by all episodes of the searches."""
    match_tokens: Path | None = None
    """Another run's folder: sample groups in each update until as many tokens have been sampled in all as there."""

    @property
    def search_name(self) -> str:
        """The strategy without its numbers."""
        return self.search.partition("(")[0]

    @property
    def per_instance(self) -> str:
        """How the trajectories of an instance come to be, in a few words."""
        beside = f" + {self.naive} rollouts" if self.naive else ""
        if self.search_name == "naive":
            return f"{self.trajectories + self.naive} rollouts"
        if self.search_name == "best_of_n":
            return f"best {self.trajectories} of {self.n}{beside}"
        return f"{self.trajectories // self.paths_per_search} searches x {self.paths_per_search}{beside}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Which language model, and how it speaks."""

    model: str = "default"
    """Folder of a local Hugging Face model; default builds the small embedded model of the environment."""
    prompt: Literal["auto", "paper", "compact", "plain"] = "auto"
    """Words around observations. auto: what the model folder's tsr_gym.json says, else paper; for an environment with
    a protocol of its own plain, which adds none."""
    history: str = "auto"
    """What a prompt repeats: full, markov, window(k), or auto."""
    max_tokens: int = 400
    """Longest answer (paper's code: 400)."""
    temperature: float = 1.0
    """Of sampling in training (released code: 1.0)."""
    device: str = "auto"
    """cpu, cuda, cuda:1 ...; auto takes a GPU where there is one."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of computing; parameters stay in float32. auto: bfloat16 on a GPU, float32 on a CPU."""
    threads: int = 1
    """Threads of the CPU; 1 makes runs repeat bit for bit."""
    max_batch: int = 512
    """Most samples that are generated side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnConfig:
    """How the model learns from trajectories."""

    algorithm: Literal["ppo", "grpo"] = "ppo"
    """ppo with a critic (paper: Sokoban), or grpo without one (paper: FrozenLake, WebShop)."""
    estimator: str = "auto"
    """Advantages: auto (gae for ppo, grpo for grpo), tree_grpo, turn_gae, tspo or another of
    tsr_gym.agents.learning.advantages, with numbers of its own as in grpo(baseline='naive'), or package.module:name."""
    credit: tuple[str, ...] = ()
    """Rules that write rewards or counts anew before that, in order, such as format_penalty(penalty=0.2); see
    tsr_gym.agents.lessons.credit."""
    objective: Objective = field(default_factory=Objective)
    """The loss."""
    lr: float = 1e-6
    """Learning rate of the policy (released code)."""
    critic_lr: float = 1e-5
    """Learning rate of the critic (released code)."""
    critic: Literal["model", "head"] = "model"
    """A model of its own that begins as the policy, or a value head on the policy's backbone, which takes no memory."""
    critic_gradient: float = 0.0
    """With critic=head, share of the value loss's gradient that goes into the policy; 0 leaves it to its own loss."""
    lora_rank: int = 0
    """Train low-rank matrices of this rank beside the weights, which stay (LoRA; needs the extra lora); 0 trains the
    weights themselves."""
    lora_alpha: float = 32.0
    """What these matrices add counts alpha / rank times."""
    lora_targets: tuple[str, ...] = ()
    """Ends of the names of layers that have them, such as q_proj; none for all linear layers but the output layer."""
    weight_decay: float = 0.01
    """AdamW's weight decay (released code)."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Adam's moments (paper)."""
    value_clip: float = 0.5
    """How far a value may move in an update (RAGEN)."""
    gamma: float = 1.0
    """Discount (paper)."""
    lam: float = 1.0
    """Decay of GAE (paper)."""
    grad_clip: float = 1.0
    """Largest norm of a gradient (released code)."""
    epochs: int = 1
    """Times that an update goes through its trajectories (released code: 1)."""
    minibatch: int = 32
    """Trajectories per optimizer step (paper: 32, so that an update is one step)."""
    microbatch: int = 8
    """Rows per forward pass; only memory and speed depend on it."""
    layout: Literal["auto", "padded", "packed", "shared"] = "auto"
    """How rows lie for the model: padded, packed without padding, shared beginnings computed once, or the cheapest of
    these; only memory and speed depend on it."""
    logits: Literal["whole", "parts"] = "whole"
    """parts never holds the logits of many tokens at once, which takes a little time and saves memory."""
    recompute: bool = False
    """Compute activations again in the backward pass, which takes time and saves memory."""
    skip_spikes: bool = False
    """Leave out steps whose gradient is far larger than those before."""
    offload: bool = False
    """Keep parameters, gradients and optimizer state in the memory of the CPU while nothing is computed with them,
    which takes time and saves memory of the GPU."""
    old_logprobs: Literal["sampler", "learner"] = "sampler"
    """Where the ratio starts: at the sampler's log-probabilities, or computed again before the update (RAGEN)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """How long, how often, and where to."""

    out: Path | None = None
    """Folder of the run, which must not exist; None for runs/ENV-SEARCH-SEED."""
    label: str = ""
    """What reports call the method; runs with the same label and other seeds belong together."""
    updates: int = 200
    """Updates (paper: 200 for Sokoban and FrozenLake)."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """One training run.

    Attributes:
        env: Gymnasium id, or a short name such as ``sokoban``.
    """

    env: str
    task: TaskConfig = field(default_factory=TaskConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    learn: LearnConfig = field(default_factory=LearnConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def __post_init__(self) -> None:
        _check(self)

    @property
    def folder(self) -> Path:
        """Where the run lives."""
        name = f"{self.env.replace('/', '-')}-{self.search.search_name.replace(':', '-')}-{self.run.seed}"
        return self.run.out or Path("runs") / name

    @property
    def lora(self) -> LoraSettings | None:
        """The low-rank matrices that train; None where the weights do."""
        learn = self.learn
        if not learn.lora_rank:
            return None
        targets = learn.lora_targets or "all-linear"
        return LoraSettings(rank=learn.lora_rank, alpha=learn.lora_alpha, targets=targets, seed=self.run.seed)

    def to_json(self) -> str:
        """Return the configuration as JSON."""
        return json.dumps(asdict(self), indent=2, default=str)

    @classmethod
    def from_json(cls, text: str, *, source: str = "config.json") -> "TrainConfig":
        """Return the configuration that `to_json` wrote.

        Raises:
            ConfigError: The text is no JSON, or has unknown or missing settings.
        """
        try:
            data = json.loads(text)
            parts = {
                name: _section(kind, data.pop(name), f"{source}: {name}")
                for name, kind in (
                    ("task", TaskConfig),
                    ("search", SearchConfig),
                    ("model", ModelConfig),
                    ("learn", LearnConfig),
                    ("run", RunConfig),
                )
            }
            return cls(**data, **parts)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"{source}: not the configuration of a run ({error})") from error


_TYPES: Mapping[str, Callable[[Any], Any]] = {
    "out": lambda value: None if value is None else Path(value),
    "match_tokens": lambda value: None if value is None else Path(value),
    "env_set": tuple,
    "credit": tuple,
    "lora_targets": tuple,
    "betas": tuple,
    "objective": lambda value: _section(Objective, value, "objective"),
}


def _section(kind: Callable[..., Any], data: Mapping[str, Any], source: str) -> Any:
    known = {item.name for item in fields(kind)}  # type: ignore[arg-type]
    if unknown := sorted(set(data) - known):
        raise ConfigError(f"{source}: unknown settings {unknown}; known: {sorted(known)}")
    return kind(**{name: _TYPES.get(name, lambda same: same)(value) for name, value in data.items()})


# What numbers may be, and the settings for which it holds.
_RANGES: tuple[tuple[str, Callable[[float], bool], tuple[str, ...]], ...] = (
    (
        ">= 1",
        lambda number: number >= 1,
        (
            *("search.groups", "search.trajectories", "search.n", "search.width", "search.branching"),
            *(
                "search.paths_per_search",
                "search.repeats",
                "model.max_tokens",
                "model.threads",
                "model.max_batch",
                "learn.epochs",
            ),
            *("learn.minibatch", "learn.microbatch", "run.eval_instances", "run.checkpoint_every"),
            "run.keep_checkpoints",
        ),
    ),
    (
        ">= 0",
        lambda number: 0 <= number < inf,
        (
            *("task.penalty", "search.depth", "search.naive", "learn.weight_decay", "learn.lora_rank"),
            *("run.updates", "run.eval_every", "run.eval_temperature", "run.save_trees"),
        ),
    ),
    (
        "> 0",
        lambda number: 0 < number < inf,
        ("learn.lr", "learn.critic_lr", "learn.grad_clip", "learn.value_clip", "learn.lora_alpha", "model.temperature"),
    ),
    ("> 0 and <= 1", lambda number: 0 < number <= 1, ("search.keep",)),
    ("from 0 to 1", lambda number: 0 <= number <= 1, ("learn.gamma", "learn.lam", "learn.critic_gradient")),
)


def _check(config: TrainConfig) -> None:
    """Raise ConfigError where settings are impossible or contradict each other."""
    search, learn = config.search, config.learn
    for section in (config.task, search, config.model, learn, config.run):
        _check_choices(section)
    for words, holds, paths in _RANGES:
        for path in paths:
            if not holds(number := attrgetter(path)(config)):
                raise ConfigError(f"wanted {path.partition('.')[2]} {words}, got {number}")
    if not all(0 <= beta < 1 for beta in learn.betas):
        raise ConfigError(f"wanted betas from 0 to below 1, got {learn.betas}")
    if search.risk is not None and not 0 <= search.risk <= 1:
        raise ConfigError(f"wanted risk from 0 to 1 or None, got {search.risk}")
    if search.repeats > 1 and search.noise == "same":
        raise ConfigError(f'repeats={search.repeats} needs draws that differ: wanted noise "fresh" or "common"')
    if config.model.history != "auto":
        History.parse(config.model.history)
    if search.search == "best_of_n" and search.n < search.trajectories:
        raise ConfigError(
            f"best_of_n keeps {search.trajectories} trajectories of n={search.n}: raise n or lower trajectories"
        )
    if search.trajectories % search.paths_per_search:
        raise ConfigError(
            "wanted trajectories to be a multiple of paths_per_search, got "
            f"{search.trajectories} and {search.paths_per_search}"
        )
    if search.search == "beam" and search.paths_per_search > min(search.width, search.branching):
        raise ConfigError(
            f"a beam of width {search.width} and branching {search.branching} may end with fewer than "
            f"paths_per_search={search.paths_per_search} paths: lower it, or raise both"
        )
    if learn.algorithm == "grpo" and search.trajectories + search.naive < 2:
        raise ConfigError("grpo compares the trajectories of a group: wanted trajectories >= 2, got 1")
    if learn.objective.mismatch != "none" and learn.old_logprobs != "learner":
        raise ConfigError(
            "mismatch compares the learner's old log-probabilities with the sampler's: wanted old_logprobs=learner, "
            f"got {learn.old_logprobs}"
        )


def _check_choices(section: Any) -> None:
    values = asdict(section)
    for name, hint in get_type_hints(type(section)).items():
        if get_origin(hint) is Literal and values[name] not in get_args(hint):
            raise ConfigError(f"wanted {name} of {get_args(hint)}, got {values[name]!r}")
