"""Damage to an index, done in a process of its own, because a damaged index must not end the process that reads it."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.conftest import ROOT
from tsr_gym import InvalidCorpus
from tsr_gym_envs.lucene_bm25 import BM25Index
from tsr_gym_envs.lucene_bm25.layout import DTYPES, META

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
    """Return what comes of opening a folder and searching: the same hits, others, a refusal, or another error."""
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
    """Return the outcome of each damage; where a process dies of one, that is a crash, and another goes on.

    Args:
        folder: A sound index; what is damaged is a copy.
        todo: Some of what `damages` returned.
        keep_time: Whether files keep their times of change, so that nobody notices.
    """
    found, copy = [], folder.with_name("copy")
    while len(found) < len(todo):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        command = [sys.executable, "-m", "tests.tsr_gym_envs.lucene_bm25.damage", str(copy), json.dumps(keep_time)]
        rest = json.dumps(todo[len(found) :])
        done = subprocess.run(command, input=rest, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode <= 0, done.stderr
        found += [line.partition(": ")[2] for line in done.stdout.splitlines()]
        if done.returncode < 0:
            found.append("crash")
    return found


if __name__ == "__main__":
    try_all(Path(sys.argv[1]), json.load(sys.stdin), json.loads(sys.argv[2]))
