"""What a stranger brings is used from the command line, and the package is not edited for it."""

import json
import shutil
import sys
import tomllib
from pathlib import Path
from textwrap import dedent

import gymnasium as gym
import pytest

from tests.agents.short_runs import records, train_flags
from tsr_gym.agents import cli
from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.episodes.env_pool import task_settings
from tsr_gym.agents.models.settings import ModelCard, ModelConfig
from tsr_gym.wrappers import AnswerFormat, TreeSearchWrapper

MINE = '''
    from typing import NamedTuple

    import gymnasium as gym

    from tsr_gym import Limits, Step, TextEnv


    class Count(NamedTuple):
        number: int


    class Counting(TextEnv[Count]):
        """Count to a number that the instance names."""

        actions = ("One", "Two")
        instructions = "Count to the number with One and Two."
        draws_noise = False

        def __init__(self, most=3, render_mode=None):
            super().__init__(most, limits=Limits(max_turns=3, max_actions=3), render_mode=render_mode)
            self.most = most

        def initial(self, rng, options):
            return Count(int(rng.integers(1, self.most + 1)))

        def transition(self, state, action, rng):
            if action not in self.actions:
                return Step(state, 0.0, False, {"action_is_valid": False})
            left = state.number - 1 - self.actions.index(action)
            return Step(Count(left), float(left == 0), left <= 0, {})

        def observe(self, state):
            return f"left {state.number}"

        def state_key(self, state):
            return str(state.number).encode()

        def is_success(self, state):
            return state.number == 0


    class Told(Counting):
        """The same with an oracle."""

        def optimal_turn(self, state, turns_left, actions_left):
            return "One"


    gym.register("My/Counting-v0", entry_point=Counting)
    gym.register("My/Told-v0", entry_point=Told)
'''
PARTS = """
    from tsr_gym.agents.strategies import best_of_n
    from tsr_gym.agents.learning.advantages import grpo

    called = []


    def search(tree, n=2):
        called.append("search")
        return (yield from best_of_n(tree, n=n))


    def keep(groups, at_most=1):
        called.append("keep")
        return list(groups)[:at_most]


    def advantages(batch, scale=1.0):
        called.append("advantages")
        return scale * grpo(batch)
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A folder with modules of a stranger, on the path."""
    (tmp_path / "my_worlds.py").write_text(dedent(MINE))
    (tmp_path / "my_parts.py").write_text(dedent(PARTS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in ("my_worlds", "my_parts"):
        sys.modules.pop(name, None)
    for name in ("My/Counting-v0", "My/Told-v0"):
        gym.registry.pop(name, None)


def flags_for(env, out, model, **more):
    flags = train_flags(out, model, **{"--updates": 1, "--eval-every": 0, "--eval-instances": 2} | more)
    return [flags[0], env, *flags[2:]]


def test_an_environment_of_ones_own_trains_by_its_module_and_id(capsys, mine, chat_model):
    assert cli.main(flags_for("my_worlds:My/Counting-v0", "run", chat_model)) == 0, capsys.readouterr().err
    (record,) = records(mine / "run")
    assert record["trajectories"] == 6
    # The tree is of that environment: no presets, no splits.
    assert tomllib.loads((mine / "run" / "run.toml").read_text())["env"] == "my_worlds:My/Counting-v0"


def test_none_stands_for_no_preset_and_no_split(capsys, mine, chat_model):
    words = {"--preset": "none", "--train-split": "none", "--eval-split": "None"}
    assert cli.main(flags_for("my_worlds:My/Counting-v0", "run", chat_model, **words)) == 0, capsys.readouterr().err
    assert task_settings("sokoban", "none", "None") == {}
    assert task_settings("sokoban", "paper", "test") == {"preset": "paper", "split": "test"}


@pytest.mark.parametrize(
    ("env", "flags", "message"),
    [
        ("CartPole-v1", [], "wanted an environment of text (a tsr_gym.TextEnv), CartPole-v1 is a CartPoleEnv\n"),
        ("my_worlds:My/Counting-v0", ["--preset", "tsr-code"], "has no presets, got preset='tsr-code': leave it out\n"),
        ("my_worlds:My/Nothing-v0", [], "there is no environment 'my_worlds:My/Nothing-v0'"),
        ("no_worlds:My/Counting-v0", [], "(ModuleNotFoundError: No module named 'no_worlds')\n"),
        ("my_worlds:My/Counting-v0", ["--model", "default"], "has no oracle with these settings"),
    ],
)
def test_an_environment_that_cannot_be_trained_on_is_refused_in_one_sentence(capsys, mine, env, flags, message):
    assert cli.main(["train", env, "--out", "run", *flags]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1
    assert not (mine / "run").exists()


def test_an_environment_without_a_compact_form_gets_a_base_model_of_its_own_words(capsys, mine):
    tiny = "--steps 3 --instances 4 --episodes 1 --hidden 16 --layers 1 --batch 4 --validations 2 --poor-steps 0"
    assert cli.main(["base-model", "my_worlds:My/Told-v0", "--out", "model", *tiny.split(), "--band", "0", "1"]) == 0
    card = json.loads((mine / "model" / "tsr_gym.json").read_text())
    assert (card["env"], card["env_settings"]) == ("my_worlds:My/Told-v0", {})
    assert cli.main(flags_for("my_worlds:My/Told-v0", "run", "model")) == 0, capsys.readouterr().err


def test_strategy_filter_and_estimator_of_ones_own_make_a_run(capsys, mine, chat_model):
    parts = {
        "--search": "my_parts:search(n=3)",
        "--filter": "my_parts:keep(at_most=1)",
        "--estimator": "my_parts:advantages(scale=0.5)",
        "--algorithm": "grpo",
    }
    assert cli.main(flags_for("sokoban", "run", chat_model, **parts)) == 0, capsys.readouterr().err
    (record,) = records(mine / "run")
    assert (record["groups"], record["groups_kept"]) == (2, 1)
    assert set(sys.modules["my_parts"].called) == {"search", "keep", "advantages"}


def test_modules_in_the_folder_where_one_stands_are_found(mine, monkeypatch):
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in ("", str(mine))])
    assert cli.main(["base-model", "my_worlds:My/Counting-v0", "--out", "model"]) == 2
    assert "my_worlds" in sys.modules


@pytest.fixture
def their_tree(mine):
    """A tree of an environment of a stranger, saved; its module is then forgotten."""
    env = TreeSearchWrapper(AnswerFormat(gym.make("my_worlds:My/Counting-v0")))
    env.reset(seed=1)
    env.step("One")
    (mine / "run" / "trees").mkdir(parents=True)
    env.tree.save(mine / "run" / "trees" / "tree.jsonl")
    gym.registry.pop("My/Counting-v0")
    gym.registry.pop("My/Told-v0")
    sys.modules.pop("my_worlds")
    return mine / "run" / "trees" / "tree.jsonl"


def named_by(file, **about):
    """Write other facts about a tree into its file."""
    header, *lines = file.read_text().splitlines()
    header = json.loads(header)
    header["about"] |= about
    file.write_text("\n".join([json.dumps(header), *lines]))


QA, FOREIGN = "tsr/RetrievalQA-v0", "my_worlds:My/Counting-v0"
PROOF = {"entry_point": "tsr_gym.wrappers.dead_ends:DeadEnds", "kwargs": {"prove": "my_worlds:Count"}}
MADE = {"kwargs": {}, "max_episode_steps": None, "order_enforce": True, "disable_env_checker": None, "wrappers": []}


@pytest.mark.parametrize(
    "about",
    [
        {"env": FOREIGN},
        {"env": "tsr/FrozenLake-v0", "stack": {**MADE, "wrappers": [PROOF]}},
        {"env": QA, "stack": {**MADE, "kwargs": {"questions": "asked.jsonl", "retriever": "my_worlds:Count"}}},
    ],
    ids=["environment", "wrapper", "retriever"],
)
def test_looking_at_a_file_imports_nothing_that_the_file_names(capsys, their_tree, about):
    run = their_tree.parent.parent
    config = TrainConfig(env=FOREIGN, model=ModelConfig(engine="transformers"))
    text = config.to_toml().replace('engine = "transformers"', 'engine = "my_worlds:Count"')
    (run / "run.toml").write_text(text.replace('search = "naive"', 'search = "my_worlds:Count"'))
    (run / "metrics.jsonl").touch()
    Path("asked.jsonl").write_text('{"id": "1", "question": "Who?", "golden_answers": ["I"]}\n')
    named_by(their_tree, **about)
    cli.main(["view", str(run), "--export", "page.html"])
    cli.main(["report", str(run), "--out", "curves.png"])
    cli.main(["tree", str(run)])
    cli.main(["export", str(run), "--out", "chats.jsonl", "--kind", "chat(successes=False)"])
    capsys.readouterr()
    assert cli.main(["replay", str(their_tree)]) == 2
    assert "--env package.module:Id" in capsys.readouterr().err
    assert "my_worlds" not in sys.modules


def test_a_models_card_imports_nothing_unless_its_module_is_given(capsys, mine, chat_model):
    received = Path(shutil.copytree(chat_model, mine / "received"))
    ModelCard(env=FOREIGN).save(received)
    flags = ["eval", "received", "--instances", "2", "--split", "none", "--preset", "none"]
    assert cli.main(flags) == 2
    assert f"give --env {FOREIGN} if you trust that module" in capsys.readouterr().err
    assert "my_worlds" not in sys.modules
    assert cli.main([*flags, "--env", FOREIGN]) == 0, capsys.readouterr().err
    # It is registered now.
    assert cli.main(flags) == 0, capsys.readouterr().err


def test_a_run_that_names_modules_is_resumed_and_evaluated_when_they_are_trusted(capsys, mine, chat_model):
    parts = {"--filter": "my_parts:keep(at_most=1)"}
    assert cli.main(flags_for(FOREIGN, "run", chat_model, **parts)) == 0, capsys.readouterr().err
    assert TrainConfig.load(mine / "run").modules == ("my_parts", "my_worlds")
    commands = (["train", "--resume", "run", "--updates", "2"], ["eval", "run", "--instances", "2", "--split", "none"])
    for command in commands:
        for trusted, refused in (([], "my_"), (["my_parts"], "my_worlds"), (["my_parts", "my_worlds"], None)):
            for module in ("my_worlds", "my_parts"):
                sys.modules.pop(module, None)
            for name in ("My/Counting-v0", "My/Told-v0"):
                gym.registry.pop(name, None)
            status = cli.main([*command, *(["--trust", *trusted] if trusted else [])])
            shown = capsys.readouterr().err
            assert status == (0 if refused is None else 2), shown
            if refused:
                assert f"names the module '{refused}" in shown
                assert "add --trust with the name of that module" in shown
                assert not {"my_worlds", "my_parts"} - {*trusted} & {*sys.modules}


def test_a_tree_of_an_environment_of_ones_own_is_replayed_and_shown_by_a_flag(capsys, their_tree):
    assert cli.main(["view", str(their_tree), "--export", "page.html"]) == 0
    assert "--env package.module:Id" in Path("page.html").read_text()
    assert cli.main(["replay", str(their_tree)]) == 2
    assert "'My/Counting-v0' of the tree is not registered" in capsys.readouterr().err
    assert cli.main(["replay", str(their_tree), "--env", FOREIGN]) == 0
    assert "2 nodes, bit for bit" in capsys.readouterr().out
    assert cli.main(["view", str(their_tree), "--export", "page.html", "--env", FOREIGN]) == 0
    assert "--env package.module:Id" not in Path("page.html").read_text()
