"""The page about scores: its examples say what they print."""

import doctest

from tests.conftest import ROOT


def test_the_examples_of_the_page_run():
    done = doctest.testfile(str(ROOT / "docs" / "scores.md"), module_relative=False)
    assert done.attempted > 40
    assert done.failed == 0
