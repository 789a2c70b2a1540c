"""Pictures of the viewer's pages for the documents, taken in a headless Chromium of runs that are given.

Run: python -m benchmarks.view_pictures RUN [RUN ...] --page NAME=ADDRESS [NAME=ADDRESS ...] --out docs/images
An address is what stands behind the # of a page. The pictures in the documents show two short runs on Sokoban, of a
beam of width 2 and of plain play, and one in the shop, each of the embedded model.
"""

import shutil
from argparse import ArgumentParser
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.support.wait import WebDriverWait

from tsr_gym.agents.reports.view.server import viewing
from tsr_gym.agents.reports.view.site import Site

SIZE = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
READY = """return document.body.dataset.ready === location.hash
    && [...document.querySelectorAll('.face')].every(face => face.firstChild)
    && !document.querySelector('.dot.unread')
    && [...document.images].every(image => image.complete)"""


def take(address: str, pages: dict[str, str], out: Path) -> None:
    """Write a PNG of each page, by its name, into a folder."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for argument in ("--headless=new", "--disable-gpu", "--no-sandbox", "--hide-scrollbars"):
        options.add_argument(argument)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", SIZE)
        for name, page in pages.items():
            browser.get("about:blank")
            browser.get(address + page)
            WebDriverWait(browser, 60).until(lambda _: browser.execute_script(READY))
            browser.save_screenshot(str(out / f"{name}.png"))
    finally:
        browser.quit()


def main() -> None:
    """Take the pictures that are asked for."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument(
        "--page", nargs="+", required=True, help="such as view_tree=/tree/beam/000040/00-01/14?tokens=logprob"
    )
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    chosen = parser.parse_args()
    with viewing(Site(chosen.runs)) as address:
        pages = dict(page.split("=", 1) for page in chosen.page)
        take(address, {name: f"#{page}" for name, page in pages.items()}, chosen.out)


if __name__ == "__main__":
    main()
