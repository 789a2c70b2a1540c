"""The dense engine where its libraries are missing; with_dense.py tests it where they are installed."""

import pytest

from tsr_gym import MissingExtra
from tsr_gym_envs.retrieval_qa.dense_retriever import DenseRetriever, build_dense_index


@pytest.mark.parametrize("missing", ["sentence_transformers", "faiss"])
def test_what_is_missing_is_named_with_its_extra(tmp_path, monkeypatch, missing):
    monkeypatch.setattr("tsr_gym.optional.find_spec", lambda name: None if name == missing else object())
    for use in (lambda: DenseRetriever(tmp_path), lambda: build_dense_index(tmp_path, tmp_path, "encoder")):
        with pytest.raises(MissingExtra, match=rf"{missing}.*tsr-gym\[dense\]"):
            use()
