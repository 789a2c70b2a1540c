"""Retrieval: this project's BM25, bm25s, tantivy and Lucene itself, on the same passages and queries.

Run: python -m benchmarks.retrieval_speed [SIZE ...] [--engines ours,bm25s,tantivy,lucene] [--work FOLDER]

The 19,863 real passages come first, then made-up ones in each SIZE (such as 178000 1000000 4000000). Every step is a
separate process, so that memory is that step's. Times are processor time, children included. What an engine finds is
compared with what ours finds before any query is timed. An engine that cannot be imported is named in the result.
"""

import argparse
import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import SHARED, installed, run_timed, shared_rows, write_result

STOP_WORDS = [
    "the",
    "of",
    "and",
    "in",
    "to",
    "a",
    "is",
    "was",
    "as",
    "for",
    "by",
    "with",
    "it",
    "on",
    "that",
    "be",
    "at",
    "are",
    "an",
    "this",
]
P_STOP = 0.25
P_TOPIC = 0.2
# Of Zipf's law: frequency ~ 1 / (rank + SHIFT) ** EXPONENT.
EXPONENT, SHIFT, RANKS = 1.35, 90.0, 20_000_000
AT_A_TIME = 4096


@lru_cache(maxsize=1 << 20)
def word(rank: int) -> str:
    """Return the word of a rank: frequent words are short."""
    letters = ""
    while True:
        rank, syllable = divmod(rank, 85)
        letters += "bcdfghklmnprstvwz"[syllable // 5] + "aeiou"[syllable % 5]
        if rank == 0:
            return letters + "nrstlm"[len(letters) % 6]
        rank -= 1


def ranks(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """Draw ranks by Zipf's law."""
    low, high = SHIFT ** (1 - EXPONENT), (RANKS + SHIFT) ** (1 - EXPONENT)
    return ((low + rng.random(size) * (high - low)) ** (1 / (1 - EXPONENT)) - SHIFT).astype(np.int64)


def passages(num: int, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Yield (id, text) of passages of 100 words on average; a longer corpus begins with the shorter one of its seed."""
    rng = np.random.default_rng(seed)
    for first in range(0, num, AT_A_TIME):
        lengths = np.clip(rng.normal(100, 25, AT_A_TIME), 20, 250).astype(int)
        ends = np.cumsum(lengths)
        drawn = ranks(rng, int(ends[-1]))
        kinds = rng.random(drawn.size)
        picks = rng.integers(0, 1 << 30, drawn.size)
        for number in range(min(AT_A_TIME, num - first)):
            start, end = ends[number] - lengths[number], ends[number]
            topic = drawn[start : start + 8]
            own = np.where(kinds[start:end] < P_STOP + P_TOPIC, topic[picks[start:end] % topic.size], drawn[start:end])
            words = [word(rank) for rank in own.tolist()]
            for place in np.flatnonzero(kinds[start:end] < P_STOP).tolist():
                words[place] = STOP_WORDS[int(picks[start + place]) % len(STOP_WORDS)]
            yield str(first + number), " ".join(words)


def queries(num: int, corpus: Path, seed: int = 1, fewest: int = 4, most: int = 9) -> list[str]:
    """Return queries of words that stand together in a passage of a corpus file, stop words left out."""
    rng = np.random.default_rng(seed)
    drawn: list[str] = []
    with open(corpus, "rb") as file:
        length = file.seek(0, 2)
        while len(drawn) < num:
            file.seek(int(rng.integers(0, length)))
            file.readline()
            line = file.readline()
            if line:
                words = [word for word in json.loads(line)["contents"].split() if word not in STOP_WORDS]
                size = min(int(rng.integers(fewest, most + 1)), len(words))
                drawn.append(" ".join(rng.choice(words, size, replace=False)))
    return drawn


def write_corpus(path: Path, num: int, seed: int = 0) -> None:
    """Write a corpus as JSON lines of id and contents."""
    with open(path, "w", encoding="utf-8") as file:
        for name, text in passages(num, seed):
            file.write(f'{{"id": "{name}", "contents": "{text}"}}\n')


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
    """Index with bm25s; its ids are kept in the same folder."""
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
        places, scores = retriever.retrieve(tokens, k=min(k, len(ids)), show_progress=False, n_threads=1)
        return [
            [(ids[number], float(score)) for number, score in zip(*of_query, strict=True)]
            for of_query in zip(places.tolist(), scores.tolist(), strict=True)
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


TOP, BATCH, NUM_QUERIES, PLAN = 3, 64, 500, 21_000_000
LONG_WORDS, LONG_TOP = 30, 50


def cpu_seconds() -> float:
    """Return the processor time of this process and its children."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(sum(resource.getrusage(who)[:2]) for who in kinds)


def private_mb() -> float:
    """Return the memory that no other process shares."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024


def index(engine: str, corpus: Path, out: Path) -> dict[str, float]:
    """Build an index; what is loaded or compiled once is not counted."""
    with tempfile.TemporaryDirectory() as small:
        few = Path(small) / "few.jsonl"
        few.write_text('{"id": "0", "contents": "a small corpus"}\n{"id": "1", "contents": "to warm up"}\n')
        ENGINES[engine].build(few, Path(small) / "index")
    start = cpu_seconds()
    ENGINES[engine].build(corpus, out)
    seconds = cpu_seconds() - start
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    disk = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    return {"index_cpu_s": seconds, "index_peak_mb": peak / 1024, "disk_bytes": disk}


def find(engine: str, out: Path, asked: list[str]) -> list[list[tuple[str, float]]]:
    """Return the hits of every query."""
    return ENGINES[engine].open_(out)(asked, TOP)


def timed(search: Search, asked: list[str], k: int, batch: int) -> dict[str, float]:
    """Return queries a second and percentiles of the time of one call."""
    parts = [asked[start : start + batch] for start in range(0, len(asked), batch)]
    seconds = []
    for part in parts:
        start = time.process_time()
        search(part, k)
        seconds.append(time.process_time() - start)
    p50, p99 = np.percentile(seconds, [50, 99]) * 1e3
    return {"queries_per_s": len(asked) / sum(seconds), "p50_ms": p50, "p99_ms": p99}


def speed(engine: str, out: Path, asked: list[str], long: list[str]) -> dict[str, Any]:
    """Return load time and speeds; everything has been read once before, and the time of the very first search."""
    start = time.perf_counter()
    ENGINES[engine].open_(out)(asked[:1], TOP)
    first = time.perf_counter() - start
    start = time.perf_counter()
    search = ENGINES[engine].open_(out)
    numbers: dict[str, Any] = {"first_search_s": first, "load_s": time.perf_counter() - start}
    search(asked, TOP)
    # The collector of garbage would look through all that numba keeps.
    gc.collect()
    gc.freeze()
    numbers |= {"single": timed(search, asked, TOP, 1), "batch": timed(search, asked, TOP, BATCH)}
    if long:
        search(long, LONG_TOP)
        numbers["long_top_50"] = timed(search, long, LONG_TOP, 1)
    return numbers


def memory(engine: str, out: Path, asked: list[str]) -> dict[str, float]:
    """Return the private memory of a process while another one uses the same index, and what the index adds."""
    with tempfile.TemporaryDirectory() as small:
        few = Path(small) / "few.jsonl"
        few.write_text('{"id": "0", "contents": "a small corpus"}\n{"id": "1", "contents": "to warm up"}\n')
        ENGINES[engine].build(few, Path(small) / "index")
        ENGINES[engine].open_(Path(small) / "index")(["small"], 1)
    before = private_mb()
    search = ENGINES[engine].open_(out)
    search(asked, TOP)
    after = private_mb()
    return {"private_mb": after, "private_mb_of_index": after - before}


def hold(engine: str, out: Path, asked: list[str]) -> None:
    """Use an index until standard input is closed."""
    search = ENGINES[engine].open_(out)
    search(asked, TOP)
    print(json.dumps("ready"), flush=True)
    sys.stdin.read()


STEPS: dict[str, Callable[..., Any]] = {step.__name__: step for step in (index, find, speed, memory, hold)}


def step_main(step: str, engine: str, arguments: Path) -> None:
    """Do one step in this process and print what came out."""
    given = json.loads(arguments.read_text(encoding="utf-8"))
    paths = [Path(value) if name in ("corpus", "out") else value for name, value in given.items()]
    came = STEPS[step](engine, *paths)
    if came is not None:
        print(json.dumps(came))


def start(step: str, engine: str, work: Path, **given: Any) -> subprocess.Popen[str]:
    """Start a step in a separate process."""
    arguments = work / f"{engine}-{step}.json"
    arguments.write_text(json.dumps(given, default=str), encoding="utf-8")
    command = [sys.executable, "-m", "benchmarks.retrieval_speed", "--step", step, engine, str(arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run(step: str, engine: str, work: Path, **given: Any) -> Any:
    """Do a step in a separate process and return its result."""
    child = start(step, engine, work, **given)
    output = child.communicate()[0]
    if child.returncode:
        raise SystemExit(f"{engine}: {step} failed")
    return json.loads(output.splitlines()[-1])


def agreement(ours: list[Any], theirs: list[Any]) -> dict[str, float]:
    """Return how often two engines find the same, in any order and in the same order."""
    pairs = [([hit[0] for hit in own], [hit[0] for hit in other]) for own, other in zip(ours, theirs, strict=True)]
    return {
        "same_set": float(np.mean([set(own) == set(other) for own, other in pairs])),
        "same_order": float(np.mean([own == other for own, other in pairs])),
    }


def measure_corpus(corpus: Path, asked: list[str], long: list[str], engines: list[str], work: Path) -> dict[str, Any]:
    """Measure all engines on a corpus; ours is first, and the others' hits are compared with its."""
    hits_of, numbers = {}, {}
    for engine in engines:
        out = work / f"{corpus.stem}-{engine}"
        numbers[engine] = run("index", engine, work, corpus=corpus, out=out)
        hits_of[engine] = run("find", engine, work, out=out, asked=asked)
        numbers[engine] |= {"with_ours": agreement(hits_of["ours"], hits_of[engine])}
    for engine in engines:
        out = work / f"{corpus.stem}-{engine}"
        numbers[engine] |= run("speed", engine, work, out=out, asked=asked, long=long)
        holder = start("hold", engine, work, out=out, asked=asked)
        assert holder.stdout is not None
        holder.stdout.readline()
        numbers[engine] |= run("memory", engine, work, out=out, asked=asked)
        holder.communicate()
    return numbers


def with_golden(hits: list[Any]) -> dict[str, float]:
    """Return how often the real questions' hits are those of the golden run of Pyserini."""
    rows = shared_rows("golden/retrieval/pyserini_hits.jsonl")
    return agreement([row["hits"][:TOP] for row in rows], hits)


def plan(sizes: dict[int, dict[str, Any]]) -> dict[str, float]:
    """Extrapolate the cost of 21 M passages by the straight line through the two largest sizes."""
    (small, first), (large, second) = sorted(sizes.items())[-2:]

    def at_plan(name: str) -> float:
        slope = (second[name] - first[name]) / (large - small)
        return float(second[name] + slope * (PLAN - large))

    query_ms = {size: 1e3 / numbers["single"]["queries_per_s"] for size, numbers in sizes.items()}
    slope = (query_ms[large] - query_ms[small]) / (large - small)
    return {
        "passages": PLAN,
        "from": [small, large],
        "disk_gb": at_plan("disk_bytes") / 1e9,
        "index_cpu_minutes": at_plan("index_cpu_s") / 60,
        "queries_per_s": 1e3 / (query_ms[large] + slope * (PLAN - large)),
    }


def versions(engines: list[str]) -> dict[str, str]:
    """Return the versions of the engines' packages, by the names they are installed under."""
    names = {"Stemmer": "PyStemmer", "jnius": "pyjnius"}
    return installed(sorted({names.get(package, package) for name in engines for package in ENGINES[name].packages}))


def main() -> None:
    """Measure, and write results/retrieval_speed.json."""
    parser = argparse.ArgumentParser()
    parser.add_argument("sizes", nargs="*", type=int)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--work", type=Path)
    parser.add_argument("--step", nargs=3)
    given = parser.parse_args()
    if given.step:
        return step_main(given.step[0], given.step[1], Path(given.step[2]))
    wanted = ["ours", *(name for name in given.engines.split(",") if name != "ours")]
    missing = {name: [package for package in ENGINES[name].packages if find_spec(package) is None] for name in wanted}
    engines = [name for name in wanted if not missing[name]]
    corpora: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=given.work) as folder:
        work = Path(folder)
        questions = [row["query"] for row in shared_rows("golden/retrieval/pyserini_hits.jsonl")]
        real = SHARED / "data/retrieval/mini_corpus.jsonl"
        corpora["real"] = measure_corpus(real, questions, [], engines, work)
        hits = run("find", "ours", work, out=work / f"{real.stem}-ours", asked=questions)
        corpora["real"]["ours"]["with_golden_pyserini"] = with_golden(hits)
        for size in given.sizes:
            corpus = work / f"made-up-{size}.jsonl"
            write_corpus(corpus, size)
            asked = queries(NUM_QUERIES, corpus)
            long = queries(NUM_QUERIES // 5, corpus, fewest=LONG_WORDS, most=LONG_WORDS)
            corpora[str(size)] = measure_corpus(corpus, asked, long, engines, work)
    numbers: dict[str, Any] = {
        "top": TOP,
        "batch": BATCH,
        "settings": {name: ENGINES[name].settings for name in engines},
        "engine_versions": versions(engines),
        "not_importable": {name: packages for name, packages in missing.items() if packages},
        "corpora": corpora,
    }
    if len(given.sizes) > 1:
        numbers["plan_ours"] = plan({size: corpora[str(size)]["ours"] for size in given.sizes})
    write_result("retrieval_speed", numbers)


if __name__ == "__main__":
    # A step is a separate process of a measurement.
    main() if "--step" in sys.argv else run_timed(main)
