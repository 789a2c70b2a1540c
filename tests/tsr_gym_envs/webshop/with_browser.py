"""The shop in a real headless Chromium; `make test-browser` runs it where Chromium and its driver are installed.

With WEBSHOP_PICTURES=FOLDER, which takes Pillow, pictures of the pages on a desktop are kept there.
"""

import os
import time
from contextlib import contextmanager
from pathlib import Path

import gymnasium as gym
import pytest
from selenium import webdriver
from selenium.common.exceptions import NoAlertPresentException, WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from tests.chromium import CONTRASTS, DESKTOP, PHONE, chromium, find, keep, show_as  # noqa: F401
from tests.tsr_gym_envs.webshop.shops import (
    BOLD,
    EVIL,
    NUM_SHIRTS,
    agents_tree,
    goal_of,
    hostile_catalogue,
    hostile_env,
)
from tsr_gym.tree import Tree
from tsr_gym_envs.serving import serving
from tsr_gym_envs.webshop.oracle import best_plan
from tsr_gym_envs.webshop.site import shop_site
from tsr_gym_envs.webshop.trips import Trips
from tsr_gym_envs.webshop.web_page import text_of


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory):
    return hostile_catalogue(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def shop(catalogue, tmp_path_factory):
    """A running shop in which all are to buy the hostile shirt: its address, the goal, and the folder of its files."""
    env = hostile_env(catalogue)
    goal, out = goal_of(env, BOLD), tmp_path_factory.mktemp("trips")
    with serving(shop_site(Trips(env, goal=goal, seed=1, out=out))) as url:
        yield url, goal, out


@pytest.fixture
def browser(chromium):  # noqa: F811
    """The browser of a new visitor; at the end its console has to be empty."""
    show_as(chromium, DESKTOP)
    chromium.delete_all_cookies()
    yield chromium
    assert chromium.get_log("browser") == []
    with pytest.raises(NoAlertPresentException):
        _ = chromium.switch_to.alert.text


@contextmanager
def leaving(browser):
    """Wait at the end until another page has been loaded than that of the beginning."""
    mark = time.monotonic_ns()
    browser.execute_script("window.mark = arguments[0]", mark)
    yield
    arrive(browser, mark)


def arrive(browser, mark=0):
    """Wait until a page has been loaded that does not have the mark."""
    script = (
        "return document.readyState === 'complete' && document.querySelector('main') && window.mark !== arguments[0]"
    )
    # Between two pages there is nothing to run a script in.
    wait = WebDriverWait(browser, 20, ignored_exceptions=[WebDriverException])
    wait.until(lambda _: browser.execute_script(script, mark))


def click(browser, text):
    """Click the first link or button with a text, and wait for the next page."""
    elements = browser.find_elements(By.CSS_SELECTOR, "a, button")
    with leaving(browser):
        next(element for element in elements if element.text == text).click()


def search(browser, words):
    field = find(browser, "form[role=search] input")
    field.clear()
    with leaving(browser):
        field.send_keys(words, Keys.ENTER)


def visit(browser, url):
    browser.get(url)
    arrive(browser)


def go(browser, step):
    """Go back or forward in the browser's history, or load the page again."""
    with leaving(browser):
        step()


def address(browser):
    return browser.current_url.split("/", 3)[3].partition("#")[0]


def read(browser):
    return text_of(browser.page_source, "text_options")


def open_shirt(browser, url):
    visit(browser, url)
    search(browser, "soft shirt")
    click(browser, "B000000000")


def test_a_person_searches_turns_pages_chooses_and_buys_and_leaves_an_agents_tree(browser, shop, catalogue, tmp_path):
    url, goal, out = shop
    files = set(out.iterdir())
    observations = []
    visit(browser, url)
    observations.append(read(browser))
    search(browser, "shirt")
    observations.append(read(browser))
    assert f"Page 1 (Total results: {NUM_SHIRTS})" in observations[-1]
    for text in ("Next >", "< Prev", "Next >", "Next >"):
        click(browser, text)
        observations.append(read(browser))
    assert f"Page 3 (Total results: {NUM_SHIRTS})" in observations[-1]
    assert "Next >" not in observations[-1]
    for text in ("B000000000", "Features", "< Prev", BOLD, "m", "s", "Buy Now"):
        click(browser, text)
        observations.append(read(browser))
    score = float(find(browser, ".score strong").text)

    (file,) = set(out.iterdir()) - files
    assert find(browser, ".next code").text == file.name
    tree = Tree.load(file)
    clicks = ["next >", "< prev", "next >", "next >", "b000000000", "features", "< prev", BOLD, "m", "s", "buy now"]
    actions = ["search[shirt]", *(f"click[{name}]" for name in clicks)]
    agent = agents_tree(hostile_env(catalogue), tree.seed, {"goal": goal}, list(enumerate(actions)))
    assert list(tree.nodes) == list(agent.nodes)
    assert list(tree.played) == list(agent.played) == list(range(13))
    agent.save(tmp_path / "agent")
    assert file.read_bytes().splitlines()[1:] == (tmp_path / "agent").read_bytes().splitlines()[1:]
    # The pages in the browser read as the agent's observations do.
    assert observations == [node.observation for node in agent.nodes]
    assert score == pytest.approx(100 * agent.nodes[-1].reward, abs=0.5)


def test_back_in_the_browser_is_back_in_the_shop(browser, shop):
    url, _, out = shop
    open_shirt(browser, url)
    item = read(browser)
    click(browser, "red")
    red = read(browser)
    click(browser, "m")
    go(browser, browser.back)
    assert read(browser) == red
    go(browser, browser.back)
    assert (read(browser), address(browser)) == (item, "1/2")
    go(browser, browser.forward)
    assert read(browser) == red
    go(browser, browser.back)
    # From the page without options, so that neither red nor m is chosen any more.
    click(browser, BOLD)
    assert f"You have chosen color: {BOLD}; size {EVIL.lower()}: nothing yet" in read(browser)
    go(browser, browser.refresh)
    assert f"You have chosen color: {BOLD}" in read(browser)
    files = set(out.iterdir())
    click(browser, "Buy Now")
    receipt = read(browser)
    (file,) = set(out.iterdir()) - files
    tree = Tree.load(file)
    assert [tree.nodes[page].candidate.text for page in tree.played[1:]] == [
        "search[soft shirt]", "click[b000000000]", f"click[{BOLD}]", "click[buy now]",
    ]  # fmt: skip
    assert len(tree.nodes) == 7
    # What was bought stays bought, whether the browser has kept the old page or loads it again.
    go(browser, browser.back)
    click(browser, "Buy Now")
    assert read(browser) == receipt
    go(browser, browser.back)
    go(browser, browser.refresh)
    assert "This task has ended" in find(browser, "[role=status]").text
    click(browser, "red")
    assert read(browser) == receipt
    assert set(out.iterdir()) - files == {file}
    click(browser, "Next task")
    assert address(browser) == "2/0"


def test_a_product_opened_in_a_new_tab_leaves_the_list_unchanged(browser, shop):
    visit(browser, shop[0])
    search(browser, "shirt")
    first, second = (link.get_attribute("href") for link in browser.find_elements(By.CSS_SELECTOR, ".product-link")[:2])
    listed = read(browser)
    window = browser.current_window_handle
    browser.switch_to.new_window("tab")
    visit(browser, first)
    visit(browser, second)
    search(browser, "soft")
    browser.close()
    browser.switch_to.window(window)
    go(browser, browser.refresh)
    assert read(browser) == listed


def test_a_missing_page_is_reported_with_a_link_back(browser, shop):
    open_shirt(browser, shop[0])
    for path, text in (
        ("/1/2/click?name=b0unknown00", "The page has no “b0unknown00” to click."),
        ("/1/77", "You have not been on such a page."),
        ("/nowhere", "There is no such page"),
        (f"/1/2/click?name={EVIL.replace('&', '%26')}", f"The page has no “{EVIL}” to click."),
    ):
        visit(browser, shop[0] + path)
        assert text in find(browser, "main").text
        click(browser, "Back to the shop")
        assert address(browser) == "1/2"
    logged = browser.get_log("browser")
    assert len(logged) == 4
    assert all("the server responded with a status of 404" in entry["message"] for entry in logged)


def test_texts_of_products_queries_and_goals_run_nothing(browser, shop):
    visit(browser, shop[0])
    search(browser, f"soft {EVIL}")
    assert find(browser, "form.quick input").get_attribute("value") == f"soft {EVIL.lower()}"
    pages = [read(browser)]
    for text in ("B000000000", "Description", "< Prev", "Features", "< Prev", 'blue" onclick="alert(1)', "Buy Now"):
        click(browser, text)
        pages.append(read(browser))
        # The page in the browser has only the shop's elements, no event handlers, and has run no scripts.
        assert not browser.find_elements(By.CSS_SELECTOR, "script, img, [onerror], [onclick], [href^=javascript]")
        assert browser.title != "run"
        requests = browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
        assert requests
        assert all(name.startswith(f"{shop[0]}/static/") for name in requests)
    assert all(EVIL in page for page in pages[:-1])


def test_one_can_shop_by_the_keyboard_alone(browser, shop):
    visit(browser, shop[0])
    keys = webdriver.ActionChains(browser)

    def press_on(text):
        """Press the tab key up to a link or button, check that it has the focus mark, and press it."""
        for _ in range(60):
            keys.send_keys(Keys.TAB).perform()
            here = browser.switch_to.active_element
            if here.text == text:
                break
        assert browser.switch_to.active_element.text == text
        assert browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle") == "solid"
        with leaving(browser):
            keys.send_keys(Keys.ENTER).perform()

    # The field of the search page waits for words.
    with leaving(browser):
        keys.send_keys("soft shirt", Keys.ENTER).perform()
    for text in ("B000000000", "red", "m", "Buy Now"):
        press_on(text)
    assert find(browser, ".score strong").text
    press_on("Next task")
    assert address(browser) == "2/0"


@pytest.fixture(scope="module")
def embedded_shop(tmp_path_factory):
    """The embedded catalogue, in which all are to buy one product with options: its address, a query, a way to buy."""
    env = gym.make("tsr/WebShop-v0", max_turns=None)
    goal = next(number for number, expected in enumerate(env.unwrapped.goals) if len(expected["goal_options"]) == 3)
    env.reset(options={"goal": goal})
    plan = best_plan(env.unwrapped.shop, env.unwrapped.state, None).actions
    with serving(shop_site(Trips(env, goal=goal, seed=1, out=tmp_path_factory.mktemp("trips")))) as url:
        yield url, env.unwrapped.goals[goal]["query"], plan


def pages_of(browser, url, query, plan):
    """Yield the name of each kind of page as it is shown on the way of a plan."""
    visit(browser, url)
    yield "index"
    search(browser, query)
    yield "results"
    search(browser, plan[0].removeprefix("search[").removesuffix("]"))
    for action in plan[1:]:
        name = action.removeprefix("click[").removesuffix("]")
        if name == "buy now":
            yield "item"
            item = browser.current_url
            click(browser, "Description")
            yield "description"
            visit(browser, item)
            name = "Buy Now"
        click(browser, name.upper() if name.startswith("b0") else name.capitalize() if name == "next >" else name)
    yield "done"


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light"), (PHONE, "dark")])
def test_pages_fit_their_screens_and_can_be_read_and_named(browser, embedded_shop, size, scheme):
    show_as(browser, size, scheme)
    kept = os.environ.get("WEBSHOP_PICTURES")
    names = []
    for name in pages_of(browser, *embedded_shop):
        names.append(name)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= size[0], name
        contrasts = browser.execute_script(CONTRASTS)
        assert len(contrasts) > 3
        assert [contrast for contrast in contrasts if contrast[1] < contrast[2]] == [], name
        for element in browser.find_elements(By.CSS_SELECTOR, "a, button, input, nav, [role=radiogroup]"):
            assert element.accessible_name, element.get_attribute("outerHTML")
        if kept and (size, scheme) == (DESKTOP, "light"):
            keep(browser.get_screenshot_as_png(), Path(kept) / f"webshop_{name}.png")
    assert names == ["index", "results", "item", "description", "done"]
    assert float(find(browser, ".score strong").text) == 100
