"""`tsr eval`: play held-out instances with a model or a run."""

from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from tsr_gym.agents.cli.arguments import read_arguments
from tsr_gym.agents.cli.json_output import HERE, with_json, write_json
from tsr_gym.agents.cli.progress_bar import progress_bar
from tsr_gym.agents.cli.shortcuts import Shortcuts, fold_shortcuts
from tsr_gym.errors import ConfigError
from tsr_gym.optional import load, require

# Settings of training, which the sections have besides.
UNUSED = (
    *("--train-split", "--eval-split", "--groups", "--trajectories", "--paths-per-search", "--learn-from", "--naive"),
    *("--search-when", "--search-until", "--start-states", "--start-states-from", "--match-tokens", "--temperature"),
    *("--recipe", "--keep"),
)
# Settings that a run brings itself.
OWN = (
    *("--preset", "--env-set", "--eval-env-set", "--score", "--penalty", "--model", "--prompt", "--history"),
    *("--max-tokens", "--device", "--dtype", "--threads", "--max-batch"),
)


def main(args: list[str]) -> int:
    """Play, print success beside the bars, and write the result where wanted."""
    task_kind: Any = load("tsr_gym.agents.runs.config:TaskConfig")
    search_kind: Any = load("tsr_gym.agents.runs.config:SearchConfig")
    model_kind: Any = load("tsr_gym.agents.runs.config:ModelConfig")
    api_kind: Any = load("tsr_gym.agents.policies.settings:ApiConfig")

    @dataclass(frozen=True)
    class EvalArgs:
        """Play held-out instances, without search or with it, and never count an imagined success."""

        source: Annotated[str, tyro.conf.Positional]
        """Folder of a run (its latest checkpoint and settings), folder of a model, or default; the environment where
        the engine is openai."""
        env: str | None = None
        """Environment; a run knows its own."""
        split: str = "test"
        """Instances to play."""
        instances: int = 256
        """How many."""
        at_temperature: float = 0.5
        """Of sampling."""
        seed: int = 0
        """Of samples and dice; the instances are always the same."""
        out: Path | None = None
        """File for the result as JSON; an older name of json."""
        json: Path | None = None
        """File for the result as JSON; without a file it is printed."""
        task: task_kind = field(default_factory=task_kind)
        search: search_kind = field(default_factory=search_kind)
        model: model_kind = field(default_factory=model_kind)
        api: api_kind = field(default_factory=api_kind)
        shortcuts: Shortcuts = field(default_factory=Shortcuts)

    chosen = read_arguments(EvalArgs, fold_shortcuts(with_json(args)), prog="tsr eval", without=UNUSED)
    given = {name: value for name, value in vars(chosen).items() if name not in ("out", "json", "shortcuts", "api")}
    if chosen.model.engine == "openai":
        _check_numbers(chosen)
        play: Any = load("tsr_gym.agents.reports.model_evaluation:evaluate_api")
        env = given.pop("source")
        given |= {"env": chosen.env or env, "api": chosen.api}
    else:
        require("torch", "agents")
        require("transformers", "agents")
        _check(chosen, args)
        play = load("tsr_gym.agents.reports.model_evaluation:evaluate_model")
    with progress_bar() as watch:
        result = play(**given, watch=partial(watch, "episodes"))
    if chosen.json != HERE:
        _show(result)
    for target in {chosen.out, chosen.json} - {None}:
        write_json(result, target)
    return 0


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


def _check(chosen: Any, args: list[str]) -> None:
    """Check names and folders before the libraries of learning are imported, which takes seconds."""
    _check_numbers(chosen)
    given = sorted({arg.partition("=")[0] for arg in args} & set(OWN))
    if given and (Path(chosen.source) / "checkpoints").is_dir():
        raise ConfigError(f"{chosen.source} is a run and brings its own {', '.join(given)}: leave it out")
    check_model_folder: Any = load("tsr_gym.agents.models.card:check_model_folder")
    task_pool: Any = load("tsr_gym.agents.episodes.env_pool:task_pool")
    if chosen.source != "default":
        check_model_folder(Path(chosen.source))
    elif chosen.env is None:
        raise ConfigError("wanted --env for the default model")
    if chosen.env is not None:
        task_pool(chosen.env, chosen.task, chosen.split, chosen.search)


def _check_numbers(chosen: Any) -> None:
    run_kind: Any = load("tsr_gym.agents.runs.config:RunConfig")
    run_kind(eval_instances=chosen.instances, eval_temperature=chosen.at_temperature)
