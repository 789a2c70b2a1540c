"""The viewer's server, its site of runs and trees, and the export as one HTML file."""

import json
import os
import re
import shutil
from html.parser import HTMLParser

import pytest

from tests.agents.reports.view.trees import EVIL, evil_tree, small_tree, sokoban_tree
from tsr_gym.agents.bridges.export import tree_files
from tsr_gym.agents.reports.view.server import SCRIPTS, STYLES, asset, export_page, harmless
from tsr_gym.agents.reports.view.site import Site, find_sources
from tsr_gym.errors import ConfigError, InvalidTree
from tsr_gym.tree import Tree


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


def test_an_export_has_licences_all_answers_and_shared_texts_once(exported):
    text = exported(small_tree())
    assert text.count("Permission is hereby granted, free of charge") == 1
    assert "Copyright 2010-2026 Mike Bostock" in text
    data = Reader(exported(small_tree())).data
    assert data["overview"]["trees"] == ["tree"]
    assert data["summaries/0"]["tree"]["outcome"] == "solved"
    assert data["tree/tree"]["chosen"] == [3]
    assert [node["answer"] for node in data["nodes/tree"]["nodes"]] == ["", "left", "right", "up", "down", "up"]
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


def test_harmless_json_means_the_same():
    assert json.loads(harmless(json.dumps({"a": EVIL}))) == {"a": EVIL}
    assert not set("<>&") & set(harmless(json.dumps(EVIL)))


def make_run(folder, *trees):
    (folder / "trees").mkdir(parents=True)
    (folder / "metrics.jsonl").touch()
    for name in trees:
        (folder / "trees" / name).parent.mkdir(exist_ok=True)
        small_tree().save(folder / "trees" / f"{name}.jsonl.gz")
    return folder


def test_runs_and_trees_of_folders_have_different_names(tmp_path):
    run = make_run(tmp_path / "beam", "000004/00-01", "000004/00-00")
    sources = find_sources([run])
    assert dict(sources.runs) == {"beam": run}
    assert list(sources.trees) == ["beam/000004/00-00", "beam/000004/00-01"]
    make_run(tmp_path / "both" / "b")
    make_run(tmp_path / "both" / "a", "x")
    sources = find_sources([tmp_path / "both"])
    assert (list(sources.runs), list(sources.trees)) == (["a", "b"], ["a/x"])
    sources = find_sources([make_run(tmp_path / "one" / "beam", "x"), make_run(tmp_path / "two" / "beam", "x")])
    assert (list(sources.runs), list(sources.trees)) == (["beam", "beam-2"], ["beam/x", "beam-2/x"])
    (tmp_path / "files").mkdir()
    small_tree().save(tmp_path / "files" / "lone.jsonl")
    sources = find_sources([tmp_path / "files" / "lone.jsonl", tmp_path / "files"])
    assert (dict(sources.runs), list(sources.trees)) == ({}, ["lone", "files/lone"])


def test_trees_of_folders_and_files_of_one_name_are_all_kept_and_belong_to_no_run(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder / "trees").mkdir(parents=True)
        small_tree().save(tmp_path / folder / "trees" / "x.jsonl")
    small_tree().save(tmp_path / "b" / "trees" / "x.jsonl.gz")
    run = make_run(tmp_path / "beam", "x")
    small_tree().save(tmp_path / "beam.jsonl")
    paths = [tmp_path / "a" / "trees", tmp_path / "b" / "trees", run, tmp_path / "beam.jsonl"]
    trees = find_sources(paths).trees
    assert list(trees) == ["trees/x", "trees-2/x", "trees-2/x-2", "beam/x", "beam-2"]
    # A tree of no run has no tokenizer and no settings of a run.
    assert [file.run for file in trees.values()] == [None, None, None, run, None]


SECRET = "the first line of a secret"


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda file, outside: file.symlink_to(outside / "secret.txt"), "a link that leaves"),
        (lambda file, outside: (file.parent.rmdir(), file.parent.symlink_to(outside)), "a link that leaves"),
        (lambda file, outside: file.symlink_to("nothing"), "a broken link"),
        (lambda file, outside: os.mkfifo(file), "a pipe or a device"),
        (lambda file, outside: file.mkdir(), "a folder"),
    ],
    ids=["link", "linked folder", "broken link", "pipe", "folder"],
)
def test_what_is_no_file_of_the_run_is_neither_read_nor_waited_for(tmp_path, harm, message):
    run, outside = make_run(tmp_path / "run"), tmp_path / "outside"
    outside.mkdir()
    (run / "run.toml").touch()
    (outside / "secret.txt").write_text(SECRET)
    (outside / "x.jsonl").write_text(SECRET)
    harm(run / "trees" / "x.jsonl", outside)
    export_page([run], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert SECRET not in text
    assert message in Reader(text).data["tree/run/x"]["error"]
    with pytest.raises((InvalidTree, OSError), match=message):
        list(map(Tree.load, tree_files(run)))


def test_the_settings_and_logs_of_a_run_are_not_read_through_links_that_leave_it(tmp_path):
    run = make_run(tmp_path / "run", "x")
    (tmp_path / "secret.toml").write_text(f'secret = "{SECRET}"')
    (run / "run.toml").symlink_to(tmp_path / "secret.toml")
    (run / "evaluations.jsonl").symlink_to(tmp_path / "nothing")
    shown = json.dumps(Site([run]).data("overview"))
    assert SECRET not in shown
    assert "a link that leaves" in shown
    assert "a broken link" in shown


@pytest.mark.parametrize(
    ("path", "message"),
    [("nowhere", "found nothing"), (".", "found neither a run nor trees"), ("a.py", "a file of a tree .*header")],
)
def test_a_path_without_runs_and_trees_is_refused(tmp_path, path, message):
    (tmp_path / "a.py").write_text("import this")
    with pytest.raises(ConfigError, match=message):
        export_page([tmp_path / path], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
    with pytest.raises(ConfigError, match="wanted the folder of a run"):
        find_sources([])


@pytest.fixture
def run(undisturbed, tmp_path):
    return shutil.copytree(undisturbed, tmp_path / "run")


def test_a_run_of_the_trainer_is_shown_with_its_trees_tokens_prompts_and_pictures(run):
    site = Site([run])
    overview = site.data("overview")
    (shown,) = overview["runs"]
    assert (shown["name"], shown["env"], shown["notes"]) == ("run", "sokoban", [])
    assert shown["updates"]["step"] == [1, 2, 3, 4, 5]
    assert all(value is not None for value in shown["updates"]["entropy"])
    name = overview["trees"][0]
    tree = Tree.load(site.sources.trees[name].path)
    assert site.data(f"tree/{name}")["parent"] == [node.parent for node in tree.nodes]
    node = site.data(f"node/1/{name}")
    assert node["logprobs"] == pytest.approx(list(tree.nodes[1].candidate.logprobs), abs=1e-6)
    # The prompt of the embedded model ends with a tag that the answer continues.
    assert node["prompt"].endswith("<answer>")
    assert f"<answer>{''.join(node['tokens'])}".replace(" ", "") == node["answer"].replace(" ", "")
    assert node["picture"].startswith("data:image/png;base64,")


def test_a_run_in_progress_is_read_again(run):
    site = Site([run])
    before = site.data("overview")
    assert list(site.data("summaries/0")) == before["trees"]
    new = run / "trees" / "000009"
    new.mkdir()
    shutil.copy(site.sources.trees[before["trees"][0]].path, new / "00-00.jsonl")
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"step": 6, "success": 1.0}\n')
    after = site.data("overview")
    assert after["trees"][-1] == "run/000009/00-00"
    assert after["runs"][0]["updates"]["success"][-1] == 1.0
    assert site.data("node/0/run/000009/00-00")["node"] == 0


@pytest.mark.parametrize("address", ["", "overview/x", "tree/", "tree/run/none", "node/1", "node//run", "summaries/-1"])
def test_there_is_nothing_at_other_addresses(run, address):
    with pytest.raises(LookupError):
        Site([run]).data(address)
