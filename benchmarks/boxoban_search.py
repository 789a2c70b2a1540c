"""Boxoban at test time: solved levels of the published 1,000 against expansions, with a small network trained here.

Every search is one tree from a level's start, without limits but its expansions, and ends at its first solution. An
expansion is a position whose moves were tried. All searches ask the same network, which lists all four moves with their
probabilities and the number of moves to go; it was trained by imitation of the solver (`train`). Work that is
done is kept in a folder and never done again.
Run: python -m benchmarks.boxoban_search [--levels N] [--expansions N] [--work FOLDER]
"""

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.measure import SHARED, run_timed, write_result
from tsr_gym.agents.episodes.intervals import wilson
from tsr_gym.agents.episodes.search import search
from tsr_gym.agents.strategies import best_first, levin, puct
from tsr_gym.files import cache_home, write_atomically
from tsr_gym.state_env import episode_of
from tsr_gym.tree import Candidate, Expand, Node, Strategy, Tree, Wishes
from tsr_gym.wrappers import TreeSearchWrapper
from tsr_gym_envs.sokoban.discrete_env import SokobanDiscreteEnv, tile_codes
from tsr_gym_envs.sokoban.levels import parse_lurd, parse_xsb
from tsr_gym_envs.sokoban.rooms import generate_room
from tsr_gym_envs.sokoban.rules import ACTIONS, SokobanState, canonical_form, push, state_key
from tsr_gym_envs.sokoban.settings import make_settings
from tsr_gym_envs.sokoban.solver import solve

FOLDER = SHARED / "data" / "sokoban" / "boxoban" / "unfiltered"
SIDE = 10
# Planes of a tile code: wall, goal, box, player.
PLANES = torch.tensor(
    [[1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 1, 0, 1]]
).float()
# What becomes of up, down, left and right in a board that is turned to the left, and in one that is mirrored.
TURNED, MIRRORED = np.array([2, 3, 1, 0]), np.array([0, 1, 3, 2])
# The network gives moves to go in these units.
UNIT = 10.0


class Positions(NamedTuple):
    """N positions on solutions.

    Attributes:
        boards: `[N, 10, 10]` tile codes.
        moves: `[N]` the solution's next move.
        left: `[N]` moves to the end of the solution.
    """

    boards: NDArray[Any]
    moves: NDArray[Any]
    left: NDArray[Any]


class Residual(nn.Module):
    """Two convolutions with a skip connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, planes: Tensor) -> Tensor:
        """Return planes of the same shape."""
        return functional.relu(planes + self.second(functional.relu(self.first(planes))))


class BoxobanNet(nn.Module):
    """From boards to log-probabilities of the four moves and moves to go."""

    def __init__(self, channels: int = 32, blocks: int = 4, hidden: int = 128) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(4, channels, 3, padding=1),
            nn.ReLU(),
            *[Residual(channels) for _ in range(blocks)],
            nn.Flatten(),
            nn.Linear(channels * SIDE * SIDE, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 5),
        )
        self.to(memory_format=torch.channels_last)

    def forward(self, boards: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities `[N, 4]` and moves to go `[N]` of boards of tile codes `[N, 10, 10]`."""
        planes = PLANES[boards.long()].permute(0, 3, 1, 2)
        out = self.body(planes)
        return functional.log_softmax(out[:, :4], 1), UNIT * functional.softplus(out[:, 4])


def published_levels() -> list[SokobanState]:
    """Return the 1,000 published test levels."""
    return parse_xsb((FOLDER / "test" / "000.txt").read_text(encoding="utf-8"))


def training_levels(generated: int) -> Iterator[SokobanState]:
    """Yield the published training file's levels, then generated rooms, without what is a test level."""
    tested = {state_key(canonical_form(level)) for level in published_levels()}
    published = parse_xsb((FOLDER / "train" / "000.txt").read_text(encoding="utf-8"))
    rooms = (generate_room(seed, generator="gym-sokoban", dim=(SIDE, SIDE), num_boxes=4) for seed in range(generated))
    for levels in (published, rooms):
        for level in levels:
            if state_key(canonical_form(level)) not in tested:
                yield level


def positions_of(levels: Iterable[SokobanState], *, max_nodes: int = 100_000) -> Positions:
    """Return all positions on a shortest solution of each level; levels that the solver gives up are left out."""
    boards, moves, left = [], [], []
    for level in levels:
        solution = solve(level, optimal="moves", max_nodes=max_nodes)
        if solution.lurd is None:
            continue
        actions, here = parse_lurd(solution.lurd), level
        for number, action in enumerate(actions):
            boards.append(tile_codes(here, (SIDE, SIDE)))
            moves.append(action)
            left.append(len(actions) - number)
            here = push(here, action)
    return Positions(np.array(boards), np.array(moves), np.array(left))


def seen_from(positions: Positions, view: int) -> Positions:
    """Return the same positions in one of the board's eight views: turned ``view % 4`` times, from 4 on mirrored."""
    boards, moves, left = positions
    for _ in range(view % 4):
        boards, moves = np.rot90(boards, axes=(1, 2)), TURNED[moves]
    if view >= 4:
        boards, moves = boards[:, :, ::-1], MIRRORED[moves]
    return Positions(boards, moves, left)


def loss_of(net: BoxobanNet, positions: Positions) -> tuple[Tensor, Tensor]:
    """Return the two losses: minus the mean log-probability of the moves, and the error of the moves to go."""
    boards, moves, left = (torch.from_numpy(np.ascontiguousarray(part)) for part in positions)
    logprobs, togo = net(boards)
    return functional.nll_loss(logprobs, moves), functional.smooth_l1_loss(togo / UNIT, left.float() / UNIT)


def train(
    positions: Positions, path: Path, *, cycle: int, cut: int, steps: int, batch: int = 256, lr: float = 2e-3
) -> dict[str, Any]:
    """Train a network, write it to a file, and return the losses and the accuracy.

    It continues where an interrupted training stopped; a hundredth of the positions, the last, are held out.

    Args:
        positions: What is learned.
        path: Of the weights.
        cycle: Steps of the learning rate's one cycle.
        cut: Step at which the cycle is left; from there the rate falls in a straight line to 0 at the last step.
        steps: All steps.
        batch: Positions per step.
        lr: Largest learning rate.
    """
    torch.manual_seed(0)
    net = BoxobanNet()
    optimizer = torch.optim.AdamW(net.parameters(), lr=lr, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=cycle)
    kept, begun = len(positions.moves) - len(positions.moves) // 100, 0
    seconds, part = 0.0, path.with_suffix(".part")
    if part.exists():
        state = torch.load(part, weights_only=True)
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        begun, seconds = state["step"], state["seconds"]
    started = process_time() - seconds
    for step in range(begun, steps):
        rng = np.random.default_rng(step)
        rows = rng.integers(kept, size=batch)
        policy, value = loss_of(net, seen_from(Positions(*(part[rows] for part in positions)), int(rng.integers(8))))
        optimizer.zero_grad()
        (policy + value).backward()
        if step >= cut:
            optimizer.param_groups[0]["lr"] = schedule.get_last_lr()[0] * (steps - step) / (steps - cut)
        optimizer.step()
        if step < cut:
            schedule.step()
        if step % 100 == 99:
            states = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
            torch.save(states | {"step": step + 1, "seconds": process_time() - started}, part)
            print(f"step {step + 1}: policy {policy.item():.3f}, moves to go {value.item():.3f}", flush=True)
    torch.save(net.state_dict(), path)
    return {
        "parameters": sum(weights.numel() for weights in net.parameters()),
        "learned_from": kept,
        "cycle": cycle,
        "cut": cut,
        "steps": steps,
        "batch": batch,
        "lr": lr,
        "cpu_seconds": process_time() - started,
        "held_out": judged(net, Positions(*(array[kept:] for array in positions))),
    }


def judged(net: BoxobanNet, held: Positions) -> dict[str, float]:
    """Return how well a network knows positions that it did not learn from."""
    with torch.inference_mode():
        policy, _ = loss_of(net, held)
        logprobs, togo = net(torch.from_numpy(held.boards))
    return {
        "positions": len(held.moves),
        "policy_loss": policy.item(),
        "accuracy": float((logprobs.argmax(1).numpy() == held.moves).mean()),
        "error_of_moves_to_go": float(np.abs(togo.numpy() - held.left).mean()),
    }


IMAGE = Path(__file__).resolve().parents[1] / "docs" / "images" / "boxoban_search.png"
# Levels that are searched together, so that the network is asked for many positions at once.
CHUNK = 50
# Noise of the policy, as in LevinTS (*) of the paper.
NOISE = 0.01
# The logarithm of the probability of a move that changes nothing.
NEVER = -50.0
# The cycle was left early, because processor time was short.
TRAINING = {"cycle": 6000, "cut": 4000, "steps": 4400}
BUDGETS = (10, 20, 50, 100, 200, 300, 500, 1000, 2000, 5000)
# Table 1 of arXiv 1811.10928, whose 1,000 levels these are (README of google-deepmind/boxoban-levels).
PUBLISHED = {
    "source": "Orseau, Lelis, Lattimore and Weber, NeurIPS 2018, arXiv 1811.10928, Table 1",
    "Uniform, at most 100,000 expansions a level": {"solved": 88, "length": 19, "total_expansions": 94_423_278},
    "LevinTS": {"solved": 1000, "length": 39.8, "total_expansions": 6_602_666},
    "LevinTS (*), with 1 % noise": {"solved": 1000, "length": 39.5, "total_expansions": 5_026_200},
    "LubyTS(512, 32) (*)": {"solved": 896, "length": 50.7, "total_expansions": 10_730_753},
    "LAMA": {"solved": 1000, "length": 51.6, "total_expansions": 3_151_325},
    "of the text": {
        "expansions of LevinTS for 95 % of the levels, less than": 160_000,
        "share solved by sampling one path, about": 0.65,
        "steps of A3C": 3.5e9,
    },
}


class Player:
    """Lists the moves of a position, the most probable first, and remembers every position that it has seen."""

    def __init__(self, net: BoxobanNet) -> None:
        self.net = net
        self._seen: dict[bytes, tuple[list[int], list[float], float]] = {}

    def __call__(self, requests: Sequence[tuple[Tree, Expand]]) -> list[list[Candidate]]:
        """Return the next candidates of every wish."""
        self._look([tree.nodes[wish.node] for tree, wish in requests])
        return [self._listed(tree, wish) for tree, wish in requests]

    def rate(self, grown: Sequence[tuple[Tree, int]]) -> list[float]:
        """Return minus the moves to go from every new node, all of them looked at in one batch."""
        self._look([tree.nodes[node] for tree, node in grown if not tree.nodes[node].solved])
        return [-self.togo(tree, node) for tree, node in grown]

    def togo(self, tree: Tree, node: int) -> float:
        """Return the moves to go from a node that was rated."""
        here = tree.nodes[node]
        return 0.0 if here.solved else self._seen[here.state_key or b""][2]

    def forget(self) -> None:
        """Forget the positions of levels that are done."""
        self._seen.clear()

    def _listed(self, tree: Tree, wish: Expand) -> list[Candidate]:
        order, logps, _ = self._seen[tree.nodes[wish.node].state_key or b""]
        first = len(tree.children(wish.node))
        moves = [order[number % len(order)] for number in range(first, first + wish.samples)]
        return [Candidate(move, token_ids=(move,), logprobs=(logps[move],)) for move in moves]

    def _look(self, nodes: Sequence[Node]) -> None:
        new = {node.state_key or b"": node for node in nodes if node.state_key not in self._seen}
        if not new:
            return
        boards = torch.from_numpy(np.stack([node.observation for node in new.values()]))
        with torch.inference_mode():
            logprobs, togo = self.net(boards)
        for key, node, row, left in zip(new, new.values(), logprobs.exp().tolist(), togo.tolist(), strict=True):
            state = episode_of(node.snapshot).state
            legal = [move for move in range(len(ACTIONS)) if push(state, move) is not state]
            total, share = sum(row[move] for move in legal), NOISE / max(len(legal), 1)
            logps = [NEVER] * len(row)
            for move in legal:
                logps[move] = float(np.log((1 - NOISE) * row[move] / total + share))
            self._seen[key] = sorted(range(len(row)), key=lambda move: -logps[move]), logps, left


def searches(player: Player, expansions: int) -> dict[str, tuple[Strategy, bool]]:
    """Return every search by its name, and whether it asks for moves to go."""

    def nearest(tree: Tree, node: int) -> float:
        return -player.togo(tree, node)

    def shortest(tree: Tree, node: int) -> float:
        return -player.togo(tree, node) - tree.nodes[node].depth

    listing = {"expansions": expansions, "samples": 4, "merge": "state"}
    # A node takes four simulations to list its moves, and those that only pass known nodes expand nothing.
    walks = {"simulations": 12 * expansions, "moves": 1, "k": 4, "alpha": 0, "prior": "sum", "merge": "state"}
    return {
        "levin": (partial(levin, **listing), False),
        "levin with moves to go": (partial(levin, togo=player.togo, **listing), True),
        "puct": (partial(puct, value=shortest, **walks), True),
        "best_first": (partial(best_first, value=nearest, **listing), True),
    }


def until_solved(tree: Tree, *, strategy: Strategy, expansions: int) -> Wishes:
    """Follow a strategy until a solution has grown, or so many nodes were expanded; choose the solution."""
    expanded: set[int] = set()
    seen = len(tree.nodes)
    for wishes in strategy(tree):
        if len(expanded.union(wish.node for wish in wishes)) > expansions:
            break
        expanded.update(wish.node for wish in wishes)
        yield wishes
        solved = [node for node in range(seen, len(tree.nodes)) if tree.nodes[node].solved]
        if solved:
            return solved
        seen = len(tree.nodes)
    return ()


def search_chunk(player: Player, name: str, first: int, count: int, expansions: int) -> list[dict[str, Any]]:
    """Return the expansions and the solution length of one search by level."""
    settings = make_settings("paper", {"obs_type": "array", "levels": str(FOLDER / "test"), "max_actions": None})
    envs = [TreeSearchWrapper(SokobanDiscreteEnv(settings)) for _ in range(count)]
    for number, env in enumerate(envs, start=first):
        env.reset(seed=number, options={"number": number})
    strategy, rates = searches(player, expansions)[name]
    bound = partial(until_solved, strategy=strategy, expansions=expansions)
    trees = search(envs, player, bound, seeds=range(first, first + count), rater=player.rate if rates else None)
    player.forget()
    return [
        {
            "level": number,
            "expansions": sum(bool(tree.children(node)) for node in tree.below()),
            "moves": tree.nodes[tree.chosen[0]].depth if tree.chosen else None,
        }
        for number, tree in enumerate(trees, start=first)
    ]


def done_once(path: Path, work: Callable[[], Any]) -> Any:
    """Return the content of a file; do the work and write it first where it is missing."""
    if not path.exists():
        started = process_time()
        result = work()
        write_atomically(path, json.dumps({"cpu_seconds": process_time() - started, "found": result}).encode())
    return json.loads(path.read_text(encoding="utf-8"))


def label(path: Path, generated: int) -> dict[str, int]:
    """Write the positions to learn from, and return how many there are."""
    positions = positions_of(training_levels(generated))
    np.savez(path, **positions._asdict())
    return {"generated_rooms": generated, "positions": len(positions.moves)}


def trained(work: Path, generated: int, numbers: dict[str, int]) -> tuple[BoxobanNet, dict[str, Any]]:
    """Return the network, and what its data and its training came to."""
    weights, data = work / "net.pt", work / "positions.npz"
    labelled = done_once(work / "positions.json", partial(label, data, generated))
    about = done_once(work / "training.json", lambda: train(Positions(**np.load(data)), weights, **numbers))
    net = BoxobanNet().eval()
    net.load_state_dict(torch.load(weights, weights_only=True))
    return net, {"labelling_cpu_seconds": labelled["cpu_seconds"]} | labelled["found"] | about["found"]


def told(rows: Sequence[dict[str, Any]], expansions: int) -> dict[str, Any]:
    """Return how many levels a search solved within each budget."""
    came = [row["expansions"] for row in rows if row["moves"] is not None]
    curve = []
    for budget in sorted({budget for budget in BUDGETS if budget < expansions} | {expansions}):
        solved = sum(count <= budget for count in came)
        low, high = wilson(solved, len(rows))
        curve.append({"expansions": budget, "solved": solved, "low": low, "high": high})
    return {
        "levels": len(rows),
        "solved": len(came),
        "total_expansions": sum(row["expansions"] for row in rows),
        "median_expansions_of_solved": float(np.median(came)) if came else None,
        "mean_length": float(np.mean([row["moves"] for row in rows if row["moves"] is not None])) if came else None,
        "curve": curve,
        "expansions_by_level": [row["expansions"] if row["moves"] is not None else None for row in rows],
    }


def plot(searches: dict[str, Any], path: Path) -> None:
    """Draw the share of solved levels against expansions."""
    figure = Figure(figsize=(6.5, 4), layout="constrained")
    axes = figure.add_subplot()
    for name, summary in searches.items():
        came = sorted(number for number in summary["expansions_by_level"] if number is not None)
        axes.step(came, [rank / summary["levels"] for rank in range(1, len(came) + 1)], where="post", label=name)
    axes.set(xscale="log", xlabel="expansions", ylabel="share of levels solved", ylim=(0, 1))
    axes.legend()
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Train, search, and write the numbers and the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--levels", type=int, default=1000, help="of the test file, from its first")
    parser.add_argument("--expansions", type=int, default=500, help="per level and search")
    parser.add_argument("--generated", type=int, default=9000, help="rooms to learn from besides the published file")
    for name, default in TRAINING.items():
        parser.add_argument(f"--{name}", type=int, default=default, help="of training, see `train`")
    parser.add_argument("--work", type=Path, default=cache_home() / "boxoban_search", help="where work is kept")
    parser.add_argument("--out", type=Path, help="another file for the numbers, and no picture")
    args = parser.parse_args()
    torch.set_num_threads(1)
    args.work.mkdir(parents=True, exist_ok=True)
    net, training = trained(args.work, args.generated, {name: vars(args)[name] for name in TRAINING})
    player, names = Player(net), list(searches(Player(net), 1))
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    seconds = dict.fromkeys(names, 0.0)
    # All searches of some levels before the next levels, so that a run that was stopped compares what it has.
    for first in range(0, args.levels, CHUNK):
        for name in names:
            file = args.work / f"{name.replace(' ', '_')}-{args.expansions}-{first}.json"
            work = partial(search_chunk, player, name, first, min(CHUNK, args.levels - first), args.expansions)
            result = done_once(file, work)
            rows[name] += result["found"]
            seconds[name] += result["cpu_seconds"]
            solved = sum(row["moves"] is not None for row in result["found"])
            print(f"levels from {first}, {name}: {solved} solved, {result['cpu_seconds']:.0f} s", flush=True)
    summaries = {name: {"cpu_seconds": seconds[name]} | told(rows[name], args.expansions) for name in names}
    numbers = {
        "level_file": "unfiltered/test/000 of google-deepmind/boxoban-levels",
        "levels": args.levels,
        "expansions": args.expansions,
        "noise": NOISE,
        "training": training,
        "searches": summaries,
        "published": PUBLISHED,
    }
    write_result("boxoban_search", numbers, out=args.out)
    if args.out is None:
        plot(summaries, IMAGE)


if __name__ == "__main__":
    run_timed(main)
