"""BM25 exactly as Lucene and Anserini compute it, in an index on disk that processes share."""

from tsr_gym.optional import require

# Before the imports below, so that a missing extra raises MissingExtra with the pip command.
require("numba", "envs")

from tsr_gym_envs.lucene_bm25.analysis import analyse  # noqa: E402
from tsr_gym_envs.lucene_bm25.index import BM25Index, Hit  # noqa: E402

__all__ = ["BM25Index", "Hit", "analyse"]
