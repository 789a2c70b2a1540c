"""Checks of a configuration that need no learning: names, folders, environments; torch-free, for quick answers."""

from tsr_gym.agents.episodes.collect import choose_search
from tsr_gym.agents.episodes.env_pool import task_pool
from tsr_gym.agents.learning.settings import ESTIMATORS
from tsr_gym.agents.lessons.groups import choose_groups
from tsr_gym.agents.raters import choose_rater
from tsr_gym.agents.runs.config import TrainConfig
from tsr_gym.agents.runs.log import JsonLines
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import no_such, parse_call


def check_config(config: TrainConfig) -> None:
    """Raise an error where a run cannot begin, as far as that can be known without torch.

    Raises:
        ConfigError: The folder exists, or a setting is unknown or impossible.
    """
    if config.folder.exists():
        raise ConfigError(
            f"{config.folder} exists: choose another --out, or go on with that run by --resume {config.folder}"
        )
    estimator = parse_call(config.learn.estimator, what="estimator").name
    if ":" not in estimator and estimator not in ("auto", *ESTIMATORS):
        raise no_such("estimator", estimator, ("auto", *ESTIMATORS))
    choose_search(config.search)
    choose_groups(config.lessons)
    if config.search.rater is not None:
        choose_rater(config.search.rater)
    for split in (config.task.train_split, config.task.eval_split):
        task_pool(config.env, config.task, split)
    token_targets(config)


def token_targets(config: TrainConfig) -> list[int] | None:
    """Return the tokens that another run had sampled after each of its updates; None for a run that matches none.

    Raises:
        ConfigError: That run has fewer updates, or is none.
    """
    other = config.search.match_tokens
    if other is None:
        return None
    totals = [record["sampled_tokens_total"] for record in JsonLines(other / "metrics.jsonl").read()]
    if len(totals) < config.run.updates:
        raise ConfigError(
            f"match_tokens: wanted a run of at least {config.run.updates} updates, {other} has {len(totals)}"
        )
    return totals
