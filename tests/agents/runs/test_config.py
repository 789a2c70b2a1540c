"""TrainConfig: what it refuses, and that it comes back from JSON as it was."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tsr_gym.own_process import run_python
from tsr_gym import ConfigError
from tsr_gym.agents.learning.objective import Objective
from tsr_gym.agents.models.lora_settings import LoraSettings
from tsr_gym.agents.runs.config import (
    LearnConfig,
    ModelConfig,
    RunConfig,
    SearchConfig,
    TaskConfig,
    TrainConfig,
)

SECTIONS = {"task": TaskConfig, "search": SearchConfig, "model": ModelConfig, "learn": LearnConfig, "run": RunConfig}
NAN, INF = float("nan"), float("inf")

IMPOSSIBLE = [
    ("search", name, value)
    for name in ("groups", "trajectories", "n", "width", "branching", "paths_per_search")
    for value in (0, -1)
]
IMPOSSIBLE += [("model", name, 0) for name in ("max_tokens", "threads", "max_batch")]
IMPOSSIBLE += [("learn", name, 0) for name in ("epochs", "minibatch", "microbatch")]
IMPOSSIBLE += [("run", name, 0) for name in ("eval_instances", "checkpoint_every", "keep_checkpoints")]
IMPOSSIBLE += [("run", name, -1) for name in ("updates", "eval_every", "save_trees", "eval_temperature")]
IMPOSSIBLE += [
    ("learn", name, value) for name in ("lr", "critic_lr", "grad_clip", "value_clip") for value in (0.0, -1.0, NAN, INF)
]
IMPOSSIBLE += [("learn", name, value) for name in ("gamma", "lam") for value in (-0.1, 1.1, NAN)]
IMPOSSIBLE += [("learn", "weight_decay", value) for value in (-0.1, NAN, INF)]
IMPOSSIBLE += [
    ("task", "penalty", -0.1),
    ("task", "penalty", NAN),
    ("search", "depth", -1),
    ("search", "keep", 0.0),
    ("search", "keep", 1.5),
    ("search", "keep", NAN),
    ("search", "noise", "loud"),
    ("search", "naive", -1),
    ("search", "learn_from", "luck"),
    ("search", "filter_when", "during"),
    ("model", "temperature", 0.0),
    ("model", "temperature", NAN),
    ("model", "prompt", "short"),
    ("model", "dtype", "float8"),
    ("learn", "algorithm", "dqn"),
    ("learn", "layout", "round"),
    ("learn", "critic", "judge"),
    ("learn", "critic_gradient", 1.5),
    ("learn", "lora_rank", -1),
    ("learn", "lora_alpha", 0.0),
    ("learn", "logits", "some"),
    ("learn", "old_logprobs", "guess"),
    ("learn", "betas", (0.9, 1.0)),
    ("learn", "betas", (-0.1, 0.9)),
]


@pytest.mark.parametrize(
    ("section", "name", "value"), IMPOSSIBLE, ids=[f"{name}={value}" for _, name, value in IMPOSSIBLE]
)
def test_an_impossible_setting_is_refused_by_its_name(section, name, value):
    with pytest.raises(ConfigError, match=rf"wanted {name}\b.*got"):
        TrainConfig(env="sokoban", **{section: SECTIONS[section](**{name: value})})


@pytest.mark.parametrize(
    ("section", "settings", "message"),
    [
        ("search", {"search": "best_of_n", "n": 8, "trajectories": 16}, r"keeps 16 trajectories of n=8"),
        ("search", {"trajectories": 16, "paths_per_search": 3}, r"multiple of paths_per_search, got 16 and 3"),
        (
            "search",
            {"search": "beam", "width": 2, "branching": 4, "paths_per_search": 4},
            r"beam of width 2 and branching 4 .* paths_per_search=4",
        ),
        ("learn", {"objective": Objective(mismatch="truncate")}, r"wanted old_logprobs=learner, got sampler"),
        ("model", {"history": "window"}, r"wanted a history of full, markov or window\(k\), got 'window'"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(section, settings, message):
    with pytest.raises(ConfigError, match=message):
        TrainConfig(env="sokoban", **{section: SECTIONS[section](**settings)})


def test_grpo_needs_something_to_compare_with():
    with pytest.raises(ConfigError, match="grpo compares"):
        TrainConfig(env="sokoban", learn=LearnConfig(algorithm="grpo"), search=SearchConfig(trajectories=1))
    TrainConfig(env="sokoban", learn=LearnConfig(algorithm="ppo"), search=SearchConfig(trajectories=1))


def test_the_extremes_that_make_sense_are_allowed():
    TrainConfig(
        env="sokoban",
        search=SearchConfig(keep=1.0, depth=0, trajectories=4, paths_per_search=4),
        learn=LearnConfig(
            objective=Objective(entropy=0.0, clip_low=1.0), gamma=0.0, lam=0.0, weight_decay=0.0, betas=(0.0, 0.0)
        ),
        run=RunConfig(updates=0, eval_every=0, eval_temperature=0.0, save_trees=0),
        task=TaskConfig(penalty=0.0, train_split=None, eval_split=None),
    )


# Every setting at a value that is not its default.
CHANGED = TrainConfig(
    env="tsr/FrozenLake-v0",
    task=TaskConfig(
        preset="tsr-code",
        env_set=("p=0.7", "size=5"),
        score="FrozenLakeScore",
        penalty=0.2,
        train_split=None,
        eval_split="valid",
    ),
    search=SearchConfig(
        search="beam",
        groups=3,
        trajectories=6,
        n=7,
        width=3,
        branching=5,
        depth=1,
        paths_per_search=2,
        noise="common",
        repeats=3,
        risk=0.25,
        dead_ends="limits",
        rater="SelfConsistency()",
        naive=2,
        learn_from="leaves",
        filter="mixed_success",
        keep=0.5,
        filter_when="before",
        match_tokens=Path("runs/other"),
    ),
    model=ModelConfig(
        model="models/x",
        prompt="paper",
        history="window(2)",
        max_tokens=9,
        temperature=0.9,
        device="cpu",
        dtype="bfloat16",
        threads=2,
        max_batch=64,
    ),
    learn=LearnConfig(
        algorithm="grpo",
        lr=1e-4,
        critic_lr=1e-3,
        critic="head",
        critic_gradient=0.5,
        lora_rank=4,
        lora_alpha=8.0,
        lora_targets=("q_proj", "v_proj"),
        weight_decay=0.0,
        betas=(0.8, 0.99),
        estimator="tree_grpo",
        credit=("format_penalty(penalty=0.2)", "length_penalty()"),
        objective=Objective(clip_low=0.1, clip_high=0.3, entropy=0.01, aggregation="token"),
        value_clip=0.2,
        gamma=0.99,
        lam=0.95,
        grad_clip=0.5,
        epochs=2,
        minibatch=16,
        microbatch=4,
        old_logprobs="learner",
        layout="shared",
        logits="parts",
        recompute=True,
        skip_spikes=True,
        offload=True,
    ),
    run=RunConfig(
        out=Path("runs/x"),
        label="mine",
        updates=3,
        seed=9,
        eval_every=1,
        eval_instances=4,
        eval_temperature=0.0,
        checkpoint_every=2,
        keep_checkpoints=5,
        save_trees=0,
    ),
)


def test_every_setting_comes_back_from_json():
    for section, kind in SECTIONS.items():
        same = [name for name, value in vars_of(getattr(CHANGED, section)).items() if value == vars_of(kind())[name]]
        assert same == [], "the test should change every setting"
    assert TrainConfig.from_json(CHANGED.to_json()) == CHANGED
    assert TrainConfig.from_json(TrainConfig(env="sokoban").to_json()) == TrainConfig(env="sokoban")


def vars_of(section):
    return {name: getattr(section, name) for name in type(section).__dataclass_fields__}


def damaged(change):
    data = json.loads(CHANGED.to_json())
    change(data)
    return json.dumps(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "x.json: not the configuration of a run"),
        ("[1]", "x.json: not the configuration of a run"),
        ("{}", "x.json: not the configuration of a run"),
        (damaged(lambda data: data.pop("env")), "x.json: not the configuration of a run"),
        (damaged(lambda data: data.pop("learn")), "x.json: not the configuration of a run .*learn"),
        (damaged(lambda data: data["learn"].update(speed=3)), r"x.json: learn: unknown settings \['speed'\]; known:"),
        (damaged(lambda data: data.update(speed=3)), "x.json: not the configuration of a run .*speed"),
        (damaged(lambda data: data["learn"]["objective"].update(clip=1)), r"objective: unknown settings \['clip'\]"),
        (damaged(lambda data: data["learn"].update(lr="fast")), "x.json: not the configuration of a run"),
        (damaged(lambda data: data["search"].update(groups=0)), "wanted groups >= 1, got 0"),
        (damaged(lambda data: data["search"].update(noise="loud")), "wanted noise of"),
    ],
)
def test_json_that_is_no_configuration_says_where_and_why(text, message):
    with pytest.raises(ConfigError, match=message):
        TrainConfig.from_json(text, source="x.json")


def test_a_run_without_a_folder_is_named_after_what_it_does():
    config = TrainConfig(env="tsr/Sokoban-v0", search=SearchConfig(search="my.own:search"), run=RunConfig(seed=3))
    assert config.folder == Path("runs/tsr-Sokoban-v0-my.own-search-3")
    assert CHANGED.folder == Path("runs/x")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"search": "naive", "trajectories": 8}, "8 rollouts"),
        ({"search": "best_of_n", "trajectories": 8, "n": 12}, "best 8 of 12"),
        ({"search": "beam", "trajectories": 8}, "8 searches x 1"),
        ({"search": "lookahead", "trajectories": 8, "paths_per_search": 4}, "2 searches x 4"),
    ],
)
def test_results_say_how_the_trajectories_of_an_instance_came_to_be(settings, words):
    assert SearchConfig(**settings).per_instance == words


def test_the_papers_numbers_are_the_defaults():
    config = TrainConfig(env="sokoban")
    search, learn, run = config.search, config.learn, config.run
    assert (search.groups, search.trajectories, search.keep, search.n) == (8, 16, 0.25, 32)
    assert (search.branching, search.width, search.depth, search.noise) == (4, 2, 2, "fresh")
    objective = learn.objective
    assert (objective.clip_low, objective.clip_high, learn.gamma, learn.lam) == (0.2, 0.28, 1.0, 1.0)
    assert (objective.entropy, objective.aggregation, objective.kl_weight) == (0.001, "sequence", 0.0)
    assert (learn.betas, learn.minibatch) == ((0.9, 0.999), 32)
    assert (run.updates, run.eval_instances, config.task.penalty) == (200, 256, 0.1)


def test_the_configuration_needs_no_torch():
    code = "import sys; sys.modules['torch'] = None; import tsr_gym.agents.runs.config; print('there')"
    assert run_python(code).strip() == "there"


def test_a_changed_setting_is_checked_again():
    with pytest.raises(ConfigError, match="wanted updates >= 0"):
        replace(CHANGED, run=replace(CHANGED.run, updates=-3))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"repeats": 0}, "wanted repeats >= 1, got 0"),
        ({"risk": 1.5}, "wanted risk from 0 to 1 or None, got 1.5"),
        ({"repeats": 2, "noise": "same"}, "needs draws that differ"),
    ],
)
def test_impossible_repeats_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        TrainConfig(env="sokoban", search=SearchConfig(**settings))


def test_low_rank_matrices_are_those_of_the_settings_or_none():
    assert TrainConfig(env="sokoban").lora is None
    assert CHANGED.lora == LoraSettings(rank=4, alpha=8.0, targets=("q_proj", "v_proj"), seed=9)
    assert replace(CHANGED, learn=LearnConfig(lora_rank=2)).lora.targets == "all-linear"
