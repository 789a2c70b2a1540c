"""The speeds on the viewer's page are those of the result file."""

import json

from tests.conftest import ROOT


def test_the_page_quotes_the_medians_and_pages_are_painted_within_a_second():
    page = " ".join((ROOT / "docs" / "view.md").read_text(encoding="utf-8").split())
    found = json.loads((ROOT / "benchmarks" / "results" / "view_speed.json").read_text(encoding="utf-8"))
    pages = found["pages"]
    large = pages["tree of 2,000 nodes"]
    assert f"painted the page {large['painted']['median']} ms after the visit began" in page
    assert f"drawn the visible part of the tree after {large['drawn']['median']} ms" in page
    assert all(times["painted"]["max"] <= 1000 for times in pages.values())
    for name, times in found["scrolled"].items():
        assert f"| {name} | {times['median']:g} | {times['p95']:g} | {times['max']:g} |" in page
        # Half of the frames come as fast as a screen shows them.
        assert times["median"] < 17
