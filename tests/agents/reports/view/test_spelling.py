"""Spelling: the text of each token, which add up to what was said."""

import json

import pytest
from tokenizers import Tokenizer, decoders, models

from tsr_gym.agents.reports.view.spelling import find_spelling, spelling_of

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


def test_a_sign_of_several_tokens_is_in_them_somewhere(words):
    pieces = spelling_of(words)([0, 3, 4, 5, 1])
    assert len(pieces) == 5
    assert pieces[-1].endswith("left")


def test_nothing_sampled_has_no_pieces(words):
    assert spelling_of(words)([]) == []


def test_the_newest_checkpoint_spells_or_else_the_model_that_the_run_began_with(words, tmp_path):
    run, model = tmp_path / "run", tmp_path / "model"
    run.mkdir()
    model.mkdir()
    assert find_spelling(run) is None
    (run / "config.json").write_text(json.dumps({"model": {"model": str(model)}}))
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
