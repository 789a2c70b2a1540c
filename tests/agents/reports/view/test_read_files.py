"""Reading files for the viewer: up to the damage, with a note about it; and the text of each token."""

import json

import pytest
from tokenizers import Tokenizer, decoders, models

from tests.agents.reports.view.trees import small_tree, sokoban_tree
from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.reports.view.describe_tree import summarise_tree
from tsr_gym.agents.reports.view.read_files import find_spelling, read_run, read_tree, spelling_of, whole_lines
from tsr_gym.errors import InvalidTree


@pytest.fixture
def file(tmp_path):
    small_tree().save(tmp_path / "tree.jsonl")
    return tmp_path / "tree.jsonl"


def test_a_whole_file_is_the_tree_that_was_saved_and_snapshots_stay_undecoded(file, tmp_path):
    seen = read_tree(file)
    assert list(seen.tree.nodes) == list(small_tree().nodes)
    assert (list(seen.tree.chosen), seen.note) == ([3], "")
    sokoban_tree().save(tmp_path / "tree.jsonl")
    seen = read_tree(tmp_path / "tree.jsonl")
    assert all(node.snapshot is None for node in seen.tree.nodes)
    lines = (tmp_path / "tree.jsonl").read_text().splitlines()[1:]
    assert list(seen.snapshots) == [json.loads(line)["snapshot"] for line in lines]


def test_a_file_that_was_cut_short_is_shown_up_to_there(file):
    data = file.read_bytes()
    file.write_bytes(data[: data.index(b'"up"') - 3])
    seen = read_tree(file)
    assert len(seen.tree.nodes) == 3
    assert seen.note == "line 5 is not whole: 3 nodes shown of 6"
    # The chosen node lies in the missing part.
    assert list(seen.tree.chosen) == []
    file.write_bytes(b"\n".join(file.read_bytes().splitlines()[:3]))
    assert read_tree(file).note == "the file is cut short: 2 nodes shown of 6"


def test_a_compressed_file_that_was_cut_or_changed_is_shown_up_to_there(tmp_path):
    file = tmp_path / "tree.jsonl.gz"
    sokoban_tree().save(file)
    data = file.read_bytes()
    whole = read_tree(file)
    assert (whole.note, summarise_tree(file)["whole"]) == ("", True)
    for part in (data[:-9], data[: len(data) * 2 // 3], data[:-5] + b"more." + data[-5:]):
        file.write_bytes(part)
        assert "the gzip file is" in read_tree(file).note
        assert summarise_tree(file)["whole"] is False
    file.write_bytes(data[:30])
    with pytest.raises(InvalidTree):
        read_tree(file)


@pytest.mark.parametrize("line", [b"[]", b'{"parent": 9}', b"\xff", b"[" * 100_000])
def test_a_damaged_line_ends_what_is_shown(file, line):
    lines = file.read_bytes().splitlines()
    lines[4] = line
    file.write_bytes(b"\n".join(lines))
    assert len(read_tree(file).tree.nodes) == 3


@pytest.mark.parametrize("data", [b"", b"{}", b'{"format": "tsr-gym tree", "version": 99}', b"\x89PNG\n"])
def test_other_files_and_a_header_alone_are_refused(file, data):
    header = file.read_bytes().splitlines()[0]
    file.write_bytes(header)
    with pytest.raises(InvalidTree, match="at least its first node"):
        read_tree(file)
    file.write_bytes(data)
    with pytest.raises(InvalidTree, match="wanted a 'tsr-gym tree'"):
        read_tree(file)


def write(folder, name, records):
    (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))


def update(step, **changes):
    numbers = {"success": 0.5, "entropy": 1.0, "groups": 4, "groups_kept": 3, "dropped": {"group_all_failed": 1}}
    return {"step": step, "sampled_tokens_total": 100 * step, **numbers, **changes}


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.toml").write_text(TrainConfig(env="sokoban").to_toml())
    write(folder, "metrics.jsonl", [update(1), update(2, entropy=0.5, dropped={"group_all_failed": 1, "long": 2})])
    write(folder, "evaluations.jsonl", [{"step": 0, "sampled_tokens_total": 0, "success": 0.1, "interval": [0.0, 0.2]}])
    return folder


def test_the_numbers_of_a_run_are_columns_over_updates_and_tokens(run):
    page = read_run(run)
    assert (page["env"], page["notes"], page["updates"]["step"]) == ("sokoban", [], [1, 2])
    assert page["updates"]["tokens"] == [100, 200]
    assert page["updates"]["entropy"] == [1.0, 0.5]
    assert page["updates"]["turns"] == [None, None]
    assert (page["evaluations"]["success"], page["evaluations"]["interval"]) == ([0.1], [[0.0, 0.2]])
    assert page["about"]["search.search"] == TrainConfig(env="sokoban").search.search


def test_shares_and_prices_of_a_run_that_plays_first_are_columns(run):
    assert read_run(run)["updates"]["share_search"] == [None, None]
    write(run, "metrics.jsonl", [update(1, share_search=0.5, price_play=70.5, price_search=900)])
    page = read_run(run)["updates"]
    columns = [page[name] for name in ("share_search", "price_play", "price_search")]
    assert columns == [[0.5], [70.5], [900]]


def test_counters_of_filters_and_findings_of_the_diagnosis_are_included(run):
    assert read_run(run)["counters"] == {"groups": 8, "kept": 6, "dropped": {"group_all_failed": 2, "long": 2}}
    write(run, "metrics.jsonl", [update(step, equal_groups=1.0, success=0.0) for step in range(1, 21)])
    assert [finding["name"] for finding in read_run(run)["findings"]] == ["nothing to learn"]


def test_a_run_that_is_being_written_is_shown_as_far_as_it_is_whole(run):
    with open(run / "metrics.jsonl", "a") as file:
        file.write('{"step": 3, "succ')
    page = read_run(run)
    assert page["updates"]["step"] == [1, 2]
    assert page["notes"] == ["metrics.jsonl, line 3: not whole; shown up to the line before"]


@pytest.mark.parametrize("line", ["[]", "7", '{"step": "1"}', '{"other": 1}', "[" * 100_000])
def test_a_line_that_is_no_record_ends_what_is_shown(tmp_path, line):
    (tmp_path / "log").write_text(f'{{"step": 1}}\n{line}\n{{"step": 3}}\n')
    records, notes = whole_lines(tmp_path / "log")
    assert (records, len(notes)) == ([{"step": 1}], 1)


def test_numbers_that_json_cannot_hold_and_values_of_other_types_are_left_out(run):
    write(run, "metrics.jsonl", [update(1, entropy=float("nan"), success="half", dropped=3, groups=None)])
    page = read_run(run)
    assert (page["updates"]["entropy"], page["updates"]["success"]) == ([None], [None])
    json.dumps(page, allow_nan=False)


def test_an_empty_folder_or_a_damaged_configuration_leaves_what_is_known(tmp_path, run):
    page = read_run(tmp_path)
    assert (page["updates"]["step"], len(page["notes"])) == ([], 3)
    (run / "run.toml").write_text("{")
    page = read_run(run)
    assert (page["label"], page["updates"]["step"]) == ("run", [1, 2])
    assert page["notes"][0].startswith("run.toml: cannot be read")


# The pieces of two signs of three and of two bytes, which no token holds whole.
BYTES = [f"<0x{byte:02X}>" for byte in "√é".encode()]


@pytest.fixture
def words():
    """A tokenizer whose words bring their blank along, but for the first of a text."""
    vocabulary = {word: number for number, word in enumerate(["▁push", "▁left", "er", *BYTES])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="er"))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    return tokenizer


def test_pieces_are_written_as_they_stand_in_the_whole(words):
    assert spelling_of(words)([0, 1, 2]) == ["push", " left", "er"]
    pieces = spelling_of(words)([0, 3, 4, 5, 1])
    assert len(pieces) == 5
    assert pieces[-1].endswith("left")
    assert spelling_of(words)([]) == []


def test_the_newest_checkpoint_spells_or_else_the_model_that_the_run_began_with(words, tmp_path):
    run, model = tmp_path / "run", tmp_path / "model"
    run.mkdir()
    model.mkdir()
    assert find_spelling(run) is None
    (run / "run.toml").write_text(TrainConfig(env="sokoban", model=ModelConfig(model=str(model))).to_toml())
    words.save(str(model / "tokenizer.json"))
    assert find_spelling(run)([1]) == ["left"]
    newest = run / "checkpoints" / "000002" / "model"
    newest.mkdir(parents=True)
    Tokenizer(models.WordLevel({"other": 0, "words": 1}, unk_token="other")).save(str(newest / "tokenizer.json"))
    assert find_spelling(run)([1]) == ["words"]


def test_a_damaged_tokenizer_is_passed_over(tmp_path):
    file = tmp_path / "checkpoints" / "000001" / "model" / "tokenizer.json"
    file.parent.mkdir(parents=True)
    file.write_text("{")
    assert find_spelling(tmp_path) is None
