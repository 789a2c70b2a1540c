"""`tsr view` in a real headless Chromium; `make test-browser` runs it where Chromium and its driver are installed."""

import json

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

from tests.agents.reports.view.trees import EVIL, evil_tree, long_tree, node, shelf_tree, small_tree, sokoban_tree
from tests.chromium import CONTRASTS, chromium, find, show_as  # noqa: F401
from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.episodes.trajectory import Learned, keep_learned
from tsr_gym.agents.reports.view.server import export_page, viewing
from tsr_gym.agents.reports.view.site import Site
from tsr_gym.tree import Candidate, Tree

SCREEN = (1280, 800)


def make_run(folder, **about):
    """Write a run of 24 updates by hand, with a small tree, a damaged one and one of Sokoban; return its folder."""
    (folder / "trees" / "000024").mkdir(parents=True)
    (folder / "run.toml").write_text(TrainConfig(env="sokoban").to_toml())
    updates = [
        {"step": step, "sampled_tokens_total": 100 * step, "success": 0.0, "entropy": 1 / step, "grad_norm": 1.0}
        | {"reward_mean": 0.1 * step, "response_length": 9.0, "turns": 3.0, "sampled_tokens": 100, "valid": 1.0}
        | {"groups": 4, "groups_kept": 1, "dropped": {"group_all_failed": 3}, "equal_groups": 1.0, **about}
        for step in range(1, 25)
    ]
    evaluations = [{"step": step, "sampled_tokens_total": 100 * step, "success": step / 50} for step in (0, 12, 24)]
    for name, records in (("metrics", updates), ("evaluations", evaluations)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    small_tree().save(folder / "trees" / "000024" / "00-00.jsonl")
    sokoban_tree().save(folder / "trees" / "000024" / "00-01.jsonl")
    (folder / "trees" / "000012").mkdir()
    (folder / "trees" / "000012" / "00-00.jsonl").write_text("{}")
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [make_run(folder / "beam"), make_run(folder / "plain", turns=4.0)]


@pytest.fixture(scope="module")
def url(runs):
    with viewing(Site(runs)) as address:
        yield address


@pytest.fixture
def browser(chromium):  # noqa: F811
    """The browser of a new visitor; at the end its console has to be empty."""
    show_as(chromium, SCREEN)
    yield chromium
    assert chromium.get_log("browser") == []


def visit(browser, url):
    browser.get("about:blank")
    browser.get(url)
    settle(browser)


def settle(browser):
    """Wait until the page has drawn its address and has the outcomes of the trees that it lists."""
    drawn = (
        "return document.body.dataset.ready === location.hash && !document.querySelector('.canvas:empty, .dot.unread')"
    )
    WebDriverWait(browser, 20).until(lambda _: browser.execute_script(drawn))


def press(browser, *keys):
    for key in keys:
        webdriver.ActionChains(browser).send_keys(key).perform()
        settle(browser)


def place(browser):
    return browser.execute_script("return location.hash").partition("?")[0]


def all_of(browser, selector):
    return browser.find_elements(By.CSS_SELECTOR, selector)


def texts(browser, selector):
    return [element.text for element in all_of(browser, selector)]


def until(browser, wanted):
    WebDriverWait(browser, 20).until(lambda _: wanted())


def test_the_page_of_runs_shows_curves_counters_findings_and_settings(browser, url):
    visit(browser, url)
    assert place(browser) == ""
    assert len(all_of(browser, ".chart canvas")) == 9
    assert [text.split()[0] for text in texts(browser, ".legend")] == ["beam", "plain"]
    assert "nothing to learn beam" in texts(browser, ".finding h3")
    rows = {row.split("\n")[0].rpartition(" ")[0] for row in texts(browser, ".counts tbody tr")}
    assert any(row.startswith("group all failed 72 75 % 72 75") for row in rows)
    find(browser, ".legend input").click()
    assert len(all_of(browser, ".chart canvas")) == 9
    Select(find(browser, "select[name=x]")).select_by_visible_text("sampled tokens")
    assert browser.execute_script("return location.hash").endswith("?x=tokens")


def test_a_run_with_prices_shows_them_and_the_share_of_searched_groups(browser, tmp_path):
    priced = make_run(tmp_path / "auto", share_search=0.5, price_play=900.0, price_search=300.0)
    plain = make_run(tmp_path / "plain")
    with viewing(Site([priced, plain])) as address:
        visit(browser, address)
        assert texts(browser, ".chart h3")[9:] == ["Searched", "Tokens per useful group"]
        assert len(all_of(browser, ".chart canvas")) == 11


def test_one_goes_from_runs_to_trees_and_back(browser, url):
    visit(browser, url + "#/runs")
    find(browser, "nav a[href='#/trees']").click()
    settle(browser)
    assert place(browser) == "#/tree/plain/000024/00-01/0"
    next(row for row in all_of(browser, ".row") if row.text.startswith("beam/000024/00-00")).click()
    settle(browser)
    assert place(browser) == "#/tree/beam/000024/00-00/0"
    assert len(all_of(browser, ".node")) == 6
    browser.back()
    settle(browser)
    assert place(browser) == "#/tree/plain/000024/00-01/0"


def test_keys_step_along_a_trajectory_and_over_siblings(browser, url):
    visit(browser, url + "#/tree/beam/000024/00-00/0")
    seen = []
    for key in (Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.HOME, Keys.END, "]", "["):
        press(browser, key)
        seen.append(place(browser).rpartition("/")[2])
    # Along the chosen path 0, 1, 3 and no further; to the sibling 4; the ends in order are 3, 4 and 5.
    assert seen == ["1", "3", "3", "4", "0", "4", "5", "4"]
    assert find(browser, ".node.here").get_attribute("data-node") == "4"
    assert find(browser, ".panel h2").text.split("\n")[0].startswith("Node 4")
    assert "the episode ended here; merit 2, rank 2 of 3" in find(browser, ".why").text
    press(browser, "n")
    assert place(browser) == "#/tree/beam/000024/00-01/0"


def test_a_page_is_shown_as_people_read_it_above_what_the_model_read(browser, tmp_path):
    shelf_tree().save(tmp_path / "shelf.jsonl")
    export_page([tmp_path / "shelf.jsonl"], tmp_path / "shelf.html")
    with viewing(Site([tmp_path / "shelf.jsonl"])) as address:
        for page in (address, (tmp_path / "shelf.html").as_uri()):
            visit(browser, page + "#/tree/shelf/1")
            assert texts(browser, ".shop .pressable") == ["Buy Now"]
            assert texts(browser, ".shop .instruction") == ["Buy <b>two</b>"]
            assert "The model read" in texts(browser, ".panel h3")
            assert "shelf 2" in texts(browser, ".panel pre.text")


def test_siblings_stand_side_by_side(browser, url):
    visit(browser, url + "#/tree/beam/000024/00-00/4")
    press(browser, "s")
    until(browser, lambda: len(all_of(browser, ".sibling")) == 2)
    assert [text.split("\n")[0][:6] for text in texts(browser, ".sibling")] == ["Node 3", "Node 4"]


def test_tokens_have_the_colour_of_their_advantage(browser, tmp_path):
    tree = Tree()
    tree.add(node(None, 0))
    tree.add(node(0, 1, Candidate("ab", (9,), (1, 2), (-0.5, -2.0)), reward=1.0, end="solved"))
    tree.save(tmp_path / "plain.jsonl")
    keep_learned(tree, Learned("gae", {1: (0.5, -0.5)}))
    tree.save(tmp_path / "learned.jsonl")
    with viewing(Site([tmp_path / "learned.jsonl", tmp_path / "plain.jsonl"])) as address:
        visit(browser, f"{address}#/tree/learned/1?tokens=advantage&colour=advantage")
        tokens = all_of(browser, ".panel .token")
        assert [token.get_attribute("title") for token in tokens] == [
            "log p −0.5, advantage 0.5",
            "log p -2, advantage −0.5",
        ]
        grounds = [token.value_of_css_property("background-color") for token in tokens]
        assert len({*grounds, "rgba(0, 0, 0, 0)"}) == 3
        assert "advantage" in find(browser, ".panel .numbers").text
        # A tree that nothing was learned from has no such numbers and offers no such colours.
        visit(browser, f"{address}#/tree/plain/1?tokens=advantage")
        assert all_of(browser, ".panel .token")[0].value_of_css_property("background-color") == "rgba(0, 0, 0, 0)"
        assert "advantage" not in find(browser, ".panel").text


def test_a_link_leads_back_to_the_same_view(browser, url):
    visit(browser, url + "#/tree/beam/000024/00-00/5?only=solved&colour=gain")
    assert find(browser, ".node.here").get_attribute("data-node") == "5"
    lit = {made.get_attribute("data-node") for made in all_of(browser, ".node:not(.dim)")}
    assert lit == {"0", "1", "3"}
    shown = {made.get_attribute("data-node"): made.text.split("\n")[0] for made in all_of(browser, ".node")}
    assert (shown["3"], shown["4"]) == ("0.5", "−0.5")


def test_a_node_of_sokoban_is_a_picture(browser, url):
    visit(browser, url + "#/tree/beam/000024/00-01/1")
    script = "return [...document.querySelectorAll('.panel .board, .face img')].map(i => [i.complete, i.naturalWidth])"
    until(browser, lambda: len(all_of(browser, ".face img")) > 3)
    assert {tuple(one) for one in browser.execute_script(script)} == {(True, 192)}


def test_text_is_drawn_by_what_it_holds(browser, tmp_path):
    tree = Tree()
    shown = (
        "####\n#P_#\n#OX#\n####",
        "Instruction: [SEP] Buy a shirt [SEP] Search [SEP] B01 [SEP] $9.99",
        '<information>Doc 1(Title: "Rome") Rome is old.\nDoc 2(Title: "Bern") Not rome.</information>',
        "You are in a room.",
    )
    for number, text in enumerate(shown):
        facts = {"golden_answers": ("Rome",), "available_actions": {"clickables": ["search", "b01"]}}
        tree.add(node(None if number == 0 else number - 1, number, "on", shown=text, info=facts))
    tree.save(tmp_path / "texts.jsonl")
    with viewing(Site([tmp_path / "texts.jsonl"])) as address:
        visit(browser, f"{address}#/tree/texts/0")
        assert len(all_of(browser, ".panel .grid .wall")) == 12
        press(browser, Keys.ARROW_RIGHT)
        assert texts(browser, ".panel .pressable") == ["Search", "B01"]
        assert texts(browser, ".panel .instruction") == ["Buy a shirt"]
        press(browser, Keys.ARROW_RIGHT)
        assert texts(browser, ".panel .passage h4") == ["1 Rome", "2 Bern"]
        assert texts(browser, ".panel mark") == ["Rome", "Rome", "rome"]
        press(browser, Keys.ARROW_RIGHT)
        assert texts(browser, ".panel .observation pre") == ["You are in a room."]


def test_trees_are_filtered_by_their_outcome(browser, url):
    visit(browser, url + "#/tree/beam/000024/00-00/0")
    select = Select(find(browser, "select[name=trees]"))
    select.select_by_visible_text("damaged")
    until(browser, lambda: len(all_of(browser, ".row")) == 2)
    select.select_by_visible_text("solved")
    until(browser, lambda: any(text.startswith("beam/000024/00-00") for text in texts(browser, ".row")))
    find(browser, "input[type=search]").send_keys("plain")
    assert all(text.startswith("plain") for text in texts(browser, ".row"))


def test_a_damaged_tree_is_named_and_a_half_one_shown(browser, tmp_path):
    small_tree().save(tmp_path / "half.jsonl")
    data = (tmp_path / "half.jsonl").read_bytes()
    (tmp_path / "half.jsonl").write_bytes(data[: data.index(b'"down"')])
    (tmp_path / "bad.jsonl").write_text("{}")
    export_page([tmp_path / "half.jsonl", tmp_path / "bad.jsonl"], tmp_path / "page.html")
    visit(browser, f"file://{tmp_path}/page.html#/tree/half/0")
    assert len(all_of(browser, ".node")) == 4
    assert find(browser, ".title .damage").text == "line 6 is not whole: 4 nodes shown of 6"
    visit(browser, f"file://{tmp_path}/page.html#/tree/bad/0")
    assert "wanted a 'tsr-gym tree'" in find(browser, ".refused").text
    # Nothing of another tree is left, and the outcomes of all are shown.
    find(browser, ".row:not(.here)").click()
    settle(browser)
    assert find(browser, ".panel h2").text.startswith("Node 0")
    browser.back()
    settle(browser)
    assert find(browser, ".title").text == "bad"
    assert find(browser, ".panel").text == ""
    assert all_of(browser, ".dot.damaged")


def test_a_half_written_run_is_shown_as_far_as_it_is_whole(browser, tmp_path):
    run = make_run(tmp_path / "young")
    log = run / "metrics.jsonl"
    log.write_bytes(log.read_bytes()[:-30])
    (run / "evaluations.jsonl").unlink()
    with viewing(Site([run])) as address:
        visit(browser, address)
        assert texts(browser, ".notes li") == [
            "young metrics.jsonl, line 24: not whole; shown up to the line before",
            "young evaluations.jsonl: not written yet",
        ]
        assert len(all_of(browser, ".chart canvas")) == 8


def test_an_exported_file_is_the_same_page_and_loads_nothing(browser, runs, tmp_path):
    export_page(runs, tmp_path / "page.html")
    visit(browser, f"file://{tmp_path}/page.html")
    assert len(all_of(browser, ".chart canvas")) == 9
    visit(browser, f"file://{tmp_path}/page.html#/tree/beam/000024/00-01/0")
    press(browser, Keys.ARROW_RIGHT)
    assert find(browser, ".panel .board").get_attribute("src").startswith("data:image/png")
    names = browser.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert all(name.startswith("data:") for name in names)


@pytest.mark.parametrize("exported", [False, True])
def test_hostile_texts_run_nothing(browser, tmp_path, exported):
    evil_tree().save(tmp_path / "evil.jsonl")
    export_page([tmp_path / "evil.jsonl"], tmp_path / "page.html")
    with viewing(Site([tmp_path / "evil.jsonl"])) as address:
        page = f"file://{tmp_path}/page.html" if exported else address
        for number in range(4):
            visit(browser, f"{page}#/tree/evil/{number}?siblings=open&tokens=logprob")
            assert browser.title == "tsr view"
            assert not all_of(browser, "[onerror], [onclick], main script")
            read = find(browser, "main").get_property("textContent")
            assert EVIL.strip("'") in read
    # Nothing was added to what the page holds from the start.
    assert all(image.get_attribute("src").startswith("data:") for image in all_of(browser, "img"))


def test_a_tree_of_2000_nodes_draws_only_what_can_be_seen(browser, tmp_path):
    long_tree().save(tmp_path / "long.jsonl")
    with viewing(Site([tmp_path / "long.jsonl"])) as address:
        visit(browser, f"{address}#/tree/long/1999")
        assert find(browser, ".node.here").get_attribute("data-node") == "1999"
        assert 10 < len(all_of(browser, ".node")) < 400
        press(browser, Keys.HOME)
        here = find(browser, ".node.here")
        assert here.get_attribute("data-node") == "0"
        # Folding the first node leaves it alone.
        press(browser, "f")
        assert len(all_of(browser, ".node")) == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", ["#/runs", "#/tree/beam/000024/00-01/1?siblings=open", "#/tree/beam/000024/00-00/5"])
def test_pages_fit_their_screen_and_can_be_read_and_named(browser, url, page, scheme):
    show_as(browser, SCREEN, scheme)
    visit(browser, url + page)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= SCREEN[0]
    contrasts = browser.execute_script(CONTRASTS)
    assert len(contrasts) > 3
    assert [found for found in contrasts if found[1] < found[2]] == []
    for element in all_of(browser, "a, button, input, select"):
        if element.is_displayed():
            assert element.accessible_name, element.get_attribute("outerHTML")
