"""A small network for Boxoban's levels, trained by imitation of the solver: probabilities of moves, and moves to go.

Rooms come from the published training file and from the generator of the same procedure (gym-sokoban, 10x10, four
boxes); those that are a test level up to symmetry are left out. Labels are solutions with the fewest moves.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.measure import SHARED
from tsr_gym_envs.sokoban.discrete_env import tile_codes
from tsr_gym_envs.sokoban.levels import parse_lurd, parse_xsb
from tsr_gym_envs.sokoban.rooms import generate_room
from tsr_gym_envs.sokoban.rules import SokobanState, canonical_form, push, state_key
from tsr_gym_envs.sokoban.solver import solve

FOLDER = SHARED / "data" / "sokoban" / "boxoban" / "unfiltered"
SIDE = 10
# Planes of a tile code: wall, goal, box, player.
PLANES = torch.tensor(
    [[1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 1, 0, 1]]
).float()
# What becomes of up, down, left and right in a board that is turned to the left, and in one that is mirrored.
TURNED, MIRRORED = np.array([2, 3, 1, 0]), np.array([0, 1, 3, 2])
# The network says moves to go in these units.
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
    """Two convolutions beside the identity."""

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


def seen_from(found: Positions, view: int) -> Positions:
    """Return the same positions in one of the board's eight views: turned ``view % 4`` times, from 4 on mirrored."""
    boards, moves, left = found
    for _ in range(view % 4):
        boards, moves = np.rot90(boards, axes=(1, 2)), TURNED[moves]
    if view >= 4:
        boards, moves = boards[:, :, ::-1], MIRRORED[moves]
    return Positions(boards, moves, left)


def loss_of(net: BoxobanNet, found: Positions) -> tuple[Tensor, Tensor]:
    """Return the two losses: minus the mean log-probability of the moves, and the error of the moves to go."""
    boards, moves, left = (torch.from_numpy(np.ascontiguousarray(part)) for part in found)
    logprobs, togo = net(boards)
    return functional.nll_loss(logprobs, moves), functional.smooth_l1_loss(togo / UNIT, left.float() / UNIT)


def train(
    positions: Positions, path: Path, *, cycle: int, cut: int, steps: int, batch: int = 256, lr: float = 2e-3
) -> dict[str, Any]:
    """Train a network, write it to a file, and return what training came to.

    It goes on where an interrupted training stopped; a hundredth of the positions, the last, are held out.

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
        "held_out": judged(net, Positions(*(one[kept:] for one in positions))),
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
