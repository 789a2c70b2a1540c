"""Published: the numbers of the papers, each as printed, with its source in a comment.

Success is in per cent, a response's length in tokens, time in hours.
"""

from collections.abc import Mapping, Sequence

from benchmarks.papers.plan import Numbers

SMALL, LARGE = "Qwen2.5-0.5B-Instruct", "Qwen2.5-3B-Instruct"
BASE, FILTERING, BEST_OF_N, LOOKAHEAD, BEAM = "base", "instance filtering", "best-of-N", "lookahead", "beam"
RESULTS = ("success", "response length", "turns")
TIMES = ("hours", "updates to 80 %", "hours to 80 %", "updates to convergence", "hours to convergence")
BEAMS = tuple(f"beam, B={width} M={branching}" for width in (1, 2) for branching in (4, 6, 8))


def _by_method(methods: Sequence[str], columns: Sequence[str], *rows: Sequence[float]) -> dict[str, Numbers]:
    """Return numbers by method and column, from a row of numbers for each method."""
    return {method: dict(zip(columns, row, strict=True)) for method, row in zip(methods, rows, strict=True)}


def _results(*rows: tuple[float, float, float]) -> dict[str, Numbers]:
    return _by_method((BASE, FILTERING, BEST_OF_N, LOOKAHEAD, BEAM), RESULTS, *rows)


def _times(*rows: tuple[float, float, float, float, float]) -> dict[str, Numbers]:
    return _by_method((FILTERING, BEST_OF_N, LOOKAHEAD, BEAM), TIMES, *rows)


def _beams(success: Sequence[float], *more: Sequence[float]) -> dict[str, Numbers]:
    """Return numbers of beams: success, and where they are known response length and turns."""
    measures = (success, *more)
    return _by_method(BEAMS, RESULTS[: len(measures)], *zip(*measures, strict=True))


# TSR (arXiv 2602.11767), success, response length and turns.
TSR: Mapping[str, Mapping[str, Mapping[str, Numbers]]] = {
    "sokoban": {
        SMALL: _results((8.9, 293, 4.7), (29.0, 105, 4.4), (33.3, 103, 4.3), (36.1, 101, 4.0), (38.3, 98, 3.8)),
        LARGE: _results((16.0, 272, 4.6), (43.7, 161, 4.1), (47.7, 165, 4.0), (49.5, 158, 3.8), (52.3, 152, 3.6)),
    },
    "frozen_lake": {
        SMALL: _results((6.4, 276, 4.6), (19.7, 157, 4.1), (25.0, 182, 4.2), (27.8, 168, 3.8), (30.0, 152, 3.5)),
        LARGE: _results((12.7, 225, 3.9), (48.7, 174, 3.6), (55.0, 161, 3.5), (57.0, 135, 3.3), (60.7, 98, 3.1)),
    },
    "webshop": {
        LARGE: _results((3.0, 747, 7.7), (70.3, 519, 6.8), (77.3, 504, 6.5), (82.3, 475, 6.1), (85.3, 453, 5.8))
    },
}
# TSR, other models without training.
OTHERS: Mapping[str, Mapping[str, Mapping[str, Numbers]]] = {
    world: {model: {"as it is": {"success": success}} for model, success in (("GPT-4o", gpt), ("Qwen2.5-72B", qwen))}
    for world, gpt, qwen in (("sokoban", 27.73, 19.53), ("frozen_lake", 26.56, 23.83))
}
# TSR, beams of other widths B and candidates M.
BUDGETS: Mapping[str, Mapping[str, Mapping[str, Numbers]]] = {
    "sokoban": {
        SMALL: _beams((36.8, 37.6, 37.9, 38.3, 39.1, 39.4)),
        LARGE: _beams(
            (50.6, 51.4, 51.8, 52.3, 53.1, 53.4), (156, 154, 153, 152, 150, 149), (3.70, 3.65, 3.62, 3.60, 3.55, 3.52)
        ),
    },
    "frozen_lake": {
        SMALL: _beams((28.7, 29.3, 29.5, 30.0, 30.6, 30.8)),
        LARGE: _beams((58.9, 59.6, 59.9, 60.7, 61.3, 61.5)),
    },
    "webshop": {LARGE: _beams((83.6, 84.5, 84.8, 85.3, 86.0, 86.3))},
}
# TSR, hours of training on eight A100: in all, to 80 % of the final success, to convergence.
CLOCK: Mapping[str, Mapping[str, Mapping[str, Numbers]]] = {
    "sokoban": {
        SMALL: _times(
            (1.72, 90, 0.77, 180, 1.54),
            (2.51, 60, 0.75, 120, 1.51),
            (3.11, 55, 0.86, 105, 1.63),
            (3.69, 50, 0.92, 90, 1.66),
        ),
        LARGE: _times(
            (2.22, 100, 1.11, 180, 1.99),
            (3.37, 70, 1.18, 150, 2.53),
            (3.96, 45, 0.89, 150, 2.96),
            (4.56, 55, 1.25, 90, 2.05),
        ),
    },
    "frozen_lake": {
        SMALL: _times(
            (1.34, 80, 0.54, 120, 0.80),
            (2.64, 70, 0.93, 100, 1.32),
            (2.53, 60, 0.76, 90, 1.14),
            (2.38, 60, 0.71, 80, 0.95),
        ),
        LARGE: _times(
            (1.85, 150, 1.39, 170, 1.57),
            (3.47, 110, 1.91, 140, 2.43),
            (3.19, 90, 1.44, 130, 2.08),
            (2.90, 80, 1.16, 100, 1.45),
        ),
    },
    "webshop": {
        LARGE: _times(
            (6.24, 78, 4.87, 85, 5.31),
            (9.75, 60, 5.85, 70, 6.83),
            (12.78, 45, 5.75, 65, 8.31),
            (14.94, 45, 6.73, 50, 7.47),
        )
    },
}

CHAIN, TREE = "chain", "tree"
CHAIN_OF_TWO, TREE_OF_TWO = "chain, budget of 2", "tree, budget of 2"
HOPS = ("one hop", "several hops")
READERS = ("Qwen2.5-1.5B", "Qwen2.5-3B", "Llama-3.2-3B", "Qwen2.5-7B", "Qwen2.5-14B")
NOT_NAMED = "model not named"
# Tree-GRPO (arXiv 2509.21240), mean exact match of GRPO's chains and of trees, as its repository lists them; by number
# of hops.
TREE_GRPO: Mapping[str, Mapping[str, Mapping[str, Numbers]]] = {
    hops: {
        model: {CHAIN: {"exact match": chain}, TREE: {"exact match": tree}}
        for model, chain, tree in zip(READERS, chains, trees, strict=True)
    }
    for hops, chains, trees in zip(
        HOPS,
        ((43.4, 48.1, 48.7, 50.5, 55.1), (11.3, 31.8, 26.7, 36.4, 41.8)),
        ((47.5, 50.0, 50.0, 52.2, 55.7), (19.1, 36.8, 36.8, 37.8, 45.3)),
        strict=True,
    )
}
# The same with a budget of about two trajectories a question, second-hand.
TREE_GRPO_OF_TWO: Numbers = {CHAIN_OF_TWO: 12.6, TREE_OF_TWO: 26.7}
# TSPO (arXiv 2601.22776): its gain on average, in per cent of the baseline; exact match of 7B by data set, second-hand.
TSPO_GAINS: Numbers = {"Qwen2.5-3B": 24.0, "Qwen2.5-7B": 13.6}
TSPO_OF_7B: Numbers = {"NQ": 52.7, "TriviaQA": 68.7, "2Wiki": 40.7, "MuSiQue": 15.1, "Bamboogle": 41.6}
# GraphGPO (arXiv 2605.26684), second-hand: a vision-language model of 3B in Sokoban, one of 1.5B in WebShop.
GRPO, GIGPO, GRAPH = "GRPO", "GiGPO", "GraphGPO"
GRAPH_GPO: Mapping[str, Mapping[str, Mapping[str, Numbers]]] = {
    "sokoban": {"VL-3B": _by_method((GRPO, GIGPO, GRAPH), ("success",), (67.1,), (76.9,), (87.0,))},
    "webshop": {"1.5B": _by_method((GRPO, GIGPO, GRAPH), ("success",), (71.4,), (73.8,), (78.7,))},
}
