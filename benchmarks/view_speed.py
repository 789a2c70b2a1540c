"""How fast the viewer's pages appear: a run of 3,000 trees, and a tree of 2,000 nodes, in a headless Chromium.

Each page is loaded by a browser that has loaded nothing before, from a server that has read nothing before. ``painted``
is the browser's first contentful paint, ``drawn`` the end of the page's own drawing: curves, or the visible part of the
tree with the chosen node. Milliseconds from the start of the visit.
Run: python -m benchmarks.view_speed   (needs Chromium and its driver, and selenium)
"""

import json
import shutil
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium as gym
from selenium import webdriver
from selenium.webdriver.support.wait import WebDriverWait

from benchmarks.measure import write_result
from tsr_gym.agents.policies.random_policy import RandomPolicy
from tsr_gym.agents.reports.view.server import viewing
from tsr_gym.agents.reports.view.site import Site
from tsr_gym.agents.runs.config import TrainConfig
from tsr_gym.tree import Expand, Tree
from tsr_gym.wrappers import AnswerFormat, TreeSearchWrapper

NUM_TREES, SMALL, LARGE, NUM_UPDATES, REPEATS = 3000, 30, 2000, 200, 5
DRAWN = "return (performance.getEntriesByName('drawn')[0] || {}).startTime"
PAINTED = "return performance.getEntriesByName('first-contentful-paint')[0].startTime"


def grown_tree(size: int) -> Tree:
    """Return a tree of Sokoban with so many nodes, four turns at random below each in the order in which they grew."""
    env = TreeSearchWrapper(AnswerFormat(gym.make("tsr/Sokoban-v0", max_turns=40, max_actions=40)))
    env.reset(seed=1)
    player, node = RandomPolicy(("Up", "Down", "Left", "Right")), 0
    while len(env.tree.nodes) < size:
        if env.tree.nodes[node].is_open:
            (candidates,) = player([(env.tree, Expand(node, min(4, size - len(env.tree.nodes))))])
            env.expand(node, candidates)
        node += 1
    return env.tree


def write_run(folder: Path) -> None:
    """Write a run of many updates with many small trees and, as the last one, a large tree."""
    trees = folder / "trees" / "000200"
    trees.mkdir(parents=True)
    (folder / "config.json").write_text(TrainConfig(env="sokoban").to_json())
    numbers = ("success", "reward_mean", "entropy", "grad_norm", "response_length", "turns", "valid")
    lines = [
        json.dumps(
            {"step": step, "sampled_tokens_total": 900 * step, "sampled_tokens": 900, "groups": 8}
            | {"groups_kept": 5, "dropped": {"group_all_failed": 3}}
            | dict.fromkeys(numbers, step % 9 / 9)
        )
        for step in range(1, NUM_UPDATES + 1)
    ]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    grown_tree(SMALL).save(trees / "0000.jsonl")
    for number in range(1, NUM_TREES - 1):
        shutil.copy(trees / "0000.jsonl", trees / f"{number:04d}.jsonl")
    grown_tree(LARGE).save(trees / "large.jsonl")


def visited(folder: Path, page: str) -> dict[str, float]:
    """Return when a page was painted and drawn, in a new browser, from a new server."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for argument in ("--headless=new", "--disable-gpu", "--no-sandbox", "--window-size=1280,800"):
        options.add_argument(argument)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        with viewing(Site([folder])) as address:
            browser.get(address + page)
            wait: Any = WebDriverWait(browser, 60)
            drawn = wait.until(lambda _: browser.execute_script(DRAWN))
            painted = wait.until(lambda _: browser.execute_script(PAINTED))
    finally:
        browser.quit()
    return {"painted": painted, "drawn": drawn}


def main() -> None:
    """Measure both pages and write the result."""
    found = {}
    with TemporaryDirectory() as scratch:
        folder = Path(scratch) / "run"
        write_run(folder)
        pages = {
            "run page": "#/runs",
            "tree of 2,000 nodes": "#/tree/run/000200/large/1000",
            "small tree": "#/tree/run/000200/0000/9",
        }
        for name, page in pages.items():
            times = [visited(folder, page) for _ in range(REPEATS)]
            found[name] = {
                kind: {
                    "median": round(median(one[kind] for one in times)),
                    "max": round(max(one[kind] for one in times)),
                }
                for kind in ("painted", "drawn")
            }
    about = {"trees": NUM_TREES, "updates": NUM_UPDATES, "repeats": REPEATS, "aim": "painted within 1000 ms"}
    write_result("view_speed", {"what": "milliseconds from the visit, other work beside it", **about, "pages": found})


if __name__ == "__main__":
    main()
