"""Compiled parts of the trie engine: the trie itself, what lies between matrix products, and the drawing of tokens.

The nodes of a trie are numbered as they come; node 0 is its root, and a parent has a smaller number than its children.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Words = NDArray[np.uint64]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Flags = NDArray[np.bool_]

ROOT, NONE = 0, -1
# Weights are summed in blocks of this many, so that a draw looks through blocks first.
BLOCK = 64
# Odd multipliers spread equal low bits over the whole word: 2^64 over the golden ratio, and a prime of xxHash. Those of
# the line below are SplitMix64's.
_PARENT, _TOKEN = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_GAMMA, _MIX_1, _MIX_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
# Coefficients of e^x around 0 in Cephes' `expf`, after the first, which `_exp` begins with.
_EXPANSION = tuple(
    map(np.float32, (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1))
)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11), np.uint64(33)


def njit(function: FunctionT) -> FunctionT:
    """Return the function compiled to machine code, under its Python type; sums may be computed in any order."""
    return cast(FunctionT, numba.njit(cache=True, fastmath=True)(function))


class Trie(NamedTuple):
    """Sequences of tokens that share their equal beginnings; N nodes and their room.

    Attributes:
        parent: Node before each node `[N]`.
        token: Its token `[N]`.
        slot: Its slot of the table `[N]`.
        table: The nodes by a hash of parent and token, NONE in empty slots; a power of two, at least 2 N.
        place: Where each node stands in the list of those to compute, meaningful only if that list has it there `[N]`.
    """

    parent: Ints
    token: Ints
    slot: Ints
    table: Ints
    place: Ints


class Wanted(NamedTuple):
    """Nodes that are to be computed, parents before their children.

    Attributes:
        nodes: Their numbers `[W]`.
        positions: Their positions `[W]`.
        owners: A row of `paths` that leads to each `[W]`.
        paths: The nodes of a sequence in each row `[R, L]`.
    """

    nodes: Ints
    positions: Ints
    owners: Ints
    paths: Ints


class Samples(NamedTuple):
    """Samples that are being written; S samples of at most T tokens.

    Attributes:
        seeds: Their seeds `[S]`.
        lengths: Tokens of their prompts `[S]`.
        room: Tokens that each may have `[S]`.
        ids: The sampled tokens `[S, T]`.
        logprobs: Their log-probabilities `[S, T]`.
        counts: How many each has `[S]`.
        stopped: Whether it ended by a stop token `[S]`.
        live: Numbers of the unfinished samples, first in the array `[S]`.
        rows: Which row of logits each reads next `[S]`.
    """

    seeds: Words
    lengths: Longs
    room: Longs
    ids: Longs
    logprobs: Floats
    counts: Longs
    stopped: Flags
    live: Longs
    rows: Longs


@njit
def _child(trie: Trie, count: int, parent: int, token: int) -> Any:
    """Return the child of a node by a token; a new one has the number `count`."""
    mask = np.uint64(trie.table.size - 1)
    word = np.uint64(parent) * _PARENT ^ np.uint64(token) * _TOKEN
    slot = (word ^ word >> _SHIFTS[4]) & mask
    while trie.table[slot] != NONE:
        node = trie.table[slot]
        if trie.parent[node] == parent and trie.token[node] == token:
            return node
        slot = (slot + np.uint64(1)) & mask
    trie.table[slot] = count
    trie.parent[count], trie.token[count], trie.slot[count] = parent, token, slot
    return count


@njit
def forget(trie: Trie, count: int) -> None:
    """Empty a trie of `count` nodes."""
    for node in range(1, count):
        # Only slots in use are emptied, because a table can be far larger than its content. All go at once, so that no
        # search through the table meets an empty slot where a node was removed in the middle.
        trie.table[trie.slot[node]] = NONE


@njit
def rehash(trie: Trie, count: int) -> None:
    """Fill the empty table of a trie that was moved."""
    for node in range(1, count):
        _child(trie, node, trie.parent[node], trie.token[node])


@njit
def _want(trie: Trie, wanted: Wanted, size: int, node: int, position: int, owner: int) -> int:
    """Put a node on the list of those to compute, unless it is there; return the length of the list."""
    place = trie.place[node]
    if place < size and wanted.nodes[place] == node:
        return size
    wanted.nodes[size], wanted.positions[size], wanted.owners[size] = node, position, owner
    trie.place[node] = size
    return size + 1


@njit
def plant(trie: Trie, count: int, flat: Longs, starts: Longs, wanted: Wanted, shared: Longs, ends: Longs) -> Any:
    """Put prompts into a trie.

    The last token of a prompt is computed even where the trie has it, because its logits are wanted.

    Args:
        trie: With room for all tokens.
        count: Its nodes so far.
        flat: The tokens of all prompts, one after the other.
        starts: Where each prompt begins, and the end of the last one `[P + 1]`.
        wanted: Filled with the nodes to compute, and the paths of the prompts.
        shared: Filled with the number of tokens of each prompt that the trie had already `[P]`.
        ends: Filled with the places of the prompts' last nodes among those to compute `[P]`.

    Returns:
        The nodes of the trie, and how many of them are to be computed.
    """
    size = 0
    for row in range(starts.size - 1):
        node, length, old = ROOT, starts[row + 1] - starts[row], 0
        for index in range(length):
            node = _child(trie, count, node, flat[starts[row] + index])
            wanted.paths[row, index] = node
            # Below a new node all nodes are new, so that the old ones are a beginning of the prompt. A node that an
            # earlier prompt of this call planted is old as well: it is computed for both.
            if node == count:
                count += 1
                size = _want(trie, wanted, size, node, index, row)
            else:
                old = index + 1
        size = _want(trie, wanted, size, node, length - 1, row)
        shared[row], ends[row] = min(old, length - 1), trie.place[node]
    return count, size


@njit
def normalise(states: Floats, weight: Floats, epsilon: float, out: Floats) -> None:
    """Divide each row by its root mean square, and multiply it by a weight."""
    for row in range(states.shape[0]):
        total = np.float32(0)
        for index in range(states.shape[1]):
            total += states[row, index] * states[row, index]
        factor = np.float32(1) / np.sqrt(total / np.float32(states.shape[1]) + np.float32(epsilon))
        for index in range(states.shape[1]):
            out[row, index] = states[row, index] * factor * weight[index]


@njit
def _exp(number: Any) -> Any:
    """Return the exponential in single precision, to 1.2e-7 of itself; unlike the library's, many are computed at once.

    With ``n = round(x / log 2)`` it is ``2^n e^(x - n log 2)``; the second factor is a polynomial (Cephes, `expf`).
    """
    number = min(max(number, np.float32(-87)), np.float32(88))
    power = np.floor(number * np.float32(1.44269504) + np.float32(0.5))
    # The logarithm of 2 in two parts, so that the product of the first one is exact.
    rest = number - power * np.float32(0.693359375) + power * np.float32(2.12194440e-4)
    value = np.float32(1.9875691500e-4)
    for factor in _EXPANSION:
        value = value * rest + factor
    value = value * rest * rest + rest + np.float32(1)
    return value * np.int32((np.int32(power) + np.int32(127)) << np.int32(23)).view(np.float32)


@njit
def _rotate(states: Floats, angle: Floats, scale: Any, out: Floats) -> None:
    """Rotate a head's states by the angles of a position, into `out`."""
    half = states.size // 2
    left, right, first, second = states[:half], states[half:], out[:half], out[half:]
    for index in range(half):
        cosine, sine = angle[0, index] * scale, angle[1, index] * scale
        first[index] = left[index] * cosine - right[index] * sine
        second[index] = right[index] * cosine + left[index] * sine


@njit
def remember(
    projected: Floats, first: int, nodes: Ints, positions: Ints, angles: Floats, keys: Floats, values: Floats
) -> None:
    """Store the rotated keys and the values of some nodes.

    Args:
        projected: Keys and values `[W, first + 2 D]`.
        first: The column where keys begin.
        nodes: `[W]`.
        positions: `[W]`.
        angles: Cosines and sines of each position `[2, P, H]`, of heads of width 2 H.
        keys: Of all nodes `[N, D]`.
        values: `[N, D]`.
    """
    width, half = keys.shape[1], angles.shape[2]
    for row in range(nodes.size):
        node, position = nodes[row], positions[row]
        own, pairs = keys[node], projected[row][first:]
        for head in range(0, width, 2 * half):
            _rotate(pairs[head : head + 2 * half], angles[:, position], np.float32(1), own[head : head + 2 * half])
        values[node] = pairs[width:]


@njit
def attend(queries: Floats, wanted: Wanted, angles: Floats, keys: Floats, values: Floats, out: Floats) -> None:
    """Compute the attention of some nodes over their paths.

    Args:
        queries: Unrotated, in the first columns `[W, ...]`.
        wanted: The nodes and their paths.
        angles: See `remember`.
        keys: Of all nodes `[N, D]`.
        values: `[N, D]`.
        out: `[W, Q]`; of the Q / 2H heads, neighbours share keys and values.
    """
    width = 2 * angles.shape[2]
    heads = out.shape[1] // width
    group = heads // (keys.shape[1] // width)
    scale = np.float32(1 / np.sqrt(width))
    query, scores = np.empty(width, np.float32), np.empty(wanted.paths.shape[1], np.float32)
    for row in range(wanted.nodes.size):
        position = wanted.positions[row]
        # Every sequence through a node has the same path down to it, so that any owner will do.
        path, weights = wanted.paths[wanted.owners[row]][: position + 1], scores[: position + 1]
        for head in range(heads):
            # Slices, because with a sum as an index the compiler cannot know that it is not negative, and uses no
            # vector instructions.
            shift, shared = head * width, head // group * width
            _rotate(queries[row][shift : shift + width], angles[:, position], scale, query)
            for place in range(path.size):
                key, score = keys[path[place]][shared : shared + width], np.float32(0)
                for index in range(width):
                    score += query[index] * key[index]
                weights[place] = score
            most, total = weights.max(), np.float32(0)
            for place in range(path.size):
                weights[place] = _exp(weights[place] - most)
                total += weights[place]
            answer = out[row][shift : shift + width]
            answer[:] = 0
            for place in range(path.size):
                value, weight = values[path[place]][shared : shared + width], weights[place] / total
                for index in range(width):
                    answer[index] += weight * value[index]


@njit
def gate(factors: Floats, out: Floats) -> None:
    """Compute ``silu(g) u`` of factors g and u next to each other `[W, 2 I]`, into `[W, I]`."""
    for row in range(out.shape[0]):
        answer, gates, others = out[row], factors[row][: out.shape[1]], factors[row][out.shape[1] :]
        for index in range(answer.size):
            answer[index] = gates[index] / (np.float32(1) + _exp(-gates[index])) * others[index]


@njit
def _uniform(seed: Any, step: int) -> float:
    """Return a number in [0, 1) for a position of a seed's sequence (SplitMix64), as `transformers_engine.uniforms`."""
    word = seed + np.uint64(step + 1) * _GAMMA
    word = (word ^ word >> _SHIFTS[0]) * _MIX_1
    word = (word ^ word >> _SHIFTS[1]) * _MIX_2
    word = word ^ word >> _SHIFTS[2]
    return np.float64(word >> _SHIFTS[3]) / 2.0**53


@njit
def _sums(weights: Doubles, out: Doubles) -> float:
    """Fill the sums of the blocks of some weights, and return their sum."""
    whole = 0.0
    for block in range(out.size):
        total = 0.0
        for index in range(block * BLOCK, min(weights.size, (block + 1) * BLOCK)):
            total += weights[index]
        out[block] = total
        whole += total
    return whole


@njit
def _place(weights: Doubles, sums: Doubles, point: float) -> int:
    """Return the first place up to which the weights sum to more than a point; the last one where none is."""
    before, block = 0.0, 0
    while block < sums.size - 1 and before + sums[block] <= point:
        before += sums[block]
        block += 1
    for index in range(block * BLOCK, weights.size):
        before += weights[index]
        if before > point:
            return index
    # Rounding can leave the point at the end of all weights.
    return weights.size - 1


@njit
def draw(
    scores: Doubles, weights: Doubles, samples: Samples, live: int, step: int, stops: Flags, trie: Trie, count: int,
    wanted: Wanted,
) -> Any:  # fmt: skip
    """Draw a token for each unfinished sample, and put the tokens that continue a sample into the trie.

    Args:
        scores: Logits divided by the temperature, less the largest of their row `[M, V]`.
        weights: Their exponentials `[M, V]`; without columns at temperature 0, which takes the likeliest tokens.
        samples: The samples; changed in place.
        live: How many are unfinished.
        step: The position of the token in each answer.
        stops: Whether each token ends an answer.
        trie: With room for a node per unfinished sample.
        count: Its nodes.
        wanted: Filled with the nodes to compute; its paths have a row per sample.

    Returns:
        The nodes of the trie, how many of them are to be computed, and how many samples are unfinished.
    """
    sums = np.empty((scores.shape[0], (weights.shape[1] + BLOCK - 1) // BLOCK))
    wholes = np.empty(scores.shape[0])
    for row in range(scores.shape[0]):
        wholes[row] = _sums(weights[row], sums[row])
    size = going = 0
    for index in range(live):
        sample = samples.live[index]
        row = samples.rows[sample]
        if weights.shape[1] == 0:
            token: Any = np.argmax(scores[row])
            logprob = 0.0
        else:
            token = _place(weights[row], sums[row], _uniform(samples.seeds[sample], step) * wholes[row])
            logprob = scores[row, token] - np.log(wholes[row])
        samples.ids[sample, step], samples.logprobs[sample, step] = token, logprob
        samples.counts[sample] = step + 1
        if stops[token]:
            samples.stopped[sample] = True
        # An answer that is full is neither live nor stopped, and ends for its length.
        elif step + 1 < samples.room[sample]:
            position = samples.lengths[sample] + step
            node = _child(trie, count, wanted.paths[sample, position - 1], token)
            count = max(count, node + 1)
            wanted.paths[sample, position] = node
            size = _want(trie, wanted, size, node, position, sample)
            # Live samples move to the front; a place is written only after it was read, because `going` is at most
            # `index`.
            samples.rows[sample], samples.live[going] = trie.place[node], sample
            going += 1
    return count, size, going
