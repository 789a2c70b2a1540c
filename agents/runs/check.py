"""Check: whether a run can begin and its choices fit together, told before it does; torch-free but for estimators."""

from inspect import signature

from tsr_gym.agents.episodes.collect import ChosenSearch, choose_search
from tsr_gym.agents.episodes.env_pool import task_pool
from tsr_gym.agents.episodes.start_states import choose_starts
from tsr_gym.agents.learning.estimators import ESTIMATORS, needs_of
from tsr_gym.agents.lessons import credit
from tsr_gym.agents.lessons.groups import choose_groups
from tsr_gym.agents.policies.engine import find_engine
from tsr_gym.agents.raters import choose_rater
from tsr_gym.agents.runs.config import TrainConfig
from tsr_gym.agents.runs.progress import token_targets
from tsr_gym.agents.strategies import best_of_n
from tsr_gym.errors import ConfigError
from tsr_gym.keywords import choose, no_such, parse_call
from tsr_gym.optional import require


def check_config(config: TrainConfig) -> None:
    """Raise an error where a run cannot begin, as far as that can be known without torch.

    Raises:
        ConfigError: The folder exists, or a setting is unknown or impossible.
    """
    if config.folder.exists():
        raise ConfigError(
            f"{config.folder} exists: choose another --out, or go on with that run by --resume {config.folder}"
        )
    package = find_engine(config.model.engine).package
    if package is not None and config.model.engine_url is None:
        require(package, package)
    estimator = parse_call(config.learn.estimator, what="estimator").name
    if ":" not in estimator and estimator not in ("auto", *ESTIMATORS):
        raise no_such("estimator", estimator, ("auto", *sorted(ESTIMATORS)))
    choose_search(config.search)
    choose_starts(config.search.start_states_from)
    choose_groups(config.lessons)
    if config.search.rater is not None:
        choose_rater(config.search.rater)
    task_pool(config.env, config.task, config.task.train_split)
    task_pool(config.env, config.task.held_out, config.task.eval_split)
    token_targets(config)


def check_choices(config: TrainConfig) -> None:
    """Raise ConfigError where the choices of a run are unknown, or mean nothing beside one another.

    Raises:
        ConfigError: A name or number is wrong; a credit rule undoes another selection than the search's; nothing would
            be learned from; or an estimator lacks what it needs.
    """
    search = choose_search(config.search)
    choose_groups(config.lessons)
    for text in config.lessons.credit:
        rule = choose(text, home=credit.__name__, what="credit rule")
        if rule.func is credit.undo_selection:
            _check_selection(config, search, (rule.keywords["samples"], rule.keywords["kept"]))
    objective = config.learn.objective
    if not (_has_plain_play(config) or objective.searched_weight or objective.imitation):
        raise ConfigError(
            f"{config.search.search} with searched_weight=0: nothing would be learned from: set naive, imitation or "
            "searched_weight above 0"
        )
    _check_estimator(config, search)


def _has_plain_play(config: TrainConfig) -> bool:
    return config.search.name == "naive" or config.search.naive > 0


def _check_selection(config: TrainConfig, search: ChosenSearch, numbers: tuple[int, int]) -> None:
    """Raise ConfigError where trajectories are not the best K of N independent episodes, beside plain play."""
    samples, kept = numbers
    own, is_best = config.search, search.strategy.func is best_of_n
    if not is_best or search.harvest != "selected":
        raise ConfigError(
            "undo_selection holds for the best of independent episodes alone: wanted search="
            f"best_of_n(n={samples}, keep={kept}) with learn_from=selected, got {own.search} with {own.learn_from}"
        )
    wanted = (signature(search.strategy).parameters["n"].default, search.paths)
    if numbers != wanted:
        raise ConfigError(
            f"{own.search} keeps {wanted[1]} of {wanted[0]}: wanted undo_selection(samples={wanted[0]}, "
            f"kept={wanted[1]}), got samples={samples} and kept={kept}"
        )
    if own.naive < 1:
        raise ConfigError("undo_selection reads the distribution of returns off plain play: wanted naive >= 1, got 0")
    if (own.noise, own.dead_ends) != ("fresh", "off"):
        raise ConfigError(
            "undo_selection holds where episodes are independent and ranked by their returns: wanted noise=fresh and "
            f"dead_ends=off, got {own.noise} and {own.dead_ends}"
        )


def _check_estimator(config: TrainConfig, search: ChosenSearch) -> None:
    """Raise ConfigError where the run's batches will not have what its estimator needs."""
    from tsr_gym.agents.learning.advantages.choose_estimator import choose_estimator

    learn = config.learn
    needs = needs_of(choose_estimator(learn.estimator, critic=learn.algorithm == "ppo").estimator)
    if needs.naive and not _has_plain_play(config):
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
