"""The site of the documents: its menu has every page, and links that leave the pages become names of files."""

import re
from configparser import ConfigParser
from importlib.util import module_from_spec, spec_from_file_location
from types import SimpleNamespace

import pytest

from tests.conftest import ROOT
from tsr_gym.version import __version__

PATH = ROOT / "docs" / "_hooks" / "links.py"


@pytest.fixture(scope="module")
def hook():
    spec = spec_from_file_location("links", PATH)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_page_stands_in_the_menu_once():
    menu = re.findall(r": ([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(menu) == sorted(pages)


@pytest.mark.parametrize(
    ("page", "text", "wanted"),
    [
        ("cli.md", "[a](training.md#b)", "[a](training.md#b)"),
        ("cli.md", "[the map](../ARCHITECTURE.md#map)", "the map (`ARCHITECTURE.md`)"),
        ("cli.md", "[x.json](../benchmarks/results/x.json)", "x.json"),
        ("tutorials/own_loop.md", "[a](../training.md) [b](../../README.md)", "[a](../training.md) b (`README.md`)"),
    ],
)
def test_a_link_that_leaves_the_pages_is_the_name_of_a_file(hook, page, text, wanted):
    shown = hook.on_page_markdown(text, SimpleNamespace(file=SimpleNamespace(src_uri=page)), None, None)
    assert shown == wanted


def test_the_page_for_the_package_index_needs_no_repository():
    page = (ROOT / "PYPI.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((?!https://)[^)]*\)|!\[", page) == []


def test_every_python_of_the_classifiers_was_run_and_so_was_the_system():
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    named = re.findall(r":: (3\.\d+)$", setup["metadata"]["classifiers"], re.MULTILINE)
    was_run = (ROOT / "docs" / "what_was_run.md").read_text(encoding="utf-8")
    assert named
    assert [
        version for version in named if not re.search(rf"`make test-py`.*Python {re.escape(version)}\b", was_run)
    ] == []
    assert [system for system in ("Windows", "MacOS") if system in setup["metadata"]["classifiers"]] == []


def test_the_citation_names_the_version():
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
