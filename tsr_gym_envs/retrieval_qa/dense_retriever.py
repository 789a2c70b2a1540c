"""DenseRetriever: passages by the inner product of embeddings, from any sentence-transformers encoder and faiss.

The encoder turns tokens into one vector; vectors are scaled to length 1 here.
"""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import blake2b, file_digest, sha256
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tsr_gym.errors import ConfigError, InvalidCorpus
from tsr_gym.files import write_whole
from tsr_gym.optional import require
from tsr_gym_envs.retrieval_qa.contract import Passage
from tsr_gym_envs.retrieval_qa.corpus import Corpus, Progress, open_corpus, write_corpus

DENSE = "dense.json"
VECTORS = "vectors.faiss"
FORMAT = 1
# Passages that are encoded between two additions to the index.
CHUNK = 4096
Floats = NDArray[np.float32]


class DenseRetriever:
    """Find passages by embeddings.

    Args:
        folder: What `build_dense_index` wrote.
        encoder: Name or folder of the encoder, None for the one that the index was made with.
        device: Of the encoder, such as ``"cuda"``; None for sentence-transformers' choice.
        batch_size: Queries that are encoded and looked up together. With 1 the results depend on the query alone.
            Larger batches are faster, but the last bits of a score can depend on the other queries of the batch.

    Raises:
        InvalidCorpus: The folder is missing or damaged, or the encoder's weights are not those of the index.
        MissingExtra: sentence-transformers or faiss is not installed.
    """

    def __init__(
        self, folder: str | Path, *, encoder: str | Path | None = None, device: str | None = None, batch_size: int = 1
    ) -> None:
        _require_engines()
        self._folder, self._batch_size = Path(folder), batch_size
        about = _about(self._folder)
        self._again = partial(DenseRetriever, encoder=encoder, device=device, batch_size=batch_size)
        self._corpus = open_corpus(self._folder)
        self._encoder = _load_encoder(str(encoder or about["encoder"]), device)
        weights = _digest_of_weights(self._encoder)
        if weights != about["encoder_digest"]:
            raise InvalidCorpus(
                f"{folder}: made with the encoder {about['encoder']} of digest {about['encoder_digest']}, got one of "
                f"{weights}; name that encoder, or index the corpus again"
            )
        self._prefix = str(about["query_prefix"])
        self._vectors = _read_vectors(self._folder / VECTORS, about, len(self._corpus))
        parts = [self._corpus.digest, weights, self._prefix, about["vectors_digest"], about["ef_search"]]
        self.digest = blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        return self._again, (self._folder,)

    def retrieve(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """Return the best `k` passages of each query, best first, scored by the cosine of their embeddings."""
        results: list[list[Passage]] = []
        for start in range(0, len(queries), self._batch_size):
            vectors = _encode(self._encoder, queries[start : start + self._batch_size], self._prefix)
            scores, numbers = self._vectors.search(vectors, min(k, len(self._corpus)))
            for row in range(len(vectors)):
                hits = zip(numbers[row].tolist(), scores[row].tolist(), strict=True)
                # A graph may hold fewer than k passages within reach; faiss fills up with -1.
                results.append([self._corpus.passage(number, score) for number, score in hits if number >= 0])
        return results


def build_dense_index(
    corpus_jsonl: str | Path,
    out: str | Path,
    encoder: str | Path,
    progress: Progress | None = None,
    *,
    structure: Literal["flat", "hnsw"] = "flat",
    query_prefix: str = "query: ",
    passage_prefix: str = "passage: ",
    device: str | None = None,
    batch_size: int = 64,
    links: int = 32,
    ef_search: int = 128,
    link: bool = False,
) -> Path:
    """Index a jsonl file of passages by their embeddings, and return the folder.

    The folder appears when it is complete, as that of `build_index` does. All vectors are in memory while it is made.

    Args:
        corpus_jsonl: The passages.
        out: The folder.
        encoder: Name or folder of a sentence-transformers encoder; of a plain transformer the mean over the tokens is
            taken.
        progress: Called with a stage, how much of it is done, and how much there is, now and then.
        structure: ``"flat"`` compares with every passage, ``"hnsw"`` walks a graph and may miss some.
        query_prefix: Set before each query; that of the E5 encoders by default.
        passage_prefix: Set before each passage.
        device: Of the encoder; None for sentence-transformers' choice.
        batch_size: Passages that are encoded together.
        links: Neighbours of a passage in the graph.
        ef_search: Candidates that a walk through the graph keeps.
        link: Whether the folder only names the file instead of copying it.

    Raises:
        InvalidCorpus: A row is malformed or two rows have the same id.
        ConfigError: `structure` is none of the two, or something else stands at `out`.
    """
    _require_engines()
    if structure not in ("flat", "hnsw"):
        raise ConfigError(f'wanted the structure "flat" or "hnsw", got {structure!r}')
    about = {
        "format": FORMAT,
        "encoder": str(encoder),
        "kind": structure,
        "query_prefix": query_prefix,
        "passage_prefix": passage_prefix,
        "links": links,
        "ef_search": ef_search,
    }

    def write(folder: Path) -> None:
        write_corpus(Path(corpus_jsonl), folder, link=link, progress=progress)
        model = _load_encoder(str(encoder), device)
        _write_vectors(folder, open_corpus(folder), model, about, batch_size, progress)

    write_whole(Path(out), DENSE, write)
    return Path(out)


def _write_vectors(
    folder: Path, corpus: Corpus, model: Any, about: dict[str, Any], batch_size: int, progress: Progress | None
) -> None:
    import faiss

    index: Any = None
    for texts in _chunks(corpus):
        vectors = _encode(model, texts, about["passage_prefix"], batch_size)
        if index is None:
            width = vectors.shape[1]
            index = (
                faiss.IndexFlatIP(width)
                if about["kind"] == "flat"
                else faiss.IndexHNSWFlat(width, about["links"], faiss.METRIC_INNER_PRODUCT)
            )
        index.add(vectors)
        if progress:
            progress("encoding", index.ntotal, len(corpus))
    faiss.write_index(index, str(folder / VECTORS))
    with open(folder / VECTORS, "rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    manifest = about | {"encoder_digest": _digest_of_weights(model), "vectors_digest": digest}
    (folder / DENSE).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def _chunks(corpus: Corpus) -> Iterator[list[str]]:
    contents = (row.contents for row in corpus.rows())
    while chunk := list(islice(contents, CHUNK)):
        yield chunk


def _read_vectors(path: Path, about: dict[str, Any], num_passages: int) -> Any:
    import faiss

    try:
        # Vectors without a graph can stay on disk, where processes share them.
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP if about["kind"] == "flat" else 0)
    except RuntimeError as error:
        raise InvalidCorpus(f"{path}: damaged ({error}); index the corpus again") from error
    if index.ntotal != num_passages:
        raise InvalidCorpus(f"{path}: {index.ntotal} vectors of {num_passages} passages; index the corpus again")
    if about["kind"] == "hnsw":
        index.hnsw.efSearch = about["ef_search"]
    return index


def _about(folder: Path) -> dict[str, Any]:
    try:
        about = json.loads((folder / DENSE).read_text(encoding="utf-8"))
        wanted = {"encoder", "encoder_digest", "kind", "query_prefix", "vectors_digest", "ef_search"}
        if about["format"] != FORMAT or not wanted <= set(about):
            raise ValueError(f"wanted format {FORMAT} with {sorted(wanted)}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidCorpus(f"{folder}: no dense index ({type(error).__name__}: {error})") from error
    return dict(about)


def _require_engines() -> None:
    require("sentence_transformers", "dense")
    require("faiss", "dense")


def _load_encoder(name: str, device: str | None) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(name, device=device, trust_remote_code=False)


def _encode(model: Any, texts: Sequence[str], prefix: str, batch_size: int = 32) -> Floats:
    # A query can hold half a surrogate pair, which tokenizers refuse.
    whole = [(prefix + text).encode(errors="replace").decode() for text in texts]
    vectors = model.encode(whole, batch_size=batch_size, normalize_embeddings=True, show_progress_bar=False)
    return np.ascontiguousarray(vectors, np.float32)


def _digest_of_weights(model: Any) -> str:
    digest = sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().float().contiguous().numpy())
    return digest.hexdigest()
