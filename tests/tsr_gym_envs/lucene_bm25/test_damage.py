"""Flipped bits and zeroed pages in every file of an index: refused where they can be noticed, and never a crash."""

import pytest

from tests.tsr_gym_envs.lucene_bm25.damage import corpus, count, damages
from tsr_gym_envs.lucene_bm25 import BM25Index


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    home = tmp_path_factory.mktemp("damage") / "index"
    BM25Index.build(corpus(), home)
    return home


@pytest.mark.parametrize("num_flips", [6, pytest.param(400, marks=pytest.mark.deep)])
def test_a_damaged_file_is_refused_whatever_is_damaged(folder, num_flips):
    outcomes = count(folder, damages(folder, num_flips), keep_time=False)
    assert set(outcomes) <= {"refused", "no change"}, outcomes
    assert outcomes["refused"] > 150


@pytest.mark.parametrize("num_flips", [6, pytest.param(400, marks=pytest.mark.deep)])
def test_damage_that_nobody_can_notice_ends_in_hits_or_a_refusal_and_never_in_a_crash(folder, num_flips):
    outcomes = count(folder, damages(folder, num_flips), keep_time=True)
    assert set(outcomes) <= {"refused", "no change", "same hits", "other hits"}, outcomes
