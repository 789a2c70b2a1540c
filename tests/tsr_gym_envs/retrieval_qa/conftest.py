"""What is left out of these tests where the libraries of models are not installed."""

from importlib.util import find_spec

import pytest

# Doctests are looked for in every file, which is imported for it.
collect_ignore = [] if find_spec("torch") else ["with_dense.py"]


@pytest.fixture(scope="session")
def mini_index(shared, tmp_path_factory):
    """The index of the real small corpus, built once."""
    from tsr_gym_envs.retrieval_qa.corpus import build_index

    corpus = shared / "data" / "retrieval" / "mini_corpus.jsonl"
    return build_index(corpus, tmp_path_factory.mktemp("mini") / "index", link=True)
