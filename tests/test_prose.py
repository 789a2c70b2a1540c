"""The words of docstrings, comments and pages: plain technical English, counted against a list that only shrinks."""

import ast
import re
import tokenize
from io import StringIO

import pytest

from tests.conftest import ROOT
from tests.test_house import TREES

# Words and turns of a private dialect. A sentence with one of them usually hides its subject or its verb.
DIALECT = re.compile(
    r"\b(nobody|somebody|whoever|whatever|anybody|said|says|say|told|tells|tell|h(?:old|olds|eld) against|by lot"
    r"|in vain|there is none|of its own|of their own|of yours|bears?|goes on|go on|alike|besides?|return what"
    r"|comes? to be|brings? with)\b",
    re.IGNORECASE,
)
MOST_PER_1000 = 1.0
FOLDERS = ("tsr_gym", "tsr_gym_envs", "wrappers", "agents", "benchmarks", "examples", "tests", "docs")
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "PYPI.md")
# Local names that state nothing about the value.
EMPTY_NAMES = {"found", "one", "kind", "chosen", "known", "said", "told"}
# Functions that still use one of them: public settings whose names stand in the commands of result files and pages,
# as in RetrievalQAScore(kind='novelty') and `tsr export --kind`. The limits are ratchets: they go down, and rise
# by a new world alone.
MOST_EMPTY_NAMES = 3
MOST_FILES, MOST_LINES = 697, 144_400


def prose_of(path):
    """Return the docstrings and comments of a Python file, or the text of a page without its blocks of code."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return re.sub(r"```.*?```", " ", source, flags=re.DOTALL)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [ast.get_docstring(node) or "" for node in ast.walk(tree_of(path)) if isinstance(node, documented)]
    tokens = tokenize.generate_tokens(StringIO(source).readline)
    return " ".join([*texts, *(token.string for token in tokens if token.type == tokenize.COMMENT)])


def tree_of(path):
    """Return the syntax of a file; that of a room of the package was read by the tests of the house."""
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
    return TREES[name] if name in TREES else ast.parse(path.read_text(encoding="utf-8"))


def files_below(folder):
    paths = (path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".md"))
    return [path for path in paths if "__pycache__" not in path.parts]


def share(paths):
    """Return the words of the dialect per 1,000 words, and the words."""
    text = " ".join(map(prose_of, paths))
    words = DIALECT.findall(text)
    return 1000 * len(words) / max(len(text.split()), 1), words


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_prose_of_a_folder_is_plain(folder):
    per_1000, words = share(files_below(folder))
    assert per_1000 <= MOST_PER_1000, sorted({*map(str.lower, words)})


@pytest.mark.parametrize("page", PAGES)
def test_the_prose_of_a_page_is_plain(page):
    per_1000, words = share([ROOT / page])
    assert per_1000 <= MOST_PER_1000, words


def test_the_count_notices_the_dialect(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("Nobody is told what it bears.\n\n```text\nwhoever\n```\n")
    assert share([page]) == (1000 * 3 / 6, ["Nobody", "told", "bears"])
    module = tmp_path / "module.py"
    module.write_text('"""Return what is said."""\n\nwhoever = 1  # Beside it.\n')
    assert share([module])[1] == ["Return what", "said", "Beside"]


def empty_names(path):
    """Return the functions of a file that use a local name which states nothing about its value."""
    named = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = {
                part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
            }
            names |= {argument.arg for argument in [*node.args.args, *node.args.kwonlyargs]}
            if names & EMPTY_NAMES:
                named.append(f"{path.relative_to(ROOT)}:{node.lineno}: {node.name} {sorted(names & EMPTY_NAMES)}")
    return named


def test_local_names_state_what_they_hold():
    folders = ("tsr_gym", "tsr_gym_envs", "wrappers", "agents", "benchmarks")
    named = [
        line for folder in folders for path in files_below(folder) if path.suffix == ".py" for line in empty_names(path)
    ]
    assert len(named) <= MOST_EMPTY_NAMES, "\n".join(named)


def test_the_repository_stays_small():
    files = [path for folder in FOLDERS for path in files_below(folder) if path.suffix == ".py"] + [ROOT / "setup.py"]
    assert len(files) <= MOST_FILES
    assert sum(path.read_text(encoding="utf-8").count("\n") for path in files) <= MOST_LINES
