"""The dense engine with a tiny random encoder, compared with numpy; `make test-dense` runs it with its libraries."""

import pickle

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, BertTokenizerFast

from tests.tsr_gym_envs.retrieval_qa.fakes import write_rows
from tsr_gym import ConfigError, InvalidCorpus
from tsr_gym_envs.retrieval_qa.corpus import build_index, open_corpus
from tsr_gym_envs.retrieval_qa.dense_retriever import DenseRetriever, build_dense_index
from tsr_gym_envs.retrieval_qa.server import open_retriever

WORDS = [f"{a}{b}" for a in "bdfgklmn" for b in ("ar", "el", "in", "on", "um")]


def tiny_encoder(folder, seed):
    """Write a BERT of two narrow layers with random weights; sentence-transformers takes the mean of its tokens."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "query", "passage", ":", '"', ".", *WORDS]
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64, initializer_range=0.5,
    )  # fmt: skip
    BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return tiny_encoder(tmp_path_factory.mktemp("encoders") / "one", 0)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return [
        {"id": f"p{number}", "contents": f'"{rng.choice(WORDS)}"\n' + " ".join(rng.choice(WORDS, rng.integers(3, 20)))}
        for number in range(300)
    ]


@pytest.fixture(scope="module")
def queries():
    rng = np.random.default_rng(1)
    return [" ".join(rng.choice(WORDS, 4)) for _ in range(40)]


@pytest.fixture(scope="module")
def path(rows, tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", rows)


@pytest.fixture(scope="module", params=["flat", "hnsw"])
def folder(request, path, encoder, tmp_path_factory):
    return build_dense_index(path, tmp_path_factory.mktemp("dense") / "index", encoder, structure=request.param)


def embedded(encoder, texts):
    """Return the mean over the tokens of each text, of length 1, worked out with transformers alone."""
    tokenizer, model = BertTokenizerFast.from_pretrained(encoder), BertModel.from_pretrained(encoder).eval()
    vectors = []
    for text in texts:
        with torch.no_grad():
            vector = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0)
        vectors.append((vector / vector.norm()).numpy())
    return np.stack(vectors)


def test_passages_are_ranked_by_the_inner_product_of_their_embeddings(folder, encoder, rows, queries):
    wanted = (
        embedded(encoder, [f"query: {query}" for query in queries])
        @ embedded(encoder, [f"passage: {row['contents']}" for row in rows]).T
    )
    found = DenseRetriever(folder).retrieve(queries, 5)
    best = []
    for scores, passages in zip(wanted, found, strict=True):
        numbers = [int(passage.id[1:]) for passage in passages]
        assert len(set(numbers)) == 5
        given = [passage.score for passage in passages]
        assert given == pytest.approx(scores[numbers], abs=1e-5)
        best.append(given == pytest.approx(-np.sort(-scores)[:5], abs=1e-5))
    # A walk through a graph may miss some.
    assert np.mean(best) > 0.9 if '"hnsw"' in (folder / "dense.json").read_text() else all(best)


def test_passages_come_whole(folder, path):
    (found,) = DenseRetriever(folder).retrieve([WORDS[0]], 1)
    corpus = open_corpus(path)
    assert found[0][:3] == corpus.passage(corpus.number_of(found[0].id))[:3]
    assert DenseRetriever(folder).retrieve([], 3) == []


def test_a_query_alone_and_among_others_finds_exactly_the_same(folder, queries):
    retriever = DenseRetriever(folder)
    together = retriever.retrieve(queries, 5)
    assert [retriever.retrieve([query], 5)[0] for query in queries] == together
    batched = DenseRetriever(folder, batch_size=16).retrieve(queries, 5)
    for mine, theirs in zip(batched, together, strict=True):
        assert [p.score for p in mine] == pytest.approx([p.score for p in theirs], abs=1e-5)


def test_more_passages_than_there_are_is_all_of_them(encoder, rows, tmp_path):
    few = write_rows(tmp_path / "few.jsonl", rows[:4])
    retriever = DenseRetriever(build_dense_index(few, tmp_path / "index", encoder))
    assert sorted(passage.id for passage in retriever.retrieve(["x"], 10)[0]) == ["p0", "p1", "p2", "p3"]


@pytest.mark.parametrize("query", ["", "\x00", "\ud800", "🙂", "bar " * 3000])
def test_no_query_is_an_error(folder, query):
    assert len(DenseRetriever(folder).retrieve([query], 3)[0]) == 3


def test_the_prefixes_are_those_of_the_index(encoder, path, rows, queries, tmp_path):
    bare = build_dense_index(path, tmp_path / "index", encoder, query_prefix="", passage_prefix="")
    wanted = embedded(encoder, queries[:5]) @ embedded(encoder, [row["contents"] for row in rows]).T
    for scores, passages in zip(wanted, DenseRetriever(bare).retrieve(queries[:5], 1), strict=True):
        assert passages[0].id == f"p{scores.argmax()}"


def test_the_digest_stands_for_text_encoder_and_settings(folder, encoder, path, tmp_path):
    one = DenseRetriever(folder)
    assert DenseRetriever(folder).digest == one.digest == pickle.loads(pickle.dumps(one)).digest
    other = build_dense_index(path, tmp_path / "index", encoder, query_prefix="")
    assert DenseRetriever(other).digest != one.digest


def test_another_encoder_than_that_of_the_index_is_refused(folder, tmp_path):
    other = tiny_encoder(tmp_path / "other", 1)
    with pytest.raises(InvalidCorpus, match="name that encoder"):
        DenseRetriever(folder, encoder=other)


def test_the_encoder_may_have_moved(folder, encoder, queries, tmp_path):
    from sentence_transformers import SentenceTransformer

    SentenceTransformer(str(encoder)).save(str(tmp_path / "moved"))
    moved = DenseRetriever(folder, encoder=tmp_path / "moved")
    assert moved.digest == DenseRetriever(folder).digest
    assert moved.retrieve(queries, 3) == DenseRetriever(folder).retrieve(queries, 3)


@pytest.mark.parametrize("file", ["dense.json", "vectors.faiss", "corpus.json"])
@pytest.mark.parametrize("harm", ["cut", "gone"])
def test_a_damaged_folder_is_refused(encoder, path, tmp_path, file, harm):
    folder = build_dense_index(path, tmp_path / "index", encoder)
    content = (folder / file).read_bytes()
    (folder / file).unlink()
    if harm == "cut":
        (folder / file).write_bytes(content[: len(content) // 2])
    with pytest.raises(InvalidCorpus):
        DenseRetriever(folder)


def test_an_unknown_kind_is_refused(encoder, path, tmp_path):
    with pytest.raises(ConfigError, match='"flat" or "hnsw"'):
        build_dense_index(path, tmp_path / "index", encoder, structure="tree")


def test_progress_is_told(encoder, path, tmp_path):
    news = []
    build_dense_index(path, tmp_path / "index", encoder, lambda *told: news.append(told))
    assert news[-1] == ("encoding", 300, 300)


def test_the_server_opens_either_kind_of_index(folder, path, tmp_path):
    assert isinstance(open_retriever(folder), DenseRetriever)
    assert not isinstance(open_retriever(build_index(path, tmp_path / "index")), DenseRetriever)
