"""TrainConfig: the settings that it refuses, and that it comes back from TOML as it was."""

from dataclasses import replace
from pathlib import Path

import pytest

from tsr_gym import ConfigError
from tsr_gym.agents.config import RunConfig, TrainConfig
from tsr_gym.agents.episodes.settings import SearchConfig, TaskConfig
from tsr_gym.agents.learning.settings import LearnConfig, Objective
from tsr_gym.agents.lessons.settings import LessonConfig
from tsr_gym.agents.models.settings import LoraSettings, ModelConfig

SECTIONS = {
    "task": TaskConfig,
    "search": SearchConfig,
    "lessons": LessonConfig,
    "model": ModelConfig,
    "learn": LearnConfig,
    "run": RunConfig,
}
NAN, INF = float("nan"), float("inf")

# Sections, names that follow one rule, and values outside of it.
OUT_OF_RANGE = [
    ("search", "groups trajectories paths_per_search repeats", (0, -1)),
    ("search", "naive", (-1,)),
    ("search", "risk", (1.5,)),
    ("search", "noise search_when learn_from", ("loud",)),
    ("lessons", "filter_when", ("during",)),
    ("task", "penalty", (-0.1, NAN)),
    ("model", "max_tokens threads max_batch", (0,)),
    ("model", "temperature", (0.0, NAN)),
    ("model", "prompt dtype", ("float8",)),
    ("learn", "epochs minibatch microbatch steps", (0,)),
    ("learn", "grad_clip value_clip", (0.0, -1.0, NAN, INF)),
    ("learn", "gamma lam lr_decay_from lr_floor critic_gradient", (-0.1, 1.1, NAN)),
    ("learn", "lr critic_lr weight_decay", (-0.1, NAN, INF)),
    ("learn", "algorithm layout critic logits old_logprobs", ("round",)),
    ("learn", "betas", ((0.9, 1.0), (-0.1, 0.9))),
    ("learn", "lora_rank", (-1,)),
    ("learn", "lora_alpha", (0.0,)),
    ("run", "update_tokens total_tokens eval_instances checkpoint_every keep_checkpoints", (0,)),
    ("run", "warm_start_steps warm_start_batch", (0,)),
    ("run", "updates eval_every save_trees eval_temperature parity_tolerance warm_start_lr prompt_price", (-1,)),
]
IMPOSSIBLE = [
    (section, name, value) for section, names, values in OUT_OF_RANGE for name in names.split() for value in values
]


@pytest.mark.parametrize(
    ("section", "name", "value"), IMPOSSIBLE, ids=[f"{name}={value}" for _, name, value in IMPOSSIBLE]
)
def test_an_impossible_setting_is_refused_by_its_name(section, name, value):
    with pytest.raises(ConfigError, match=rf"wanted {name}\b.*got"):
        TrainConfig(env="sokoban", **{section: SECTIONS[section](**{name: value})})


OVERLAP = {"overlap": True}


@pytest.mark.parametrize(
    ("sections", "fact"),
    [
        ({"search": {"search": "beam(2)"}}, "wanted the strategy as name"),
        ({"search": {"repeats": 2, "noise": "same"}}, "needs draws that differ"),
        ({"search": {"search_when": "failed"}}, "wanted naive >= 1, got 0"),
        ({"search": {"trajectories": 1}, "learn": {"algorithm": "grpo"}}, "grpo compares"),
        ({"lessons": {"filter": "top_p(.5)"}}, "wanted the filter as name"),
        ({"learn": {"objective": Objective(mismatch="truncate")}}, "wanted old_logprobs=learner, got sampler"),
        ({"learn": {"lora_engine": "adapter"}}, "lora_rank >= 1, got auto"),
        (
            {"model": {"history": "window"}},
            r"wanted a history of full, without_thoughts, markov or window\(k\), got 'window'",
        ),
        ({"run": {"update_tokens": 100, "update_trajectories": 8}}, "update_tokens and update_trajectories both"),
        ({"run": {"update_trajectories": 8}}, "searches for ever: wanted total_tokens"),
        ({"run": {"sampled_price": 0}}, "sampled_price=0 and prompt_price=0 count no tokens"),
        ({"run": OVERLAP | {"total_tokens": 100}}, "before total_tokens"),
        ({"run": OVERLAP | {"update_tokens": 100}}, "before update_tokens"),
        ({"run": OVERLAP, "search": {"start_states": 1}}, "before its start states are known"),
        ({"run": OVERLAP, "learn": {"old_logprobs": "learner"}}, "would not correct for them"),
    ],
    ids=str,
)
def test_settings_that_contradict_each_other_are_refused(sections, fact):
    with pytest.raises(ConfigError, match=fact):
        TrainConfig(env="sokoban", **{name: SECTIONS[name](**settings) for name, settings in sections.items()})


def test_the_extremes_that_make_sense_are_allowed():
    TrainConfig(
        env="sokoban",
        search=SearchConfig(trajectories=4, paths_per_search=4),
        learn=LearnConfig(
            objective=Objective(entropy=0.0, clip_low=1.0), gamma=0.0, lam=0.0, weight_decay=0.0, betas=(0.0, 0.0)
        ),
        run=RunConfig(updates=0, eval_every=0, eval_temperature=0.0, save_trees=0, sampled_price=0, prompt_price=1),
        task=TaskConfig(penalty=0.0, train_split=None, eval_split=None),
    )


# Every setting at a value that is not its default.
CHANGED = TrainConfig(
    env="tsr/FrozenLake-v0",
    task=TaskConfig(
        preset="tsr-code", env_set=("p=0.7", "size=5"), eval_env_set=("size=8",), score="FrozenLakeScore", penalty=0.2,
        train_split=None, eval_split="valid"
    ),
    search=SearchConfig(
        search="beam(width=3, branching=5)", groups=3, trajectories=6, paths_per_search=2, noise="common", repeats=3,
        risk=0.25, dead_ends="limits", rater="SelfConsistency()", search_when="cheaper",
        search_temperature=1.5, naive=2,
        start_states=1, start_states_from="tests.agents.episodes.test_start_states:Deepest(most=5)",
        learn_from="leaves", match_tokens=Path("runs/other")
    ),
    lessons=LessonConfig(
        filter="mixed_success(ratio=0.5)", filter_when="before", credit=("format_penalty(penalty=0.2)",
        "length_penalty(max_tokens=20, cache=5)")
    ),
    model=ModelConfig(
        model="models/x", engine="vllm-server", engine_url="http://127.0.0.1:8000", engine_gib=2.0, prompt="paper",
        tool_calls="llama", history="window(2)", max_tokens=9, temperature=0.9, device="cpu", dtype="bfloat16",
        threads=2, max_batch=64,
    ),
    learn=LearnConfig(
        algorithm="grpo", lr=1e-4, lr_decay_from=0.5, lr_floor=0.2, critic_lr=1e-3, critic="head", critic_gradient=0.5,
        lora_rank=4, lora_alpha=8.0, lora_targets=("q_proj", "v_proj"), weight_decay=0.0, betas=(0.8, 0.99),
        estimator="tree_grpo", objective=Objective(clip_low=0.1, clip_high=0.3, entropy=0.01, aggregation="token"),
        value_clip=0.2, gamma=0.99, lam=0.95, grad_clip=0.5, epochs=2, minibatch=16, steps=4, microbatch=4,
        microbatch_tokens=99, old_logprobs="learner", layout="shared", logits="parts", recompute=True, skip_spikes=True,
        offload=True
    ),
    run=RunConfig(
        out=Path("runs/x"), label="mine", total_tokens=5000, sampled_price=0.5, prompt_price=0.1, updates=3, seed=9,
        eval_every=1, eval_instances=4, eval_temperature=0.0, checkpoint_every=2, keep_checkpoints=5, save_trees=0,
        warm_start=Path("episodes.jsonl"), warm_start_steps=7, warm_start_lr=1e-3, warm_start_batch=4,
        parity_tolerance=0.5
    ),
)  # fmt: skip


def test_every_setting_comes_back_from_toml():
    for section, kind in SECTIONS.items():
        same = [name for name, value in vars_of(getattr(CHANGED, section)).items() if value == vars_of(kind())[name]]
        # The rules of when an update has enough exclude one another, and match_tokens is set.
        assert {*same} <= {"update_tokens", "update_trajectories", "overlap", "lora_engine"}, (
            "the test should change every setting"
        )
    # The folder is the place of a run, and not one of its settings.
    again = TrainConfig.from_toml(CHANGED.to_toml())
    assert replace(again, run=replace(again.run, out=CHANGED.run.out)) == CHANGED
    assert TrainConfig.from_toml(TrainConfig(env="sokoban").to_toml()) == TrainConfig(env="sokoban")


def vars_of(section):
    return {name: getattr(section, name) for name in type(section).__dataclass_fields__}


TOML = CHANGED.to_toml()


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("{", ["x.json: wanted TOML"]),
        ("", ["x.json", "env", "none"]),
        (TOML.replace('env = "tsr/FrozenLake-v0"', ""), ["x.json", "env", "none"]),
        (TOML.replace("[learn]", "[learn]\nspeed = 3"), ["x.json", "setting in learn 'speed'"]),
        (f"speed = 3\n{TOML}", ["x.json", "'speed'"]),
        (TOML.replace("[learn.objective]", "[learn.objective]\nclip = 1"), ["setting in learn.objective 'clip'"]),
        (f"{TOML}\n[task]\nlr = 1.0", ["x.json"]),
        ('env = "sokoban"\n[task]\nlr = 1.0', ["setting in task 'lr'", "it belongs in [learn]"]),
        ('env = "sokoban"\n[learn]\nlr = "fast"', ["x.json: wanted lr as a number, got 'fast'"]),
        ('env = "sokoban"\n[search]\ngroups = 0', ["wanted groups as a whole number >= 1, got 0"]),
        ('env = "sokoban"\n[search]\nnoise = "loud"', ["wanted noise of"]),
        ('env = "sokoban"\n[search]\nsearch = "baem"', ["did you mean beam"]),
    ],
)
def test_toml_that_is_no_configuration_is_refused_with_place_and_reason(text, facts):
    with pytest.raises(ConfigError) as refused:
        TrainConfig.from_toml(text, source="x.json")
    assert [fact for fact in facts if fact not in str(refused.value)] == []


def test_a_configuration_that_is_only_shown_imports_nothing():
    text = 'env = "sokoban"\n[search]\nsearch = "no_such_module:search(n=1)"\n'
    text += '[lessons]\ncredit = ["no_such_module:rule"]'
    config = TrainConfig.from_toml(text, bound=False)
    assert (config.search.search, config.search.name, config.lessons.credit) == (
        "no_such_module:search(n=1)",
        "no_such_module:search",
        ("no_such_module:rule",),
    )
    with pytest.raises(ConfigError, match="shown only"):
        config.search.search.bound(None)
    with pytest.raises(ConfigError, match="no_such_module"):
        TrainConfig.from_toml(text)


def search(tree):
    """A strategy that grows nothing."""
    yield []


def test_a_run_without_a_folder_is_named_after_what_it_does():
    config = TrainConfig(
        env="tsr/Sokoban-v0",
        search=SearchConfig(search="tests.agents.config.test_train_config:search"),
        run=RunConfig(seed=3),
    )
    assert config.folder == Path(f"runs/tsr-Sokoban-v0-{__name__}-search-3")
    assert CHANGED.folder == Path("runs/x")


def test_the_papers_numbers_are_the_defaults():
    config = TrainConfig(env="sokoban")
    search, learn, run = config.search, config.learn, config.run
    assert (search.groups, search.trajectories, search.paths_per_search, search.noise) == (8, 16, 1, "fresh")
    objective = learn.objective
    assert (objective.clip_low, objective.clip_high, learn.gamma, learn.lam) == (0.2, 0.28, 1.0, 1.0)
    assert (objective.entropy, objective.aggregation, objective.kl_weight) == (0.001, "sequence", 0.0)
    assert (learn.betas, learn.minibatch) == ((0.9, 0.999), 32)
    assert (run.updates, run.eval_instances, config.task.penalty) == (200, 256, 0.1)


def test_low_rank_matrices_are_those_of_the_settings_or_none():
    assert TrainConfig(env="sokoban").lora is None
    assert CHANGED.lora == LoraSettings(rank=4, alpha=8.0, targets=("q_proj", "v_proj"), seed=9)
    assert replace(CHANGED, learn=LearnConfig(lora_rank=2)).lora.targets == "all-linear"
