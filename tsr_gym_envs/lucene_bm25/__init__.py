"""BM25 exactly as Lucene and Anserini compute it, in an index on disk that processes share."""

from tsr_gym_envs.lucene_bm25.analysis import analyse
from tsr_gym_envs.lucene_bm25.index import BM25Index, Hit

__all__ = ["BM25Index", "Hit", "analyse"]
