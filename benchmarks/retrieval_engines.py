"""The engines that retrieval_speed.py compares, each in the form its authors recommend, behind two functions.

`build(corpus, out)` indexes a file of JSON lines with id and contents; `open_(out)` returns a function from queries
and k to lists of (id, score).
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

Search = Callable[[list[str], int], list[list[tuple[str, float]]]]
K1, B = 0.9, 0.4


class Engine(NamedTuple):
    """How an engine is used, and what must be importable for it."""

    build: Callable[[Path, Path], None]
    open_: Callable[[Path], Search]
    packages: tuple[str, ...]
    settings: str


def rows(corpus: Path) -> Iterator[tuple[str, str]]:
    """Yield ids and texts."""
    with open(corpus, encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            yield row["id"], row["contents"]


def build_ours(corpus: Path, out: Path) -> None:
    """Index with this project's BM25."""
    from tsr_gym_envs.lucene_bm25 import BM25Index

    BM25Index.build(rows(corpus), out, k1=K1, b=B)


def open_ours(out: Path) -> Search:
    """Open this project's index."""
    from tsr_gym_envs.lucene_bm25 import BM25Index

    index = BM25Index.open(out)
    return lambda queries, k: [[(hit.id, hit.score) for hit in hits] for hits in index.search(queries, k)]


def build_bm25s(corpus: Path, out: Path) -> None:
    """Index with bm25s; its ids are kept beside it."""
    import bm25s
    import Stemmer

    ids, texts = zip(*rows(corpus), strict=True)
    tokens = bm25s.tokenize(texts, stopwords="en", stemmer=Stemmer.Stemmer("english"), show_progress=False)
    retriever = bm25s.BM25(method="lucene", k1=K1, b=B, backend="numba")
    retriever.index(tokens, show_progress=False)
    retriever.save(str(out))
    (out / "ids.json").write_text(json.dumps(ids))


def open_bm25s(out: Path) -> Search:
    """Open an index of bm25s, memory-mapped."""
    import bm25s
    import Stemmer

    retriever, stemmer = bm25s.BM25.load(str(out), mmap=True), Stemmer.Stemmer("english")
    retriever.backend = "numba"
    ids = json.loads((out / "ids.json").read_text())

    def search(queries: list[str], k: int) -> list[list[tuple[str, float]]]:
        tokens = bm25s.tokenize(queries, stopwords="en", stemmer=stemmer, return_ids=False, show_progress=False)
        found, scores = retriever.retrieve(tokens, k=min(k, len(ids)), show_progress=False, n_threads=1)
        return [
            [(ids[number], float(score)) for number, score in zip(*of_query, strict=True)]
            for of_query in zip(found.tolist(), scores.tolist(), strict=True)
        ]

    return search


def _tantivy_index(out: Path) -> tuple[Any, Any]:
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("id", stored=True, tokenizer_name="raw")
    builder.add_text_field("contents", tokenizer_name="en_stem", index_option="freq")
    schema = builder.build()
    out.mkdir(exist_ok=True)
    return schema, tantivy.Index(schema, str(out))


def build_tantivy(corpus: Path, out: Path) -> None:
    """Index with tantivy; it has k1 = 1.2 and b = 0.75 built in."""
    import tantivy

    _, index = _tantivy_index(out)
    writer = index.writer(500_000_000, 1)
    for name, text in rows(corpus):
        writer.add_document(tantivy.Document(id=name, contents=text))
    writer.commit()
    writer.wait_merging_threads()


def open_tantivy(out: Path) -> Search:
    """Open an index of tantivy."""
    import tantivy

    schema, index = _tantivy_index(out)
    index.reload()
    searcher = index.searcher()
    analyser = (
        tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
        .filter(tantivy.Filter.lowercase())
        .filter(tantivy.Filter.stemmer("english"))
        .build()
    )

    def search_one(query: str, k: int) -> list[tuple[str, float]]:
        terms = [tantivy.Query.term_query(schema, "contents", term) for term in analyser.analyze(query)]
        either = tantivy.Query.boolean_query([(tantivy.Occur.Should, term) for term in terms])
        return [(searcher.doc(place)["id"][0], score) for score, place in searcher.search(either, k).hits]

    return lambda queries, k: [search_one(query, k) for query in queries]


def build_lucene(corpus: Path, out: Path) -> None:
    """Index with Lucene, as ``python -m pyserini.index.lucene`` does with one thread."""
    from tsr_gym_envs.lucene_java import java

    indexer = java().named("io.anserini.index.SimpleIndexer")(str(out))
    for name, text in rows(corpus):
        indexer.addRawDocument(json.dumps({"id": name, "contents": text}))
    indexer.close()


def open_lucene(out: Path) -> Search:
    """Open an index of Lucene through the jar of Pyserini, without its Python wrapper and what that imports."""
    from tsr_gym_envs.lucene_java import lucene_searcher

    searcher = lucene_searcher(out, K1, B)
    return lambda queries, k: [
        [(str(hit.docid), float(hit.score)) for hit in searcher.search(query, k)] for query in queries
    ]


ENGINES = {
    "ours": Engine(build_ours, open_ours, ("numba", "Stemmer", "regex"), "k1=0.9 b=0.4"),
    "bm25s": Engine(
        build_bm25s, open_bm25s, ("bm25s", "Stemmer", "numba"), "method=lucene k1=0.9 b=0.4 backend=numba mmap, Porter2"
    ),
    "tantivy": Engine(build_tantivy, open_tantivy, ("tantivy",), "k1=1.2 b=0.75 fixed, en_stem, freq, one thread"),
    "lucene": Engine(build_lucene, open_lucene, ("pyserini", "jnius"), "Pyserini's jar, k1=0.9 b=0.4"),
}
