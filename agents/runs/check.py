"""Whether a run can begin: what a configuration alone cannot know; torch-free but for the estimator."""

from inspect import signature

from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.episodes.collect import choose_search
from tsr_gym.agents.episodes.env_pool import task_pool
from tsr_gym.agents.learning.estimators import ESTIMATORS, needs_of
from tsr_gym.agents.lessons.credit import undo_selection
from tsr_gym.agents.policies.engine import find_engine
from tsr_gym.agents.runs.progress import token_targets
from tsr_gym.agents.strategies import best_of_n
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import no_such, parse_call
from tsr_gym.optional import require


def check_start(config: TrainConfig) -> None:
    """Raise an error where a run cannot begin, before a model is built or loaded for it.

    The cheap checks come first, because the last one imports torch.

    Raises:
        ConfigError: The folder exists, the environment or one of its settings is unknown, the run whose tokens it
            matches does not fit, or the batches will not have what the estimator needs.
        MissingExtra: The engine is not installed.
    """
    if config.folder.exists():
        raise ConfigError(
            f"{config.folder} exists: choose another --out, or continue that run by --resume {config.folder}"
        )
    package = find_engine(config.model.engine).package
    if package is not None and config.model.engine_url is None:
        require(package, package)
    _check_lessons(config)
    estimator = parse_call(config.learn.estimator, what="estimator").name
    if ":" not in estimator and estimator not in ("auto", *ESTIMATORS):
        raise no_such("estimator", estimator, ("auto", *sorted(ESTIMATORS)))
    task_pool(config.env, config.task, config.task.train_split)
    task_pool(config.env, config.task.held_out, config.task.eval_split)
    token_targets(config)
    _check_estimator(config)


def check_choices(config: TrainConfig) -> None:
    """Raise ConfigError where the choices of a run do not fit together; imports torch for the estimator.

    Raises:
        ConfigError: A credit rule undoes another selection than the search's, nothing would be learned from, or the
            batches will not have what the estimator needs.
    """
    _check_lessons(config)
    _check_estimator(config)


def _check_lessons(config: TrainConfig) -> None:
    """Raise ConfigError where nothing would be learned from, or a credit rule does not fit the search."""
    plan, objective = choose_search(config.search), config.learn.objective
    for rule in config.lessons.credit:
        if rule.bound.func is undo_selection:
            _check_selection(config, rule.bound.keywords["samples"], rule.bound.keywords["kept"])
    if not (config.plays_plainly or objective.searched_weight or objective.imitation):
        raise ConfigError(
            f"{plan.name} with searched_weight=0: nothing would be learned from: set naive, imitation or "
            "searched_weight above 0"
        )


def _check_selection(config: TrainConfig, samples: int, kept: int) -> None:
    """Raise ConfigError where trajectories are not the best `kept` of `samples` independent episodes.

    The rule `undo_selection` inverts the distribution of the best of independent plays. It reads the distribution
    of a single play from the plain episodes of the same instance.
    """
    own, plan = config.search, choose_search(config.search)
    if plan.strategy.func is not best_of_n or plan.harvest != "selected":
        raise ConfigError(
            "undo_selection holds for the best of independent episodes alone: wanted search="
            f"best_of_n(n={samples}, keep={kept}) with learn_from=selected, got {own.search} with {own.learn_from}"
        )
    wanted = (signature(plan.strategy).parameters["n"].default, plan.paths)
    if (samples, kept) != wanted:
        raise ConfigError(
            f"{own.search} keeps {wanted[1]} of {wanted[0]}: wanted undo_selection(samples={wanted[0]}, "
            f"kept={wanted[1]}), got samples={samples} and kept={kept}"
        )
    if own.naive < 1:
        raise ConfigError("undo_selection reads the distribution of returns off plain play: wanted naive >= 1, got 0")
    if (own.noise, own.dead_ends) != ("fresh", "off"):
        raise ConfigError(
            "undo_selection holds where episodes are independent and ranked by their returns: wanted noise=fresh "
            f"and dead_ends=off, got {own.noise} and {own.dead_ends}"
        )


def _check_estimator(config: TrainConfig) -> None:
    """Raise ConfigError where the run's batches will not have what its estimator needs."""
    from tsr_gym.agents.learning.advantages.choose_estimator import choose_estimator

    learn, search = config.learn, choose_search(config.search)
    needs = needs_of(choose_estimator(learn.estimator, critic=learn.algorithm == "ppo").estimator)
    if needs.naive and not config.plays_plainly:
        raise ConfigError(
            f"the estimator {learn.estimator} compares with plain play, and {config.search.search} brings none: set "
            "naive >= 1, or baseline='all'"
        )
    if needs.whole_groups and learn.objective.searched_weight == 0 and config.search.name != "naive":
        raise ConfigError(
            f"the estimator {learn.estimator} compares by turns where a whole group failed, and is not shown searched "
            "trajectories with searched_weight=0: it would treat a group whose only success was searched as one that "
            "the credit rule rewrote. Write groups='all' in both, tspo(groups='all') and "
            "first_occurrence(groups='all'), or searched_weight above 0"
        )
    if needs.finished and search.harvest == "leaves":
        raise ConfigError(
            f"the estimator {learn.estimator} takes a branch that the search left for an episode that ended: wanted "
            "learn_from=selected, or an estimator that completes branches, such as tree_backup"
        )
