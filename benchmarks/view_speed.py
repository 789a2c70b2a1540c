"""How fast the viewer's pages appear: a run of 3,000 trees, and a tree of 2,000 nodes, in a headless Chromium.

Each page is loaded by a browser that has loaded nothing before, from a server that has read nothing before. ``painted``
is the browser's first contentful paint, ``drawn`` the end of the page's own drawing: curves, or the visible part of the
tree with the chosen node. Milliseconds from the start of the visit. ``scrolled``: milliseconds from one frame to the
next while a tree is panned, or the list of trees is scrolled, by 40 pixels a frame; a screen shows one every 16.7.
Run: python -m benchmarks.view_speed (needs Chromium, its driver and selenium); with RUN ... --page NAME=ADDRESS ... it
takes pictures of pages of those runs instead.
"""

import json
import shutil
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium as gym
from selenium import webdriver
from selenium.webdriver.support.wait import WebDriverWait

from benchmarks.measure import run_timed, write_result
from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.policies.random_policy import RandomPolicy
from tsr_gym.agents.reports.view.server import viewing
from tsr_gym.agents.reports.view.site import Site
from tsr_gym.tree import Expand, Tree
from tsr_gym.wrappers import AnswerFormat, TreeSearchWrapper

SIZE = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
READY = """return document.body.dataset.ready === location.hash
    && [...document.querySelectorAll('.face')].every(face => face.firstChild)
    && !document.querySelector('.dot.unread')
    && [...document.images].every(image => image.complete)"""


@contextmanager
def chrome(argument: str) -> Iterator[webdriver.Chrome]:
    """Give a headless browser that is started with one more argument."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for name in ("--headless=new", "--disable-gpu", "--no-sandbox", argument):
        options.add_argument(name)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        yield browser
    finally:
        browser.quit()


def take(address: str, pages: dict[str, str], out: Path) -> None:
    """Write a PNG of each page, by its name, into a folder."""
    with chrome("--hide-scrollbars") as browser:
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", SIZE)
        for name, page in pages.items():
            browser.get("about:blank")
            browser.get(address + page)
            WebDriverWait(browser, 60).until(lambda _: browser.execute_script(READY))
            browser.save_screenshot(str(out / f"{name}.png"))


def take_pictures() -> None:
    """Take the pictures that are asked for."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument(
        "--page", nargs="+", required=True, help="such as view_tree=/tree/beam/000040/00-01/14?tokens=logprob"
    )
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    args = parser.parse_args()
    with viewing(Site(args.runs)) as address:
        pages = dict(page.split("=", 1) for page in args.page)
        take(address, {name: f"#{page}" for name, page in pages.items()}, args.out)


NUM_TREES, SMALL, LARGE, NUM_UPDATES, REPEATS = 3000, 30, 2000, 200, 5
DRAWN = "return (performance.getEntriesByName('drawn')[0] || {}).startTime"
PAINTED = "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
FRAMES = 240
# Scroll a box there and back, so that its end is never reached, and give the time between frames.
SCROLL = """
const [selector, right, down, frames, done] = arguments;
const box = document.querySelector(selector), times = [];
let last = null, number = 0;
function frame(now) {
  if (last !== null) times.push(now - last);
  last = now;
  const sign = number++ < frames / 2 ? 1 : -1;
  box.scrollBy({left: sign * right, top: sign * down, behavior: "instant"});
  if (number < frames) requestAnimationFrame(frame); else done(times);
}
requestAnimationFrame(frame);
"""
# What is scrolled: the page, what scrolls in it, and pixels to the right and down.
SCROLLED = {
    "tree of 2,000 nodes, as lines": ("#/tree/run/000200/large/1000", ".canvas", 12, 40),
    "tree of 2,000 nodes, as pictures": ("#/tree/run/000200/large/0?draw=cards", ".canvas", 40, 8),
    "list of 3,000 trees": ("#/tree/run/000200/0000/0", ".scroll", 0, 40),
}


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
    (folder / "run.toml").write_text(TrainConfig(env="sokoban").to_toml())
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


@contextmanager
def opened(folder: Path, page: str) -> Iterator[webdriver.Chrome]:
    """Give a new browser that has drawn a page of a new server."""
    with chrome("--window-size=1280,800") as browser, viewing(Site([folder])) as address:
        browser.get(address + page)
        wait: Any = WebDriverWait(browser, 60)
        wait.until(lambda _: browser.execute_script(DRAWN))
        yield browser


def visited(folder: Path, page: str) -> dict[str, float]:
    """Return when a page was painted and drawn, in a new browser, from a new server."""
    with opened(folder, page) as browser:
        painted = WebDriverWait(browser, 60).until(lambda _: browser.execute_script(PAINTED))
        return {"painted": painted, "drawn": browser.execute_script(DRAWN)}


def scrolled(folder: Path, page: str, selector: str, right: int, down: int) -> dict[str, float]:
    """Return the times between frames while a box of a page is scrolled."""
    with opened(folder, page) as browser:
        browser.set_script_timeout(120)
        times = browser.execute_async_script(SCROLL, selector, right, down, FRAMES)
    ranked = sorted(times)
    return {
        "median": round(median(times), 1),
        "p95": round(ranked[int(0.95 * len(ranked))], 1),
        "max": round(ranked[-1], 1),
        "share above 50": round(sum(milliseconds > 50 for milliseconds in times) / len(times), 3),
    }


def main() -> None:
    """Measure both pages and write the result."""
    by_page = {}
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
            by_page[name] = {
                mark: {
                    "median": round(median(visit[mark] for visit in times)),
                    "max": round(max(visit[mark] for visit in times)),
                }
                for mark in ("painted", "drawn")
            }
        moved = {name: scrolled(folder, *given) for name, given in SCROLLED.items()}
    about = {"trees": NUM_TREES, "updates": NUM_UPDATES, "repeats": REPEATS, "aim": "painted within 1000 ms"}
    write_result("view_speed", {"what": "milliseconds from the visit", **about, "pages": by_page, "scrolled": moved})


if __name__ == "__main__":
    take_pictures() if "--page" in sys.argv else run_timed(main)
