"""Asked: models behind an endpoint, which play held-out instances as they are."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.papers.plan import Scale
from benchmarks.papers.report import percent
from benchmarks.papers.tsr import ICE
from benchmarks.pay.report import interval
from benchmarks.tsr_runs import words
from tsr_gym.agents.cli.output import write_json
from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.policies.chat_api import ApiConfig
from tsr_gym.agents.reports.model_evaluation import evaluate_api

Row = dict[str, Any]
# Settings of the worlds: the embedded models' observations, and those of the paper's models.
WORLDS: Mapping[Scale, Mapping[str, str]] = {
    "tiny": {"sokoban": "obs_type=compact", "frozen_lake": f"{ICE} obs_type=compact"},
    "qwen": {"sokoban": "generator=ragen", "frozen_lake": f"{ICE} obs_type=grid_coord"},
}
EVAL_TEMPERATURE = 0.5
SPOKEN: Mapping[Scale, Mapping[str, Any]] = {
    "tiny": {"prompt": "compact", "history": "markov", "max_tokens": 16},
    "qwen": {},
}


@dataclass(frozen=True)
class Question:
    """One evaluation.

    Attributes:
        scale: Decides the settings of the world and the form of the prompt.
        world: What is played.
        model: The model's name at the endpoint; where an endpoint serves one model per world, ``NAME-WORLD``.
        seed: Of samples and dice.
        instances: Number of held-out instances.
    """

    scale: Scale
    world: str
    model: str
    seed: int
    instances: int

    @property
    def command(self) -> str:
        """The command line that does the same, without model, seed, endpoint and file."""
        spoken = "".join(f" --{name.replace('_', '-')} {value}" for name, value in SPOKEN[self.scale].items())
        settings = WORLDS[self.scale][self.world]
        return f"eval {self.world} --engine openai --env-set {settings}{spoken} --instances {self.instances}"

    @property
    def file(self) -> str:
        """File name, which includes a digest of the configuration."""
        digest = blake2b(f"{self.command} {self.model} {self.seed}".encode(), digest_size=4).hexdigest()
        return f"{self.world}-{self.model.replace('/', '-')}-{self.seed}-{digest}.json"


def questions(scale: Scale, models: Sequence[str], seeds: int, instances: int) -> Iterator[Question]:
    """Yield the evaluations of some models, seed by seed; ``WORLD=NAME`` is a model that is asked in one world."""
    for seed in range(seeds):
        for world in WORLDS[scale]:
            for model in models:
                only, _, name = model.rpartition("=")
                if only in ("", world):
                    yield Question(scale, world, name, seed, instances)


def ask(asked: Sequence[Question], base_url: str, out: Path) -> None:
    """Do the evaluations that are not there yet."""
    folder = out / "asked"
    folder.mkdir(parents=True, exist_ok=True)
    for question in asked:
        if not (folder / question.file).exists():
            result = evaluate_api(
                question.world,
                "test",
                question.instances,
                EVAL_TEMPERATURE,
                question.seed,
                TaskConfig(env_set=tuple(words(WORLDS[question.scale][question.world]))),
                SearchConfig(),
                ModelConfig(model=question.model, engine="openai", **SPOKEN[question.scale]),
                ApiConfig(base_url=base_url),
            )
            write_json(result, folder / question.file)


def runs_of(asked: Sequence[Question], out: Path) -> list[Row]:
    """Return a row for each finished evaluation."""
    return [_run_of(question, path) for question in asked if (path := out / "asked" / question.file).exists()]


def _run_of(question: Question, path: Path) -> Row:
    result = json.loads(path.read_text())
    kept = ("success", "total_reward", "turns", "response_length", "valid", "instances")
    return {
        "setting": question.world,
        "method": question.model,
        "seed": question.seed,
        "command": f"tsr {question.command} --model {question.model} --seed {question.seed}",
        **{name: result["evaluation"][name] for name in kept},
        **result["bars"],
        **result["ledger"],
    }


def asked_rows(runs: Sequence[Row]) -> list[Row]:
    """Return a row per world and model, means over seeds."""
    return [
        {
            "setting": world,
            "method": model,
            "seeds": len(mine),
            "success": interval([100 * run["success"] for run in mine]),
            "turns": round(fmean(run["turns"] for run in mine), 2),
            **{name: sum(run[name] for run in mine) for name in ("requests", "prompt_tokens", "sampled_tokens")},
            **{name: percent(mine[0][name]) for name in ("random", "optimal")},
        }
        for world, model in dict.fromkeys((run["setting"], run["method"]) for run in runs)
        if (mine := [run for run in runs if (run["setting"], run["method"]) == (world, model)])
    ]
