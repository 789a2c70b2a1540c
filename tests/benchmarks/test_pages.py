"""The path of a new user is read from the pages, whole and in their order."""

from benchmarks.new_user import JOURNEYS, ROOT, Step, begin, steps_of, timed


def test_a_page_is_its_commands_in_order_and_its_python_in_one_piece():
    steps = list(steps_of("docs/index.md"))
    assert [step.kind for step in steps].count("python") == 1
    commands = [step.text for step in steps if step.kind == "console"]
    assert commands[0] == "pip install '.[cli]'"
    assert commands[3] == "tsr doctor"
    assert [one.split()[1] for one in commands if one.startswith("tsr ")][-4:] == ["train", "train", "report", "view"]


def test_every_path_has_steps():
    assert all(list(steps_of(page)) for page in JOURNEYS.values())


def test_steps_run_in_a_clone_of_this_repository(tmp_path):
    done = begin(tmp_path / "clone", None)
    assert [one["step"] for one in done] == ["git clone", "python -m venv .venv"]
    assert (tmp_path / "clone" / "docs" / "index.md").exists()
    where = timed(
        Step("page.md", "python", "import sys; assert sys.prefix.endswith('clone/.venv')"), tmp_path / "clone"
    )
    assert (where["page"], where["status"]) == ("page.md", 0)
    assert tmp_path != ROOT
