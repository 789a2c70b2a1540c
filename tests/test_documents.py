"""The documents: their Python runs, their commands parse, what they name exists, and the entrance stays short."""

import json
import re
import shlex
from configparser import ConfigParser
from doctest import DocTestParser, DocTestRunner
from itertools import chain
from pathlib import Path
from pkgutil import resolve_name
from textwrap import dedent
from typing import Any, NamedTuple

import pytest
import tyro

from tests.conftest import ROOT
from tsr_gym.agents import cli
from tsr_gym.agents.cli import train as train_command
from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.runs import check

PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "PYPI.md")]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
MOST_LINES = {"README.md": 140, "ARCHITECTURE.md": 100, "CHANGELOG.md": 60}
RESULTS = sorted((ROOT / "benchmarks" / "results").rglob("*.json"))
# Only Python is run; the others are commands, other files, and what programs print.
LANGUAGES = {"python", "console", "ini", "text"}

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>.*)\n(?P<text>(?:.*\n)*?)(?P=indent)```$", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?://)([^)#\s]*)#?([^)\s]*)\)")


class Block(NamedTuple):
    """A fenced block of a page; `line` is the number of lines before its text."""

    language: str
    text: str
    line: int


class Parsed(Exception):
    """The arguments of a command were understood; nothing else of it is wanted here."""


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(found["language"], dedent(found["text"]), text.count("\n", 0, found.start("text")))
        for found in FENCE.finditer(text)
    ]


def prose(page: Path) -> str:
    """Return a page without its blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def spans(page: Path) -> list[str]:
    """Return the texts between backticks in a page's prose."""
    return re.findall(r"`([^`\n]+)`", prose(page))


def commands(page: Path) -> list[str]:
    """Return the command lines of a page, continued lines joined and comments left out."""
    text = "\n".join(block.text for block in blocks(page) if block.language == "console").replace("\\\n", " ")
    return [shlex.join(words) for line in text.splitlines() if (words := shlex.split(line, comments=True))]


def tsr_arguments(command: str) -> list[str] | None:
    """Return the arguments that a command line gives to `tsr`; None for other programs."""
    words = shlex.split(command)
    for name in ("tsr", "tsr_gym"):
        if name in words:
            return words[words.index(name) + 1 :]
    return None


TSR = [(page.name, given) for page in PAGES for line in commands(page) if (given := tsr_arguments(line))]
# Runs that begin without the folder of an earlier one.
RUNS = [(page, given) for page, given in TSR if given[0] == "train" and not {"--resume", "--config"} & {*given}]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A folder for what is built at its first use, for all pages."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_python_of_a_page_runs_from_top_to_bottom(page, cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TSR_GYM_CACHE", str(cache))
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language != "python":
            continue
        if block.text.startswith(">>>"):
            say_what_they_print(block, names, page)
        else:
            # The blank lines in front make a traceback show the line of the page.
            exec(compile("\n" * block.line + block.text, str(page), "exec"), names)


def say_what_they_print(block: Block, names: dict[str, Any], page: Path) -> None:
    example = DocTestParser().get_doctest(block.text, {}, page.name, str(page), block.line)
    example.globs = names
    shown: list[str] = []
    done = DocTestRunner().run(example, out=shown.append, clear_globs=False)
    assert done.failed == 0, "".join(shown)


def test_a_failing_block_and_a_wrong_output_are_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "Text.\n\n```python\n>>> 1 + 1\n3\n\n```\n\n1. A list.\n\n   ```python\n   if True:\n       x = 1\n   ```\n"
    )
    wrong, nested = blocks(page)
    with pytest.raises(AssertionError, match=r"Expected:\s+3\s+Got:\s+2"):
        say_what_they_print(wrong, {}, page)
    assert nested == Block("python", "if True:\n    x = 1\n", 11)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_says_what_it_is(page):
    assert prose(page).count("```") == 0, "a fence without an end"
    assert {block.language for block in blocks(page)} <= LANGUAGES


@pytest.mark.parametrize(("page", "given"), TSR, ids=[f"{page}: {' '.join(given)}" for page, given in TSR])
def test_a_command_of_a_page_is_understood(page, given, monkeypatch):
    parse = tyro.cli

    def only_parse(*args: Any, **kwargs: Any) -> Any:
        raise Parsed(parse(*args, **kwargs))

    monkeypatch.setattr(tyro, "cli", only_parse)
    with pytest.raises(Parsed):
        cli.main(given)


@pytest.mark.parametrize(("page", "given"), RUNS, ids=[f"{page}: {' '.join(given)}" for page, given in RUNS])
def test_a_run_of_a_page_could_begin(page, given, cache, tmp_path, monkeypatch, capsys):
    check_start = train_command.check_start

    def only_check(config: TrainConfig) -> None:
        check_start(config)
        raise Parsed(config)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TSR_GYM_CACHE", str(cache))
    monkeypatch.setattr(train_command, "check_start", only_check)
    if "--model" in given:
        # The model of the page is not here, and its card is not needed.
        at = given.index("--model")
        given = given[:at] + given[at + 2 :]
    if given[1] in ("webshop", "retrieval_qa"):
        # Their worlds are built in a minute, and other tests make them.
        monkeypatch.setattr(check, "task_pool", lambda *of, **how: None)
    if "--match-tokens" in given:
        # The command above made the other run.
        monkeypatch.setattr(check, "token_targets", lambda of: None)
    with pytest.raises(Parsed):
        assert cli.main(given) == 0, capsys.readouterr().err


def test_pages_show_every_command():
    assert {given[0] for _, given in TSR} == set(cli.COMMANDS)


def test_the_settings_that_the_prose_names_exist(capsys):
    for given in (*cli.COMMANDS, "webshop generate", "webshop serve", "retrieval index", "retrieval serve"):
        with pytest.raises(SystemExit):
            cli.main([*given.split(), "--help-all" if given == "train" else "--help"])
    plugin = (ROOT / "tsr_gym" / "testing" / "pytest_plugin.py").read_text(encoding="utf-8")
    known = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out + plugin))
    named = {flag for page in PAGES for span in spans(page) for flag in re.findall(r"(?<!\S)--[a-z][a-z-]+", span)}
    # The long help does not name itself, and it does not list the settings of a resumed run.
    assert named <= known | {"--resume", "--help-all"}


def test_the_modules_and_names_that_the_prose_gives_exist():
    dotted = r"tsr_gym(?:_envs)?(?:\.(?!json\b)\w+)+(?::\w+)?"
    for page in PAGES:
        for name in {span for span in spans(page) if re.fullmatch(dotted, span)}:
            resolve_name(name)


def test_the_files_that_the_prose_names_exist():
    places = r"(?:agents|benchmarks|docs|examples|tests|tsr_gym|tsr_gym_envs|wrappers)/[\w/.]*"
    named = [span for page in PAGES for span in spans(page) if re.fullmatch(places, span)]
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_link_leads_to_a_file_and_a_heading():
    for page in PAGES:
        for path, heading in LINK.findall(prose(page)):
            target = page.parent / path if path else page
            assert target.exists(), f"{page.name}: {path}"
            assert not heading or heading in headings(target), f"{page.name}: {path}#{heading}"


def headings(page: Path) -> set[str]:
    """Return the names under which GitHub links to the headings of a page."""
    found = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def test_the_make_targets_and_extras_that_pages_name_exist():
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    written = list(chain.from_iterable([*commands(page), *spans(page)] for page in PAGES))
    assert {found for text in written for found in re.findall(r"^make ([a-z0-9-]+)", text)} <= targets
    extras = {
        name for text in written for found in re.findall(r"pip install .*\[(.+)\]", text) for name in found.split(",")
    }
    # The page of errors writes a message with dots in place of the extra.
    assert {"agents", "envs"} <= extras - {"..."} <= set(setup["options.extras_require"])


@pytest.mark.parametrize("name", MOST_LINES)
def test_the_entrance_stays_short(name):
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= MOST_LINES[name]


def test_the_map_has_a_line_for_every_folder_of_the_package():
    shown = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rooms = [folder for room in ("tsr_gym", "tsr_gym_envs", "wrappers", "agents") for folder in (ROOT / room).iterdir()]
    folders = {folder.name for folder in rooms if folder.is_dir() and not folder.is_symlink()} - {"__pycache__"}
    assert {name for name in folders if f"`{name}/`" not in shown} == set()


def test_every_measurement_stands_with_its_date_where_it_is_said_what_was_run():
    page = (ROOT / "docs" / "what_was_run.md").read_text(encoding="utf-8")
    for path in RESULTS:
        date = json.loads(path.read_text(encoding="utf-8"))["date"][:10]
        assert re.search(rf"^\| {date} \|.*\({re.escape(f'../{path.relative_to(ROOT)}')}\)", page, re.MULTILINE), (
            path.name
        )


def test_what_the_campaigns_counted_is_what_the_page_shows():
    page = (ROOT / "docs" / "what_was_run.md").read_text(encoding="utf-8")
    found = json.loads((ROOT / "docs" / "abuse.json").read_text(encoding="utf-8"))
    assert re.search(rf"^\| {found['date']} \|.*\(abuse\.json\)", page, re.MULTILINE)
    for name, counts in found["counts"].items():
        assert f"| {' | '.join([name, *map(str, counts.values())])} |" in page, name
        assert (counts["wrong"], counts["crashed"]) == (0, 0), name


def test_every_fixed_attack_exists_and_its_file_is_on_the_page():
    page = (ROOT / "docs" / "what_was_run.md").read_text(encoding="utf-8")
    for line in (ROOT / "tests" / "abuse" / "fixed.txt").read_text(encoding="utf-8").splitlines():
        path, _, name = line.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), line
        assert f"`{path}`" in page
