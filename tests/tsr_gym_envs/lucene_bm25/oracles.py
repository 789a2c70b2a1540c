"""BM25 computed by plain Python, and damage to an index, tried in a child process that it may end."""

import json
import math
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from tests.conftest import ROOT
from tsr_gym import InvalidCorpus
from tsr_gym_envs.lucene_bm25 import BM25Index, analyse
from tsr_gym_envs.lucene_bm25.layout import DTYPES, META

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


PAGE = 4096


def corpus(num=2500):
    """Return passages whose index has several pages in most of its files."""
    rng = np.random.default_rng(0)
    words = np.array([f"w{number:x}y" for number in range(9000)])
    places = (rng.zipf(1.3, size=(num, 40)) - 1) % len(words)
    return [(f"passage-{number:05d}", " ".join(words[row])) for number, row in enumerate(places)]


def queries(num=40):
    rng = np.random.default_rng(1)
    texts = [text.split() for _, text in corpus()]
    return [" ".join(rng.choice(texts[int(rng.integers(len(texts)))], 4)) for _ in range(num)]


def damages(folder, num_flips):
    """Return (file, kind, place) of bits that are flipped and of pages that are zeroed, in every file.

    Among the bits are the highest of the first entries that bisection looks at, which lead farthest away.
    """
    found = []
    for name in (*DTYPES, META):
        size, draw = (folder / name).stat().st_size, random.Random(name)
        flips = [draw.randrange(8 * size) for _ in range(num_flips)]
        if name in DTYPES:
            width = np.dtype(DTYPES[name]).itemsize
            flips += [8 * width * (size // width * part // 8) + 8 * width - 1 for part in range(1, 8)]
        found += [(name, "flip", place) for place in flips]
        found += [(name, "zero", page) for page in range(-(-size // PAGE))]
    return found


def damaged(data, kind, place):
    """Return the bytes of a file with a damage."""
    changed = bytearray(data)
    if kind == "flip":
        changed[place // 8] ^= 1 << place % 8
    else:
        part = slice(place * PAGE, (place + 1) * PAGE)
        changed[part] = bytes(len(changed[part]))
    return bytes(changed)


def outcome(folder, wanted, asked):
    """Return the outcome of opening a folder and searching: the same hits, others, a refusal, or another error."""
    try:
        index = BM25Index.open(folder)
        found = index.search(asked, 10)
    except InvalidCorpus:
        return "refused"
    except Exception as error:
        return type(error).__name__
    return "same hits" if (index.digest, found) == wanted else "other hits"


def try_all(folder, todo, keep_time):
    """Write the outcome of each damage as soon as it is known, and repair it."""
    sound, asked = BM25Index.open(folder), queries()
    wanted = (sound.digest, sound.search(asked, 10))
    for name, kind, place in todo:
        file = folder / name
        data, stat = file.read_bytes(), file.stat()
        changed = damaged(data, kind, place)
        file.write_bytes(changed)
        if keep_time:
            os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        sys.stdout.write(f"{name}: {'no change' if changed == data else outcome(folder, wanted, asked)}\n")
        sys.stdout.flush()
        file.write_bytes(data)
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def outcomes(folder, todo, *, keep_time):
    """Return the outcome of each damage; a process that dies of one is a crash, and another process continues.

    Args:
        folder: A sound index; what is damaged is a copy.
        todo: Some of what `damages` returned.
        keep_time: Whether files keep their times of change, so that the change is not visible.
    """
    found, copy = [], folder.with_name("copy")
    while len(found) < len(todo):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        command = [sys.executable, "-m", "tests.tsr_gym_envs.lucene_bm25.oracles", str(copy), json.dumps(keep_time)]
        rest = json.dumps(todo[len(found) :])
        done = subprocess.run(command, input=rest, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode <= 0, done.stderr
        found += [line.partition(": ")[2] for line in done.stdout.splitlines()]
        if done.returncode < 0:
            found.append("crash")
    return found


if __name__ == "__main__":
    try_all(Path(sys.argv[1]), json.load(sys.stdin), json.loads(sys.argv[2]))
