"""Check: choices that do not fit together are refused before a run, and the documents' recipes are not."""

import re
import shlex

import pytest

from tests.conftest import ROOT, spread
from tsr_gym import ConfigError
from tsr_gym.agents.cli.train import read_config
from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.learning.estimators import estimator
from tsr_gym.agents.learning.settings import LearnConfig, Objective
from tsr_gym.agents.lessons.settings import LessonConfig
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.runs.check import check_choices, check_start, estimate


def credited(*rules):
    return LessonConfig(credit=rules)


EVIDENCE, UNDO = credited("first_occurrence"), credited("format_penalty", "undo_selection(samples=8, kept=4)")
BEST = {"search": "best_of_n(n=8)", "trajectories": 4, "naive": 2}


def run_of(search=None, *, lessons=None, score="reward", **learn):
    """Return the configuration of a run of GRPO."""
    return TrainConfig(
        env="sokoban",
        task=TaskConfig(score=score),
        search=SearchConfig(**(search or {})),
        lessons=lessons or LessonConfig(),
        learn=LearnConfig(**{"algorithm": "grpo", **learn}),
    )


LEAVES, BESIDE = {"search": "beam", "learn_from": "leaves"}, {"search": "beam", "naive": 4}
NO_WEIGHT, IMITATED = Objective(searched_weight=0.0), Objective(searched_weight=0.0, imitation=0.1)
SCORED = {"score": "SokobanScore", "estimator": "tspo"}
FITTING = {
    "the best 4 of 8 next to plain play": run_of(BEST, lessons=UNDO),
    "the best 4 of 8 twice": run_of({**BEST, "search": "best_of_n(n=8, keep=4)", "trajectories": 8}, lessons=UNDO),
    "the best 4 of the default number": run_of(
        {**BEST, "search": "best_of_n"}, lessons=credited("undo_selection(samples=32, kept=4)")
    ),
    "plain play without searched trajectories": run_of({}, objective=NO_WEIGHT),
    "imitation alone": run_of({"search": "beam"}, objective=IMITATED),
    "plain play next to a search": run_of(BESIDE, objective=NO_WEIGHT),
    "a baseline of plain play alone": run_of({}, estimator="rloo(baseline='naive')"),
    "a baseline of plain play next to a search": run_of(BESIDE, estimator="rloo(baseline='naive')"),
    "leaves as failures": run_of(LEAVES, estimator="tree_backup"),
    "leaves with a critic": run_of(LEAVES, algorithm="ppo", estimator="tree_backup"),
    "selected paths with a critic": run_of({"search": "beam"}, algorithm="ppo"),
    "TSPO": run_of(lessons=EVIDENCE, **SCORED),
    "TSPO with searched trajectories": run_of(BESIDE, lessons=EVIDENCE, **SCORED),
    "turns of all groups next to imitation": run_of(
        BESIDE,
        lessons=credited("first_occurrence(groups='all')"),
        **SCORED | {"estimator": "tspo(groups='all')"},
        objective=IMITATED,
    ),
    "evidence by answers": run_of(lessons=credited("first_occurrence(golds=('a',))"), estimator="tspo"),
}
REFUSED = {
    "another search": ({**BEST, "search": "beam(width=4, branching=2)"}, r"best_of_n\(n=8, keep=4\)"),
    "other samples": ({**BEST, "search": "best_of_n(n=9)"}, "samples=9, kept=4"),
    "other paths": ({**BEST, "trajectories": 3}, "samples=8, kept=3"),
    "one path each": ({**BEST, "search": "best_of_n(n=8, keep=1)"}, "samples=8, kept=1"),
    "all episodes": ({**BEST, "learn_from": "leaves"}, "learn_from=selected"),
    "only where plain play failed": ({**BEST, "search_when": "failed"}, "search_when=always, got failed"),
    "no plain play": ({**BEST, "naive": 0}, "naive >= 1"),
    "the episode's own dice": ({**BEST, "noise": "same"}, "noise=fresh"),
    "paths cut at dead ends": ({**BEST, "dead_ends": "proven"}, "dead_ends=off"),
}


@pytest.mark.parametrize("name", FITTING)
def test_choices_that_fit_together_pass(name):
    check_choices(FITTING[name])


@pytest.mark.parametrize("name", REFUSED)
def test_undoing_a_selection_is_refused_where_its_formula_does_not_hold(name):
    search, message = REFUSED[name]
    with pytest.raises(ConfigError, match=f"undo_selection.*{message}"):
        check_choices(run_of(search, lessons=UNDO))


@estimator(needs={"values": {"unfinished": "value"}})
def mine(batch, *, unfinished="value"):
    return batch.rewards


# An estimator, the algorithm, the other settings, and a fact of the message.
EXCLUDED = [
    *(
        (None, "grpo", {"search": search}, NO_WEIGHT, "nothing would be learned from: set naive, imitation or searched")
        for search in ("beam", "best_of_n(n=16)", "random_branching")
    ),
    ("tree_backup(unfinished='value')", "grpo", LEAVES, None, "needs a critic: .* ppo with .*tree_backup"),
    (f"{__name__}:mine", "grpo", LEAVES, None, "needs a critic: wanted algorithm ppo"),
    ("gae", "grpo", {}, None, "needs a critic"),
    ("grpo", "ppo", {}, None, "has no use for a critic"),
    ("grpo(baseline='naive')", "grpo", {"search": "beam"}, None, "plain play.*set naive >= 1, or baseline='all'"),
    *(
        (name, "ppo", LEAVES, None, r"learn_from=selected, or an estimator that .*tree_backup")
        for name in ("auto", "turn_gae", "bi_level_gae")
    ),
    # Only one of two rules sees a group that plain play failed and a search solved.
    ("tspo", "grpo", BESIDE, IMITATED, r"only success was searched.*tspo\(groups='all'\)"),
]


@pytest.mark.parametrize(("estimator", "algorithm", "search", "objective", "fact"), EXCLUDED)
def test_choices_that_exclude_each_other_are_refused(estimator, algorithm, search, objective, fact):
    learn = {"estimator": estimator or "auto", "algorithm": algorithm, "objective": objective or Objective()}
    with pytest.raises(ConfigError, match=fact):
        check_choices(run_of(search, **learn))


@pytest.mark.parametrize(
    ("config", "facts"),
    [
        (run_of({**BEST, "naive": 0}, lessons=UNDO), "undo_selection"),
        (TrainConfig(env="sokoban", task=TaskConfig(eval_env_set=("num_boxes=99",))), "wanted 1 to 8 boxes"),
        (TrainConfig(env="sokoban", task=TaskConfig(eval_split="exam")), "wanted split of"),
    ],
    ids=["a selection that is not undone", "held-out settings", "held-out split"],
)
def test_a_run_is_checked_before_it_begins(config, facts):
    with pytest.raises(ConfigError, match=facts):
        check_start(config)


def recipes():
    """Return the arguments of every new run in the documents."""
    text = "\n".join((ROOT / name).read_text() for name in ("README.md", "docs/training.md")).replace("\\\n", " ")
    lines = re.findall(r"^(?:tsr|torchrun .* -m tsr_gym) train (.*)$", text, flags=re.MULTILINE)
    return sorted({line.partition(" # ")[0].strip() for line in lines if not re.search("--resume|--config", line)})


@pytest.mark.parametrize(
    "recipe",
    [line if line in spread(recipes(), 6) else pytest.param(line, marks=pytest.mark.deep) for line in recipes()],
)
def test_the_documents_recipes_pass(recipe):
    check_choices(configured(recipe))


def configured(line):
    """Return the configuration of a command line, with the embedded model where it names one that is not here."""
    args = shlex.split(line)
    if "--model" in args:
        at = args.index("--model")
        args = args[:at] + args[at + 2 :]
    return read_config(args)


PAPER = {
    "sokoban": ("reward", "ppo", ("generator=ragen",)),
    "frozenlake": ("FrozenLakeScore", "grpo", ()),
    "webshop": ("WebShopScore", "grpo", ()),
}


@pytest.mark.parametrize("env", PAPER)
def test_the_papers_proxy_algorithm_and_rooms_stand_in_its_recipe(env):
    # All eight recipes of the documents, or more, were found.
    assert len(recipes()) >= 8
    (line,) = [recipe for recipe in recipes() if recipe.startswith(env) and "Qwen2.5-3B" in recipe]
    config = configured(line)
    assert (config.task.score, config.learn.algorithm, tuple(config.task.env_set)) == PAPER[env]
    assert (config.search.name, config.task.preset) == ("beam", "paper")


@pytest.mark.parametrize(
    ("changes", "engine"),
    [
        ({}, "trie"),
        ({"model": ModelConfig(dtype="bfloat16")}, "transformers"),
        ({"model": ModelConfig(engine="vllm")}, "vllm"),
        ({"learn": LearnConfig(lora_rank=2)}, "transformers"),
        ({"learn": LearnConfig(offload=True)}, "transformers"),
    ],
    ids=str,
)
def test_an_estimate_names_the_engine_that_auto_stands_for(base_model, changes, engine):
    assert estimate(TrainConfig(env="sokoban", **changes), base_model).engine == engine
