"""`tsr eval`: play held-out instances with a model or a run."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from tsr_gym.agents.cli.arguments import ASK, Asked, Numbers, built, flags_of, parse
from tsr_gym.agents.cli.output import HERE, progress_bar, with_json, write_json
from tsr_gym.agents.config import RunConfig
from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.policies.chat_api import ApiConfig
from tsr_gym.agents.strategies import STRATEGIES
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import fold
from tsr_gym.optional import TRUST, importing_only, require
from tsr_gym.registration import trusted_modules
from tsr_gym.sections import setting, settings_of

# Settings of the sections that only training uses.
UNUSED = (
    *("train_split", "eval_split", "groups", "trajectories", "paths_per_search", "learn_from", "naive", "search_when"),
    *("search_temperature", "start_states", "start_states_from", "match_tokens", "temperature", "keep"),
)
# Settings that come from the run when a run is evaluated.
OWN = (
    *("preset", "env_set", "eval_env_set", "score", "penalty", "model", "prompt", "history", "max_tokens", "device"),
    *("dtype", "threads", "max_batch"),
)


# Arguments that are not those of the evaluation itself.
UNPLAYED = ("out", "json", "api", "numbers", "trust")


@dataclass(frozen=True)
class EvalArgs:
    """Play held-out instances, without search or with it; only played episodes count."""

    source: Annotated[str, tyro.conf.Positional] = setting(metavar="SOURCE")
    """Folder of a run (its latest checkpoint and settings), folder of a model, or default; with engine openai
    the environment."""
    env: str | None = None
    """Environment; the default is the run's or the model's."""
    trust: tuple[str, ...] = ()
    """Modules of yours that a run names: no other module is imported because a file names it."""
    split: str = setting("test", metavar="{train,valid,test,all,none}")
    """Instances to play."""
    instances: int = 256
    """Number of instances."""
    at_temperature: float = 0.5
    """Sampling temperature."""
    seed: int = 0
    """Seed of samples and noise; the instances are always the same."""
    out: Path | None = None
    """File for the result as JSON; an older name of json."""
    json: Path | None = None
    """File for the result as JSON; without a file it is printed."""
    task: TaskConfig = field(default_factory=TaskConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    api: ApiConfig = field(default_factory=ApiConfig)
    numbers: Numbers = field(default_factory=Numbers)


def main(args: list[str]) -> int:
    """Play, print the success with the bars, and write the result to the given files."""
    options = _read(with_json(args))
    given = {name: value for name, value in vars(options).items() if name not in UNPLAYED}
    if options.model.engine == "openai":
        _check_numbers(options)
        from tsr_gym.agents.reports.model_evaluation import evaluate_api

        play: Any = evaluate_api
        env = given.pop("source")
        given |= {"env": options.env or env, "api": options.api}
    else:
        require("torch", "agents")
        require("transformers", "agents")
        _check(options)
        from tsr_gym.agents.reports.model_evaluation import evaluate_model

        play = evaluate_model
    with _guard(options), progress_bar() as watch:
        result = play(**given, watch=watch)
    if options.json != HERE:
        _show(result)
    for target in {options.out, options.json}:
        write_json(result, target)
    return 0


def _read(args: list[str]) -> EvalArgs:
    """Return the options of a command line, with the numbers written into the search's call."""
    flags = flags_of(EvalArgs, without=UNUSED)
    if args == [ASK]:
        raise Asked(flags)
    parsed = parse(flags, args, prog="tsr eval")
    numbers = {name: value for name, value in settings_of(parsed.numbers).items() if value is not None}
    if numbers:
        text = fold(parsed.search.search, numbers, home=STRATEGIES, what="strategy")
        parsed = replace(parsed, search=replace(parsed.search, search=text))
    options: EvalArgs = built(EvalArgs, parsed)
    return options


def _guard(options: EvalArgs) -> AbstractContextManager[None]:
    """Return what refuses to import the modules that a run names, but for those that the user gave."""
    if not _is_run(options.source):
        return nullcontext()
    return importing_only((*trusted_modules(options.env), *options.trust), TRUST)


def _is_run(source: str) -> bool:
    return (Path(source) / "checkpoints").is_dir()


def _show(result: Any) -> None:
    low, high = result.evaluation.interval
    print(
        f"{result.instances_of}: success {result.evaluation.success:.3f} [{low:.3f}, {high:.3f}], 95 % over instances"
    )
    for name, value in asdict(result.bars).items():
        print(f"{name:>10}: {'not known' if value is None else f'{value:.3f}'}")
    print(f"    return: {result.evaluation.total_reward:.2f}, turns {result.evaluation.turns:.2f}")
    if result.ledger is not None:
        print(f"     asked: {result.ledger}")


def _check(options: Any) -> None:
    """Check names and folders before torch and transformers are imported, which takes seconds."""
    _check_numbers(options)
    values, defaults = settings_of(options), settings_of(TaskConfig()) | settings_of(ModelConfig())
    given = sorted(name for name in OWN if values[name] != defaults[name])
    of_run = _is_run(options.source)
    if given and of_run:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ConfigError(f"{options.source} is a run with its own {flags}: leave it out")
    from tsr_gym.agents.episodes.env_pool import task_pool
    from tsr_gym.agents.models.settings import check_model_folder

    # A run keeps its models in the folders of its checkpoints.
    if options.source != "default" and not of_run:
        check_model_folder(Path(options.source))
    if options.source == "default" and options.env is None:
        raise ConfigError("wanted --env for the default model")
    if options.env is not None:
        task_pool(options.env, options.task, options.split, options.search)


def _check_numbers(options: Any) -> None:
    RunConfig(eval_instances=options.instances, eval_temperature=options.at_temperature)
