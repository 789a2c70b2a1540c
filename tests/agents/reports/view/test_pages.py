"""Pages: an exported file holds everything and loads nothing, also with hostile texts."""

import json
import re
from html.parser import HTMLParser

import pytest

from tests.agents.reports.view.trees import EVIL, evil_tree, small_tree, sokoban_tree
from tsr_gym.agents.reports.view.server import SCRIPTS, STYLES, asset, export_page, harmless
from tsr_gym.errors import ConfigError


class Reader(HTMLParser):
    """The elements of a page as a browser reads them, and the JSON in it by address."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts = [], []
        self.feed(text)
        index = next(json.loads(text) for attributes, text in self.texts if attributes.get("id") == "addresses")
        held = [json.loads(text) for attributes, text in self.texts if "data-address" in attributes]
        self.data = dict(zip(index, held, strict=True))

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.texts.append((self.elements[-1][1], data))


@pytest.fixture
def exported(tmp_path):
    def export(tree, **settings):
        tree.save(tmp_path / "tree.jsonl")
        export_page([tmp_path / "tree.jsonl"], tmp_path / "page.html", **settings)
        return (tmp_path / "page.html").read_text(encoding="utf-8")

    return export


def test_the_file_loads_nothing(exported):
    text = exported(sokoban_tree())
    for tag, attributes in Reader(text).elements:
        assert not {"src", "srcset", "action", "data", "ping"} & attributes.keys(), tag
        assert attributes.get("href", "#").startswith(("#", "data:"))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy
    assert not re.search(r"@import|url\(", "".join(asset(name) for name in STYLES))


def test_our_own_scripts_write_no_html_and_name_no_host():
    for name in SCRIPTS:
        if not name.startswith("libraries/"):
            text = asset(name).replace("http://www.w3.org/2000/svg", "")
            assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function", text), name
            assert "//" not in re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE), name
        assert "</script" not in asset(name)


def test_the_libraries_come_with_their_licences(exported):
    text = exported(small_tree())
    assert text.count("Permission is hereby granted, free of charge") == 1
    assert "Copyright 2010-2026 Mike Bostock" in text


def test_it_contains_all_answers_of_the_server(exported):
    data = Reader(exported(small_tree())).data
    assert data["overview"]["trees"] == ["tree"]
    assert data["summaries/0"]["tree"]["outcome"] == "solved"
    assert data["tree/tree"]["chosen"] == [3]
    assert [node["answer"] for node in data["nodes/tree"]["nodes"]] == ["", "left", "right", "up", "down", "up"]


def test_shared_texts_are_written_once(exported):
    nodes = Reader(exported(small_tree())).data["nodes/tree"]
    assert nodes["shared"] == ["a room"]
    assert {node["observation"] for node in nodes["nodes"]} == {0}


def test_no_text_ends_the_element_that_holds_it(exported):
    text = exported(evil_tree())
    assert EVIL not in text
    plain, evil = Reader(exported(small_tree())), Reader(text)
    assert {tag for tag, _ in evil.elements} == {tag for tag, _ in plain.elements}
    assert evil.data["tree/tree"]["about"][EVIL] == EVIL
    assert evil.data["nodes/tree"]["nodes"][1]["answer"] == EVIL


def test_harmless_json_means_the_same():
    assert json.loads(harmless(json.dumps({"a": EVIL}))) == {"a": EVIL}
    assert not set("<>&") & set(harmless(json.dumps(EVIL)))


def test_only_the_newest_trees_are_kept_where_there_are_many(tmp_path):
    (tmp_path / "trees").mkdir()
    for number in range(3):
        small_tree().save(tmp_path / "trees" / f"{number}.jsonl")
    written = export_page([tmp_path / "trees"], tmp_path / "page.html", most_trees=2)
    assert (written.trees, written.left_out, written.size) == (2, 1, (tmp_path / "page.html").stat().st_size)
    assert Reader((tmp_path / "page.html").read_text()).data["overview"]["trees"] == ["trees/1", "trees/2"]


def test_a_damaged_tree_is_named_and_the_others_are_shown(tmp_path):
    small_tree().save(tmp_path / "good.jsonl")
    (tmp_path / "bad.jsonl").write_text("{}")
    export_page([tmp_path / "good.jsonl", tmp_path / "bad.jsonl"], tmp_path / "page.html")
    data = Reader((tmp_path / "page.html").read_text()).data
    assert "wanted a 'tsr-gym tree'" in data["tree/bad"]["error"]
    assert data["tree/good"]["chosen"] == [3]


def test_without_runs_and_trees_nothing_is_written(tmp_path):
    with pytest.raises(ConfigError):
        export_page([tmp_path], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
