"""The pages of the environments are their docstrings as they are now."""

import pytest

from benchmarks.environment_pages import DOCS, PAGES, page_text
from tsr_gym.registration import ENTRY_POINTS

HEADINGS = ("Description", "Action Space", "Observation Space", "Starting State", "Rewards", "Episode End")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_docstring_says(name):
    text = (DOCS / "environments" / f"{name}.md").read_text(encoding="utf-8")
    assert text == page_text(name), "run python -m benchmarks.environment_pages"
    assert all(f"\n## {heading}\n" in text for heading in (*HEADINGS, "Arguments", "Version History"))
    # The signs of reStructuredText are gone, and a row of a table has as many cells as the row above.
    assert "``" not in text.replace("```", "")
    assert (DOCS / "images" / f"env_{name}.png").stat().st_size > 500


def test_every_environment_has_a_page():
    assert {page.env for page in PAGES.values()} == set(ENTRY_POINTS)
