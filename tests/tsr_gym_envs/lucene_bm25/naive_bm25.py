"""BM25 as the formula has it, every passage scored, in plain Python and single precision: the twin of the index."""

import math
from collections import Counter

import numpy as np

from tsr_gym_envs.lucene_bm25 import analyse

f32 = np.float32


def byte4(length):
    """SmallFloat.byte4ToInt(SmallFloat.intToByte4(length)), from its description: 24 exact, then 4 significant bits."""
    if length < 24:
        return length
    rest = length - 24
    shift = max(0, rest.bit_length() - 4)
    return 24 + (rest >> shift << shift)


class NaiveBM25:
    def __init__(self, passages, k1=0.9, b=0.4):
        self.ids = [name for name, _ in passages]
        self.counts = [Counter(analyse(text)) for _, text in passages]
        lengths = [counts.total() for counts in self.counts]
        self.num = sum(length > 0 for length in lengths)
        mean = f32(sum(lengths) / max(1, self.num))
        k1, b = f32(k1), f32(b)
        with np.errstate(divide="ignore"):
            self.inverse = [f32(1) / (k1 * ((f32(1) - b) + b * f32(byte4(length)) / mean)) for length in lengths]

    def raw_scores(self, query):
        scores = {}
        for term, times in Counter(analyse(query)).items():
            holders = [number for number, counts in enumerate(self.counts) if term in counts]
            idf = f32(math.log(1 + (self.num - len(holders) + 0.5) / (len(holders) + 0.5)))
            weight = f32(times) * idf
            for number in holders:
                share = weight - weight / (f32(1) + f32(self.counts[number][term]) * self.inverse[number])
                scores[number] = scores.get(number, 0.0) + float(share)
        return {number: f32(score) for number, score in scores.items()}

    def search(self, query, k):
        """Return (id, score, number), best first."""
        scores = self.raw_scores(query)
        best = sorted(scores, key=lambda number: (-scores[number], self.ids[number].encode()))[:k]
        reported = []
        ties = 0
        for number in best:
            score = f32(math.floor(float(scores[number]) * 1e4 + 0.5) / 1e4)
            ties = ties + 1 if reported and not reported[-1] - score > f32(1e-4) else 0
            reported.append(score - f32(1e-6) * f32(ties) if ties else score)
        return [(self.ids[number], float(score), number) for number, score in zip(best, reported, strict=True)]
