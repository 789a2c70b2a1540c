"""The passages with the highest scores, found without scoring all.

The passages are visited in windows. In each, the terms whose bounds together cannot lift a passage into the result
wait: only passages of the other terms are candidates, and waiting terms are read only for candidates that can still
make it. Invariant: the result is that of scoring every passage, ties included; equal scores rank by the passages' ids,
byte by byte.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsr_gym_envs.compiled import njit
from tsr_gym_envs.lucene_bm25.layout import (
    BOUND,
    COUNT_WIDTH,
    LAST,
    SIZE,
    START,
    WIDTH,
    Blocks,
    Bytes,
    Postings,
    Singles,
    Words,
    take,
    unpack,
)

Longs = NDArray[np.int64]


@njit
def id_before(ends: Longs, data: Bytes, first: int, second: int) -> bool:
    """Return whether a passage's id comes before another's."""
    # Clamped, so that damaged ends never read outside the array.
    start, other_start = min(max(ends[first], 0), data.size), min(max(ends[second], 0), data.size)
    size, other_size = min(ends[first + 1], data.size) - start, min(ends[second + 1], data.size) - other_start
    for place in range(min(size, other_size)):
        byte, other_byte = data[start + place], data[other_start + place]
        if byte != other_byte:
            return bool(byte < other_byte)
    return bool(size < other_size)


@njit
def sink(ends: Longs, data: Bytes, passages: Longs, scores: Singles, size: int) -> None:
    """Restore the heap after its first entry was replaced.

    Args:
        ends: `[P + 1]` where the passages' ids end in `data`.
        data: The ids.
        passages: The heap's passages.
        scores: The heap's scores.
        size: Entries of the heap.
    """
    passage, score, place, child = passages[0], scores[0], 0, 1
    while child < size:
        right = child + 1
        if right < size and (
            scores[right] < scores[child]
            or (scores[right] == scores[child] and id_before(ends, data, passages[child], passages[right]))
        ):
            child = right
        if score < scores[child] or (score == scores[child] and id_before(ends, data, passages[child], passage)):
            break
        passages[place], scores[place] = passages[child], scores[child]
        place, child = child, 2 * child + 1
    passages[place], scores[place] = passage, score


@njit
def offer(
    ends: Longs, data: Bytes, passages: Longs, scores: Singles, size: int, passage: int, score: np.float32
) -> int:
    """Put a passage on the heap if it belongs there, and return the size of the heap, at most `passages.size`."""
    if size == passages.size:
        if score > scores[0] or (score == scores[0] and id_before(ends, data, passage, passages[0])):
            passages[0], scores[0] = passage, score
            sink(ends, data, passages, scores, size)
        return size
    place = size
    while place > 0:
        parent = (place - 1) >> 1
        if scores[parent] < score or (scores[parent] == score and id_before(ends, data, passage, passages[parent])):
            break
        passages[place], scores[place] = passages[parent], scores[parent]
        place = parent
    passages[place], scores[place] = passage, score
    return size + 1


@njit
def rank(ends: Longs, data: Bytes, passages: Longs, scores: Singles, size: int) -> None:
    """Turn the heap into a list, best first."""
    for end in range(size - 1, 0, -1):
        passages[0], passages[end] = passages[end], passages[0]
        scores[0], scores[end] = scores[end], scores[0]
        sink(ends, data, passages, scores, end)


Doubles = NDArray[np.float64]
Marks = NDArray[np.uint64]
# Passages in a window: few enough for their sums to stay in the processor's caches. Multiples of 64.
SMALLEST_WINDOW, GREATEST_WINDOW = 1 << 12, 1 << 14
# A de Bruijn sequence: times a power of two, its highest six bits identify the power.
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_PLACES = np.array([0] * 64, np.uint64)
_PLACES[[(0x03F79D71B4CB0A89 << place) % 2**64 >> 58 for place in range(64)]] = range(64)
_PLACES.setflags(write=False)
# Looking up a candidate takes as long as reading this many postings.
PROBE_COST = 6.0
# About this share of the candidates is left after a term that could wait.
KEPT = 0.2
# Rounding to single precision may lift a sum by less than this share.
_SLACK = 1.0 - 1e-6
# Columns of a term's cursor: its first block, the end of its blocks, the postings of its last block, the block it
# stands at; then of the block that is unpacked: its number, the place in it, its postings, the bit and width of its
# first frequency.
_FIRST, _END, _REST, _BLOCK, _UNPACKED, _PLACE, _SIZE, _BIT, _WIDTH = range(9)


@njit
def _start(terms: Longs, cursors: Longs) -> None:
    """Put every term's cursor at its first block."""
    for term in range(terms.shape[1]):
        first, count = terms[:, term]
        num_blocks = (count + SIZE - 1) // SIZE
        cursors[term, _FIRST] = first
        cursors[term, _END] = first + num_blocks
        cursors[term, _REST] = count - SIZE * (num_blocks - 1)
        cursors[term, _BLOCK] = first
        cursors[term, _UNPACKED] = -1


@njit
def _unpack(words: Words, blocks: Blocks, num: int, cursors: Longs, term: int, unpacked: Words) -> bool:
    """Unpack the block that a cursor stands at; False means that it is damaged. `num` is the number of passages."""
    block = cursors[term, _BLOCK]
    size = cursors[term, _REST] if block == cursors[term, _END] - 1 else SIZE
    before = int(blocks[block - 1, LAST]) if block > cursors[term, _FIRST] else -1
    last, start = int(blocks[block, LAST]), int(blocks[block, START])
    width, count_width = int(blocks[block, WIDTH]), int(blocks[block, COUNT_WIDTH])
    cursors[term, _UNPACKED] = block
    cursors[term, _PLACE] = 0
    cursors[term, _SIZE] = size
    cursors[term, _BIT] = 32 * start + (size - 1) * width
    cursors[term, _WIDTH] = count_width
    sound: bool = last < num and unpack(words, start, size, width, count_width, before, last, unpacked, SIZE * term)
    return sound


@njit
def _bound(
    index: Postings, cursors: Longs, unpacked: Words, weights: Singles, low: int, high: int, bounds: Doubles
) -> bool:
    """Move all cursors to a window and write the most that each term can add to a score there; False means damaged."""
    words, blocks, num = index.words, index.blocks, index.lengths.size
    for term in range(weights.size):
        bounds[term] = 0.0
        block, end = cursors[term, _BLOCK], cursors[term, _END]
        while block < end and blocks[block, LAST] < low:
            block += 1
        cursors[term, _BLOCK] = block
        if block == end:
            continue
        if blocks[block, LAST] >= high + 4 * (high - low):
            # A block that reaches this far has few passages, and most often none of them lies in the window.
            if cursors[term, _UNPACKED] != block and not _unpack(words, blocks, num, cursors, term, unpacked):
                return False
            place = SIZE * term + cursors[term, _PLACE]
            while unpacked[place] < low:
                place += 1
            cursors[term, _PLACE] = place - SIZE * term
            if unpacked[place] >= high:
                continue
        most = blocks[block, BOUND]
        while blocks[block, LAST] < high - 1 and block + 1 < end:
            block += 1
            most = max(most, blocks[block, BOUND])
        bounds[term] = weights[term] * (np.float64(most) + 1.0) / 256.0
    return True


@njit
def _add(
    index: Postings,
    inverse: Singles,
    cursors: Longs,
    unpacked: Words,
    term: int,
    weight: np.float32,
    needed_before: float,
    needed: float,
    low: int,
    high: int,
    sums: Doubles,
    marks: Marks,
) -> int:
    """Add a term's scores in a window to the sums, mark whose they are and return how many; -1 means damaged.

    Left out are passages whose sum is below `needed_before`, or stays below `needed`: those that the terms of smaller
    bounds, which come later, cannot lift into the result.
    """
    words, blocks, lengths = index.words, index.blocks, index.lengths
    unit, first, num = np.float32(1), np.uint32(low), 0
    while cursors[term, _BLOCK] < cursors[term, _END]:
        if cursors[term, _UNPACKED] != cursors[term, _BLOCK] and not _unpack(
            words, blocks, lengths.size, cursors, term, unpacked
        ):
            return -1
        place = SIZE * term + cursors[term, _PLACE]
        end = SIZE * term + cursors[term, _SIZE]
        while place < end and unpacked[place] < low:
            place += 1
        after = end
        if unpacked[end - 1] >= high:
            after = place
            while unpacked[after] < high:
                after += 1
        width = cursors[term, _WIDTH]
        bit = cursors[term, _BIT] + (place - SIZE * term) * width
        for passage in unpacked[place:after]:
            slot = np.uint64(passage - first)
            total = sums[slot]
            if total >= needed_before:
                frequency = np.float32(1 + take(words, bit, width))
                more = total + (weight - weight / (unit + frequency * inverse[lengths[passage]]))
                # Without a branch: whether a passage reaches the bound is too irregular to predict.
                reaches = more >= needed
                sums[slot] = more if reaches else total
                marks[slot >> np.uint64(6)] |= np.uint64(reaches) << (slot & np.uint64(63))
                num += reaches
            bit += width
        if after < end:
            cursors[term, _PLACE] = after - SIZE * term
            break
        cursors[term, _BLOCK] += 1
    return num


@njit
def _collect(marks: Marks, sums: Doubles, least: float, candidates: Longs) -> Any:
    """Write the marked passages whose sums reach `least`, ascending; the others lose their sums. Return how many."""
    num = np.uint64(0)
    for place in range(marks.size):
        mark = marks[place]
        marks[place] = 0
        while mark != 0:
            # Isolate the lowest set bit; the de Bruijn product maps it to its position without a loop.
            lowest = mark & (~mark + np.uint64(1))
            mark ^= lowest
            slot = np.uint64(64 * place) + _PLACES[(lowest * _DE_BRUIJN) >> np.uint64(58)]
            if sums[slot] >= least:
                candidates[num] = slot
                num += np.uint64(1)
            else:
                sums[slot] = 0.0
    return np.int64(num)


@njit
def _keep(candidates: Longs, num: int, sums: Doubles, least: float) -> int:
    """Drop the candidates whose sums are below `least` and return how many are left."""
    kept = 0
    for place in range(num):
        slot = candidates[place]
        if sums[slot] >= least:
            candidates[kept] = slot
            kept += 1
        else:
            sums[slot] = 0.0
    return kept


@njit
def _look_up(
    index: Postings,
    inverse: Singles,
    cursors: Longs,
    unpacked: Words,
    term: int,
    weight: np.float32,
    low: int,
    sums: Doubles,
    candidates: Longs,
    least: float,
) -> bool:
    """Add a term's scores to the sums of ascending candidates if they reach `least` with it; False means damaged."""
    words, blocks, lengths, unit = index.words, index.blocks, index.lengths, np.float32(1)
    end, block, base = cursors[term, _END], cursors[term, _BLOCK], SIZE * term
    place = np.uint64(base + cursors[term, _PLACE])
    for slot in candidates:
        passage = low + slot
        while block < end and blocks[block, LAST] < passage:
            block += 1
        if block == end:
            break
        # The bound of the block is known without unpacking it, and spares most of the blocks.
        if sums[slot] + weight * (np.float64(blocks[block, BOUND]) + 1.0) / 256.0 < least:
            continue
        if cursors[term, _UNPACKED] != block:
            cursors[term, _BLOCK] = block
            if not _unpack(words, blocks, lengths.size, cursors, term, unpacked):
                return False
            place = np.uint64(base)
        while unpacked[place] < passage:
            place += np.uint64(1)
        if unpacked[place] == passage:
            width = cursors[term, _WIDTH]
            frequency = np.float32(1 + take(words, cursors[term, _BIT] + (np.int64(place) - base) * width, width))
            sums[slot] += weight - weight / (unit + frequency * inverse[lengths[passage]])
    cursors[term, _BLOCK] = block
    cursors[term, _PLACE] = np.int64(place) - base
    return True


@njit
def _arrange(order: Longs, bounds: Doubles, below: Doubles) -> None:
    """Sort the terms by their bounds, from an order that is nearly right, and sum the bounds up."""
    for place in range(order.size):
        term, before = order[place], place
        while before > 0 and bounds[order[before - 1]] > bounds[term]:
            order[before] = order[before - 1]
            before -= 1
        order[before] = term
    for place in range(order.size):
        below[place + 1] = below[place] + bounds[order[place]]


@njit
def _search(
    index: Postings,
    inverse: Singles,
    terms: Longs,
    weights: Singles,
    passages: Longs,
    scores: Singles,
    sums: Doubles,
    marks: Marks,
    candidates: Longs,
) -> int:
    """Fill `passages` and `scores` with the best for one query and return how many there are; -1 means damaged."""
    num_terms, num_passages, window = weights.size, index.lengths.size, sums.size
    cursors, unpacked = np.empty((num_terms, 9), np.int64), np.empty(num_terms * SIZE, np.uint32)
    _start(terms, cursors)
    bounds, order, below = np.empty(num_terms), np.arange(num_terms), np.zeros(num_terms + 1)
    size = 0
    for low in range(0, num_passages, window):
        high = min(low + window, num_passages)
        if not _bound(index, cursors, unpacked, weights, low, high, bounds):
            return -1
        _arrange(order, bounds, below)
        # `below[i]` is the sum of the i smallest bounds. A passage that holds only the terms with the smallest bounds
        # cannot score more than that. As long as the sum stays under the worst score of the result, such a passage
        # cannot enter it, so these terms bring no candidates: they wait.
        least = np.float64(scores[0]) * _SLACK if size == passages.size else 0.0
        waiting = 0
        while waiting < num_terms and (below[waiting + 1] < least or bounds[order[waiting]] == 0.0):
            waiting += 1
        if waiting == num_terms:
            continue
        # Terms are added from the greatest bound down, those that wait as long as there are many candidates.
        alive, num_added = 0.0, 0
        for place in range(num_terms - 1, -1, -1):
            term = order[place]
            postings = terms[1, term] * (window / num_passages)
            if place < waiting and (alive * PROBE_COST < postings or bounds[term] == 0.0):
                break
            needed, weight = least - below[place], weights[term]
            new = _add(
                index, inverse, cursors, unpacked, term, weight, needed - bounds[term], needed, low, high, sums, marks
            )
            if new < 0:
                return -1
            alive = new + (alive * KEPT if place < waiting else alive)
            num_added += 1
        # A candidate stays only while its sum and the bounds of all terms not yet added can reach `least`.
        num = _collect(marks, sums, least - below[num_terms - num_added], candidates)
        for place in range(num_terms - num_added - 1, -1, -1):
            term, needed = order[place], least - below[place]
            num = _keep(candidates, num, sums, needed - bounds[term])
            if num == 0 or bounds[term] == 0.0:
                break
            some = candidates[:num]
            if not _look_up(index, inverse, cursors, unpacked, term, weights[term], low, sums, some, needed):
                return -1
        for slot in candidates[:num]:
            score = np.float32(sums[slot])
            sums[slot] = 0.0
            if size < passages.size or score >= scores[0]:
                size = offer(index.id_ends, index.id_bytes, passages, scores, size, low + slot, score)
    rank(index.id_ends, index.id_bytes, passages, scores, size)
    return size


@njit
def _separate_ties(scores: Singles) -> None:
    """Round descending scores to four digits and let equal ones fall by 1e-6 each, as Anserini reports them."""
    ties = 0
    for place in range(scores.size):
        score = np.float32(math.floor(np.float64(scores[place]) * 1e4 + 0.5) / 1e4)
        if place == 0 or scores[place - 1] - score > np.float32(1e-4):
            ties = 0
        else:
            ties += 1
            score -= np.float32(1e-6) * np.float32(ties)
        scores[place] = score


@njit
def top_passages(
    id_ends: Longs,
    id_bytes: Bytes,
    lengths: Bytes,
    blocks: Blocks,
    words: Words,
    inverse: Singles,
    terms: Longs,
    weights: Singles,
    ends: Longs,
    k: int,
) -> tuple[Longs, Singles, Longs]:
    """Search for some queries.

    Args:
        id_ends: This and the following: the arrays of the index.
        id_bytes: See `Arrays`.
        lengths: See `Arrays`.
        blocks: See `Arrays`.
        words: See `Arrays`.
        inverse: `[256]` inverse norms of the length bytes.
        terms: `[2, N]` first blocks and counts of the queries' terms, each term once in a query.
        weights: `[N]` their weights.
        ends: `[Q]` where the queries end in `terms`.
        k: How many passages are wanted, from 1 to as many as there are.

    Returns:
        Found passages, best first, `[Q, k]`; their scores, `[Q, k]`; how many were found, `[Q]`, -1 where the index is
        damaged.
    """
    # Making a tuple here is cheap, taking one from Python is not.
    index = Postings(id_ends, id_bytes, lengths, blocks, words)
    passages, scores = np.empty((ends.size, k), np.int64), np.empty((ends.size, k), np.float32)
    sizes = np.zeros(ends.size, np.int64)
    window = min(GREATEST_WINDOW, max(SMALLEST_WINDOW, lengths.size >> 12 << 6))
    sums, marks, candidates = np.zeros(window), np.zeros(window // 64, np.uint64), np.empty(window, np.int64)
    start = 0
    for query in range(ends.size):
        part = slice(start, ends[query])
        sizes[query] = _search(
            index, inverse, terms[:, part], weights[part], passages[query], scores[query], sums, marks, candidates
        )
        _separate_ties(scores[query, : sizes[query]])
        start = ends[query]
    return passages, scores, sizes
