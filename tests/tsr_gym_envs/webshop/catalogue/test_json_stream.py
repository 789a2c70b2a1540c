"""Reading JSON piece by piece: what comes out is what `json.load` reads, wherever the pieces are cut."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsr_gym import InvalidCatalogue
from tsr_gym_envs.webshop.catalogue import json_stream
from tsr_gym_envs.webshop.catalogue.json_stream import read_entries, read_items

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(params=[1, 2, 7, 1 << 20])
def chunk(request, monkeypatch):
    """Read so many characters at a time."""
    monkeypatch.setattr(json_stream, "_CHUNK", request.param)
    return request.param


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("json") / "file.json"


@given(values=st.lists(VALUES, max_size=6), indent=st.sampled_from([None, 0, 3]), ascii_only=st.booleans())
@pytest.mark.parametrize("size", [1, 5, 1 << 20])
def test_the_items_of_a_list_are_those_of_json(path, values, indent, ascii_only, size):
    path.write_bytes(json.dumps(values, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "replace"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "_CHUNK", size)
        assert list(read_items(path)) == json.loads(path.read_bytes())


@given(values=st.dictionaries(st.text(max_size=8), VALUES, max_size=6))
def test_the_entries_of_an_object_are_those_of_json(path, values):
    path.write_text(json.dumps(values), encoding="utf-8")
    assert dict(read_entries(path)) == values


def test_every_cut_of_a_file_is_refused_with_its_name(path, chunk):
    whole = json.dumps([{"a": [1, 2.5, "x,]}"]}, {"b": None}])
    for length in range(len(whole)):
        path.write_text(whole[:length], encoding="utf-8")
        with pytest.raises(InvalidCatalogue, match=r"file\.json: .*"):
            list(read_items(path))
    path.write_text(json.dumps({"a": 1, "b": [2]})[:-1], encoding="utf-8")
    with pytest.raises(InvalidCatalogue, match="ends too early, wanted ','"):
        list(read_entries(path))


def test_items_before_the_damage_are_still_read(path, chunk):
    path.write_text('[1, {"a": 2}, {"a": oops}, 4]', encoding="utf-8")
    read = []
    with pytest.raises(InvalidCatalogue, match=r"damaged, or the file ends too early: .* \(at character 14\)"):
        read.extend(read_items(path))
    assert read == [1, {"a": 2}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "ends too early, wanted '\\['"),
        ('{"a": 1}', "wanted '\\[', got '{"),
        ("[1 2]", "wanted ',', got '2"),
        ("[1] 2", "wanted the end of the file, got '2'"),
        ("[1,]", "damaged"),
        ("[" * 100_000, "damaged"),
    ],
)
def test_what_is_no_list_is_refused(path, text, message):
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InvalidCatalogue, match=message):
        list(read_items(path))


def test_keys_are_texts(path):
    path.write_text("{1: 2}", encoding="utf-8")
    with pytest.raises(InvalidCatalogue, match="wanted a key in quotes, got 1"):
        list(read_entries(path))


def test_bytes_that_are_no_text_are_refused(path, tmp_path):
    path.write_bytes(b'["a", "\xff"]')
    with pytest.raises(InvalidCatalogue, match="not UTF-8"):
        list(read_items(path))
    with pytest.raises(InvalidCatalogue, match=r"cannot read .*gone\.json"):
        list(read_items(tmp_path / "gone.json"))


def test_a_value_without_end_is_not_read_to_the_end_of_the_file(path, monkeypatch):
    monkeypatch.setattr(json_stream, "_CHUNK", 100)
    monkeypatch.setattr(json_stream, "MAX_VALUE", 1000)
    path.write_text('[1, "' + "x" * 1_000_000, encoding="utf-8")
    seen = []
    with pytest.raises(InvalidCatalogue):
        list(read_items(path, lambda done, size: seen.append(done)))
    assert max(seen) < 100_000


def test_progress_counts_the_bytes_of_the_file(path, chunk):
    path.write_text(json.dumps(["\u2603" * 50] * 40, ensure_ascii=False), encoding="utf-8")
    seen = []
    list(read_items(path, lambda done, size: seen.append((done, size))))
    size = path.stat().st_size
    assert seen[-1] == (size, size)
    assert seen == sorted(seen)
