"""TrainConfig: every setting of a training run, its values checked and its choices bound; torch-free.

`resolve` makes one out of an environment, a recipe, a model's card and the settings that the user gave. What it returns
is final: the code that reads a configuration checks nothing again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

from tsr_gym.agents.config.recipes import ConfigFile, parse_config
from tsr_gym.agents.config.resolve import NONE, Setting, collect_settings, without_none
from tsr_gym.agents.config.sections import RunConfig, all_settings
from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.learning.settings import LearnConfig
from tsr_gym.agents.lessons.settings import LessonConfig, StoreConfig
from tsr_gym.agents.models.settings import LoraSettings, ModelCard, ModelConfig
from tsr_gym.errors import ConfigError
from tsr_gym.files import read_regular
from tsr_gym.keywords import Choice
from tsr_gym.optional import OURS, require
from tsr_gym.registration import env_id
from tsr_gym.sections import build_section, settings_of

# The file in the folder of a run that repeats it: tsr train --config run.toml --out OTHER.
RUN_FILE = "run.toml"


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
    store: StoreConfig = field(default_factory=StoreConfig)
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
            raise ConfigError(f"{given[0]} and {given[1]} both decide how much an update samples: leave one out")
        if self.run.update_trajectories is not None and self.run.total_tokens is None:
            raise ConfigError(
                "where the filter keeps nothing, update_trajectories searches for ever: wanted total_tokens, got None"
            )
        if self.learn.lora_engine == "adapter" and (self.model.engine != "vllm" or not self.learn.lora_rank):
            raise ConfigError(
                "lora_engine=adapter hands low-rank matrices to vLLM in this process: wanted engine=vllm and lora_rank "
                f">= 1, got {self.model.engine} and {self.learn.lora_rank}"
            )
        if self.store.fit_passes and self.learn.lora_rank:
            raise ConfigError(
                f"a fit to solutions trains all weights: wanted fit_passes=0 or lora_rank=0, got {self.learn.lora_rank}"
            )
        if self.run.overlap:
            self._check_overlap({**ends, "total_tokens": self.run.total_tokens})
        if self.learn.algorithm == "grpo" and self.search.trajectories + self.search.naive < 2:
            raise ConfigError("grpo compares the trajectories of a group: wanted trajectories >= 2, got 1")

    def _check_overlap(self, ends: Mapping[str, object]) -> None:
        """Raise ConfigError where the next search cannot begin before this update is learned, or not be corrected."""
        if given := [name for name, end in ends.items() if end is not None]:
            raise ConfigError(f"overlap begins the next search before {given[0]} determines its length: leave one out")
        if self.search.start_states:
            raise ConfigError("overlap begins the next search before its start states are known: wanted start_states=0")
        if self.learn.old_logprobs == "learner" and self.learn.objective.mismatch == "none":
            raise ConfigError(
                "overlap learns from samples of earlier weights, and old_logprobs=learner with mismatch=none would not "
                "correct for them: wanted old_logprobs=sampler, or mismatch of truncate or mask"
            )

    @classmethod
    def from_recipe(cls, recipe: str | None = None, *, env: str, **settings: Any) -> "TrainConfig":
        """Return the configuration of a recipe with some settings of the caller.

        Args:
            recipe: Name of a recipe of the package (expert, filtering, levin, paper, tsr+), or the path of a TOML file;
                None for the defaults.
            env: Gymnasium id, short name or ``package.module:Id``.
            settings: By the names that ``tsr train --help-all`` lists, with underscores, such as ``total_tokens``.

        Raises:
            ConfigError: A setting is unknown or impossible, or two of them exclude each other.
            CheckpointError: The folder of the model holds no model, or its card is damaged.

        >>> config = TrainConfig.from_recipe("levin", env="sokoban", updates=40)
        >>> config.search.search, config.run.updates
        ('levin(expansions=60)', 40)
        """
        return resolve(env, recipe=recipe, given=settings)

    @classmethod
    def from_toml(cls, text: str, *, source: str = RUN_FILE, bound: bool = True) -> "TrainConfig":
        """Return the configuration that `to_toml` wrote.

        Args:
            text: The text.
            source: Its path, for messages.
            bound: Whether the callables that it names are looked up. False for programs that only show a run: nothing
                that the file names is imported, and the callables cannot be called.

        Raises:
            ConfigError: The text is not TOML, names no environment, or has an unknown setting or an impossible value.
        """
        file = parse_config(text, source)
        if file.env is None:
            raise ConfigError(f"{source}: wanted the configuration of a run with its env, got none")
        try:
            settings = without_none(file.settings)
            return build_section(cls, {"env": file.env} | (settings if bound else _unbound(settings)))
        except ConfigError as error:
            raise ConfigError(f"{source}: {error}") from error

    @classmethod
    def load(cls, folder: Path, *, bound: bool = True) -> "TrainConfig":
        """Return the configuration of a run, from its folder, with the folder as its `out`.

        Args:
            folder: Of the run.
            bound: See `from_toml`.

        Raises:
            ConfigError: There is no `run.toml`, or it is not the configuration of a run.
        """
        path = folder / RUN_FILE
        try:
            text = read_regular(path).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: wanted the configuration of a run, cannot read it ({error})") from error
        config = cls.from_toml(text, source=str(path), bound=bound)
        return replace(config, run=replace(config.run, out=folder))

    def to_toml(self) -> str:
        """Return the configuration as TOML, every setting in its table; the folder `out` is left out.

        Equal configurations give equal text, so the file repeats its run, and different runs have different files.

        Raises:
            MissingExtra: The extra agents, which has the TOML writer, is not installed.
        """
        # A core install has no TOML writer; only commands that need the extra agents write a configuration.
        require("tomli_w", "agents")
        import tomli_w

        values = settings_of(self)
        data: dict[str, Any] = {"env": self.env}
        for path, item, _ in all_settings():
            if item.name == "out":
                continue
            table = data
            for name in path:
                table = table.setdefault(name, {})
            table[item.name] = _plain(values[item.name])
        return tomli_w.dumps(data)

    @property
    def plays_plainly(self) -> bool:
        """Whether groups have trajectories of plain play, without a search."""
        return self.search.name == "naive" or self.search.naive > 0

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
    def modules(self) -> tuple[str, ...]:
        """The modules of the user that it names, which a command that reads it from a file must be told to trust."""
        values = settings_of(self)
        calls = [value for name in (*_callables(), "engine", "estimator") if (value := values[name]) is not None]
        texts = [env_id(self.env), *(text for call in calls for text in ([call] if isinstance(call, str) else call))]
        named = {text.partition("(")[0].rpartition(":")[0].strip() for text in texts}
        return tuple(sorted(module for module in named if module and module.partition(".")[0] not in OURS))

    @property
    def adapter_rank(self) -> int:
        """Of the low-rank matrices that vLLM gets at each update in place of all weights; 0 where it gets these."""
        return self.learn.lora_rank if self.learn.lora_engine == "adapter" else 0


def resolve(
    env: str,
    *,
    recipe: str | None = None,
    card: ModelCard | None = None,
    file: ConfigFile | None = None,
    given: Mapping[str, Any] | None = None,
) -> TrainConfig:
    """Return the configuration of a run, its values checked and its choices bound.

    Args:
        env: Gymnasium id, short name or ``package.module:Id``.
        recipe: Name of a recipe, or the path of a TOML file; None for the file's, or for none.
        card: Card of the model that the run begins with; None reads that of the chosen model.
        file: Settings of a configuration file.
        given: Settings by name, as flags and keyword arguments give them; they win over all others.

    Raises:
        ConfigError: A setting is unknown or impossible, or two of them exclude each other.
        CheckpointError: The folder of the model holds no model, or its card is damaged.
    """
    return build_config(env, collect_settings(env, recipe=recipe, card=card, file=file, given=given))


def build_config(env: str, settings: Mapping[str, Setting]) -> TrainConfig:
    """Return the configuration of an environment and the settings of `collect_settings`.

    Raises:
        ConfigError: A setting is unknown or impossible, or two of them exclude each other.
    """
    return build_section(TrainConfig, {"env": env} | {name: setting.value for name, setting in settings.items()})


def _unbound(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in which the names of callables stay text."""
    names = _callables()
    return {
        name: value
        if name not in names
        else list(map(Choice.unbound, value))
        if isinstance(value, list)
        # None stays None.
        else value and Choice.unbound(value)
        for name, value in settings.items()
    }


def _callables() -> list[str]:
    """Return the names of the settings that name callables."""
    return [item.name for _, item, hint in all_settings() if Choice in (hint, *get_args(hint))]


def _plain(value: Any) -> Any:
    """Return a value as TOML has it."""
    if value is None:
        return NONE
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, str | Path) else value
