"""The examples run: each as on its page, with small numbers where it trains."""

import pytest

from examples import desk, own_loop, own_parts, stairs, train_qwen
from tests.conftest import ROOT
from tsr_gym.agents import cli
from tsr_gym.testing import check_snapshot, check_text_env

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_an_example_is_short_and_says_how_it_is_run(file):
    text = file.read_text(encoding="utf-8")
    assert text.count("\n") < 60
    assert f"python -m examples.{file.stem}" in text


def test_every_example_has_a_page():
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "tutorials").glob("*.md"))
    assert [file.name for file in EXAMPLES if f"examples/{file.name}" not in pages] == []


def test_an_environment_of_ones_own_passes_both_checks():
    env = stairs.gym.make("my/Stairs-v0")
    check_text_env(env)
    check_snapshot(env, other_processes=False)


def test_a_world_of_tools_reads_the_calls_of_its_tools():
    env = desk.gym.make("my/Desk-v0").unwrapped
    env.reset(seed=1)
    wanted = env.state.wanted
    for number, queue in enumerate(wanted, start=1):
        *_, info = env.step(env.tool_action("move", {"ticket": number, "queue": queue}))
    assert info["success"]


def test_an_environment_of_ones_own_is_trained_on_by_the_command_line(tmp_path):
    model = train_qwen.save_small_qwen(tmp_path / "model")
    settings = train_qwen.SMALL | {"algorithm": "grpo", "filter": "none", "model": model, "updates": 1}
    flags = [word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    assert cli.main(["train", "examples.stairs:my/Stairs-v0", "--out", str(tmp_path / "run"), *flags]) == 0
    assert cli.main(["replay", str(tmp_path / "run"), "--env", "examples.stairs:my/Stairs-v0"]) == 0


def test_parts_of_ones_own_search_an_environment_of_others():
    assert own_parts.turns_played(search=True, most=40) == 40
    assert own_parts.turns_played(search=False, most=40) < 40


def test_a_training_loop_of_ones_own_learns():
    solved = own_loop.train(episodes=120)
    assert sum(solved[-30:]) > sum(solved[:30])
    # By hand: 1, then 0.9 * 2, then what follows both.
    assert own_loop.returns_of([1.0, 0.0, 2.0]).tolist() == pytest.approx([1 + 0.81 * 2, 0.9 * 2, 2.0])


def test_a_small_qwen_is_trained_with_search_and_its_trees_are_reproduced(tmp_path, capsys):
    run = train_qwen.train_small_qwen(tmp_path / "run", updates=1)
    assert (run.finished, len(run.updates), [record["step"] for record in run.evaluations]) == (True, 1, [0, 1])
    assert (run.model / "model.safetensors").is_file()
    assert cli.main(["replay", str(tmp_path / "run")]) == 0
    assert "bit for bit" in capsys.readouterr().out
