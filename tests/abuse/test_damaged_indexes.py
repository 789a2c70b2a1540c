"""Flipped bits and zeroed pages in every file of an index: refused where they can be noticed, and never a crash."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.abuse.counts import Counts, Outcome, counted
from tests.tsr_gym_envs.lucene_bm25.damage import corpus, damages, outcomes
from tsr_gym_envs.lucene_bm25 import BM25Index

# What reading may end in, by what was found; without a word of change hits of any kind are right.
NOTICED = {"refused": "refused", "no change": "right", "same hits": "wrong", "other hits": "wrong"}
UNSEEN = {"refused": "refused", "no change": "right", "same hits": "right", "other hits": "right"}


def campaign(count: int, seed: int, folder: Path, *, keep_time: bool) -> Counts:
    """Return what comes of damages to copies of an index.

    Args:
        count: How many.
        seed: Of the choice.
        folder: The sound index.
        keep_time: Whether the files keep their size and time, so that nobody can notice without reading them whole.
    """
    return counted(_attacks(count, np.random.default_rng(seed), folder, keep_time))


def _attacks(count: int, rng: np.random.Generator, folder: Path, keep_time: bool) -> Iterator[Outcome]:
    known = damages(folder, 6 + count // 10)
    todo = [known[place] for place in rng.permutation(len(known))[:count]]
    meant = UNSEEN if keep_time else NOTICED
    for damage, came in zip(todo, outcomes(folder, todo, keep_time=keep_time), strict=True):
        yield Outcome(meant.get(came, "crashed"), f"{damage}: {came}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    home = tmp_path_factory.mktemp("damage") / "index"
    BM25Index.build(corpus(), home)
    return home


def test_a_damaged_file_is_refused_whatever_is_damaged(hold, folder):
    counts = hold("indexes", lambda count, seed: campaign(count, seed, folder, keep_time=False), 150)
    assert counts.refused > counts.right


def test_damage_that_nobody_can_notice_ends_in_hits_or_a_refusal_and_never_in_a_crash(hold, folder):
    hold("indexes, unseen", lambda count, seed: campaign(count, seed, folder, keep_time=True), 150)
