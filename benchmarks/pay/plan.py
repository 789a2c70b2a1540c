"""Plan: which settings, base models, methods and seeds are compared, and why; nothing here runs."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

from benchmarks.tsr_runs import Row, command, command_job, measured, run_all, train

Guide = Literal["none", "public", "oracle"]
Part = Literal[
    "headline", "estimate", "easier", "ablation", "unguided", "by levin", "moments", "law", "lake", "hard", "words"
]

# Updates of a run, whose budget they share equally; a run is evaluated after each quarter of them.
UPDATES = 32
GRPO = "--algorithm grpo --lr 1e-3 --entropy 0.003 --filter mixed_success --keep 1 --groups 16"
DEEP = "hops=[2,3,4] entities=1000 questions=3000 max_turns=5"
# In worlds of words 1e-3 collapses; these are the rates of the models' cards.
IN_SHOP, IN_QA = GRPO.replace("1e-3", "3e-4"), GRPO.replace("1e-3", "1.5e-4")
DECAY = "--lr-decay-from 0.5"
ESTIMATE, NEXT_PUSH = "SokobanScore(potential='estimate')", "SokobanScore(potential='next_push')"
SHOP_SCORE, QA_SCORE = "WebShopScore(variant='attributes')", "RetrievalQAScore(kind='novelty')"
# Uses the labels of a question: which passages lead to its answer.
QA_LABELS = "RetrievalQAScore(kind='supporting')"
BEAM = "beam(width=4,branching=4,merge='state',until_success=True)"
WIDER_BEAM = BEAM.replace("branching=4", "branching=8")
NARROW_BEAM = WIDER_BEAM.replace("width=4", "width=1")


@dataclass(frozen=True)
class Setting:
    """A world as the methods are trained and evaluated in it.

    Attributes:
        world: Short name of the environment.
        name: What the results call it.
        env_set: Settings of the environment.
        probe: Search and score whose tokens per success stand for methods without their own probe.
        tokens: Sampled tokens of a run.
        eval_instances: Held-out instances.
        learn: Flags of learning that all methods have in common.
    """

    world: str
    name: str
    env_set: str
    probe: tuple[str, str]
    tokens: int = 120_000
    eval_instances: int = 512
    learn: str = GRPO


@dataclass(frozen=True)
class Method:
    """A way to train, as flags of ``tsr train``.

    Attributes:
        name: What the results call it.
        flags: Added to those of the setting and the budget.
        guide: What its search goes by.
        env_set: Settings of the environment that it trains in, where they are not those that it is evaluated in.
        probe: Search and score that were probed for it, where they are not those of the setting.
    """

    name: str
    flags: str
    guide: Guide = "none"
    env_set: str = ""
    probe: tuple[str, str] | None = None

    @property
    def search(self) -> tuple[str, str]:
        """Its search and score as the flags have them, whose probe is its price."""
        settings = dict(pairwise(self.flags.split()))
        return settings["--search"], settings.get("--score", "reward")


@dataclass(frozen=True)
class Contrast:
    """A method and the control that it is compared with on the same instances and seeds.

    Attributes:
        part: Of the study.
        setting: Where.
        base: Name of the base model that both begin with, one of `BASES`.
        method: The one.
        control: The other.
        seeds: How many pairs.
    """

    part: Part
    setting: Setting
    base: str
    method: Method
    control: Method
    seeds: int = 8

    @property
    def probe(self) -> tuple[str, str]:
        """Search and score that are probed beside plain play."""
        return self.method.probe or self.setting.probe


@dataclass(frozen=True)
class Cell:
    """One run."""

    setting: Setting
    base: str
    method: Method
    seed: int

    @property
    def name(self) -> str:
        """A folder's name."""
        words = f"{self.setting.world} {self.setting.name} {self.base} {self.method.name} {self.seed}"
        return "".join(letter if letter.isalnum() or letter == "+" else "-" for letter in words)

    @property
    def title(self) -> str:
        """A name in a table."""
        return f"{self.method.name}, seed {self.seed}"

    def flags(self) -> str:
        """Return the flags of ``tsr train`` but for model and folder."""
        budget = f"--total-tokens {self.setting.tokens} --update-tokens {self.setting.tokens // UPDATES}"
        often = f"--updates {2 * UPDATES} --eval-every {UPDATES // 4} --checkpoint-every {UPDATES // 4}"
        held_out = f"--eval-instances {self.setting.eval_instances}"
        env_set = f"--env-set {self.method.env_set or self.setting.env_set} --eval-env-set {self.setting.env_set}"
        world = f"{self.setting.learn} {env_set}" if self.setting.env_set else self.setting.learn
        return f"{world} {self.method.flags} {budget} {often} {held_out} --seed {self.seed}"


def sokoban(low: int, high: int, tokens: int = 120_000) -> Setting:
    """Return rooms of one box whose shortest solution has so many moves; one action a turn, 20 turns."""
    limits = "max_actions_per_turn=1 max_turns=20 max_actions=20"
    return Setting(
        "sokoban", f"{low} to {high} moves", f"solution_length=[{low},{high}] {limits}", (BEAM, ESTIMATE), tokens
    )


def lake(size: int, turns: int = 20, tokens: int = 60_000, sure: float = 0.9) -> Setting:
    """Return lakes of so many cells a side; a move goes as it was meant with probability `sure`, and a turn is one."""
    limits = f"max_actions_per_turn=1 max_turns={turns} max_actions={turns}"
    name = f"{size}x{size}" if sure == 0.9 else f"{size}x{size}, {sure:.0%} of moves as meant"
    return Setting("frozen_lake", name, f"size={size} success_rate={sure} {limits}", (BEAM, "FrozenLakeScore"), tokens)


def hard() -> Setting:
    """Return rooms of 7x7 cells that take 12 to 20 moves, in at most 26 turns of one move.

    With 120,000 tokens, which were tried first, two seeds of tsr+ were at 17 % at the end and still rising.
    """
    limits = "max_actions_per_turn=1 max_turns=26 max_actions=26"
    place = "dim=[7,7] solution_length=[12,20]"
    return Setting("sokoban", "7x7, 12 to 20 moves", f"{place} {limits}", (BEAM, ESTIMATE), tokens=240_000)


def words(world: str, guide: str, learn: str, tokens: int = 60_000) -> Setting:
    """Return the shop, or questions of one or two hops, as their embedded base models see them."""
    return Setting(world, "compact", "", (BEAM, guide), tokens, learn=learn)


def choosy_shop(tokens: int = 120_000) -> Setting:
    """Return a shop whose goals have two options at least."""
    return Setting(
        "webshop",
        "2 options and more",
        "min_options=2",
        (WIDER_BEAM, SHOP_SCORE),
        tokens,
        eval_instances=256,
        learn=IN_SHOP,
    )


def large_shop() -> Setting:
    """Return a shop of five times as many products as the base model was taught in."""
    return Setting("webshop", "5,000 products", "num_products=5000", (BEAM, SHOP_SCORE), 60_000, learn=IN_SHOP)


def deep_questions() -> Setting:
    """Return questions of two to four hops."""
    return Setting("retrieval_qa", "2 to 4 hops", DEEP, (BEAM, QA_SCORE), 40_000, eval_instances=256, learn=IN_QA)


# Flags of ``tsr base-model``, but for the folder.
_RARE = (
    "--band 0 0 --steps 2600 --instances 3000 --episodes 5 --poor-skill 0.05 --malformed 0.3 --poor-steps 120 "
    "--validations 128"
)
BASES = {f"S{seed}": f"sokoban --seed {seed} --env-set {sokoban(10, 16).env_set} {_RARE}" for seed in (1, 2, 3, 4, 5)}
BASES["L1"] = f"frozen_lake --seed 1 --env-set {lake(6).env_set} {_RARE} --steps 1200 --band 0 0.02"
# Another one, of seed 2, had learned to solve 12 % of these rooms before it was hidden, and was left.
BASES["H1"] = f"sokoban --seed 1 --env-set {hard().env_set} {_RARE} --steps 3000"
# Built, and run with, before the shop's recipe had corrections and its poor player the first words: today's is another.
BASES["W1"] = "webshop --seed 1 --poor-skill 0 --band 0 0.004"
# Plain play hardly ever succeeds. The last of six bases that were probed, and the only one where it is so.
BASES["W2"] = (
    "webshop --seed 1 --env-set min_options=2 --poor-skill 0 --band 0 0 --burst 60 --poor-steps 120 --poor-lr 6e-4 "
    "--poor-player tsr_gym_envs.webshop.teaching:poor_turn(p_choose=0.1,most_words=0)"
)
BASES["Q1"] = "retrieval_qa --seed 1"
BASES["D1"] = f"retrieval_qa --seed 0 --env-set {DEEP}"

# Ours: plain play first, one search only where it has failed, until its first success; learning rates fall.
TSR_PLUS = Method(
    "tsr+",
    f"--naive 4 --trajectories 1 --search {BEAM} --search-when failed --score {NEXT_PUSH} --minibatch 10 {DECAY}",
    "public",
    probe=(BEAM, NEXT_PUSH),
)
# Half the beam's price a success, and half as many rooms solved.
NARROW = Method("tsr+, width 2", TSR_PLUS.flags.replace("width=4", "width=2"), "public")
# As it was before the guide knew where pushes begin.
BY_ESTIMATE = Method("tsr+, estimate", TSR_PLUS.flags.replace(NEXT_PUSH, ESTIMATE), "public")
# The best of ten configurations on S1, one or two seeds each: groups of 4, 8, 16 and 32; rates 5e-4, 1e-3 and 2e-3;
# with and without decay; updates of half as many tokens; steps of half as many trajectories.
FILTERING = Method("filtering", "--search naive --trajectories 8 --minibatch 16")
# Where hardly anything succeeds, partial rewards are what else there is to learn from.
BY_REWARD = replace(FILTERING, name="filtering by reward", flags=f"{FILTERING.flags} --filter uncertainty")
EASIER = replace(FILTERING, name="filtering on rooms of 3 to 16 moves", env_set=sokoban(3, 16).env_set)
ON_ICE, IN_WEBSHOP, IN_QUESTIONS = (
    Method("tsr+", BY_ESTIMATE.flags.replace(ESTIMATE, score), "public")
    for score in ("FrozenLakeScore", SHOP_SCORE, QA_SCORE)
)
# In the shop rates that fall cost more than they bring, and found solutions are better imitated than reinforced.
SHOP_IMITATION = Method(
    "imitation of what tsr+ finds",
    IN_WEBSHOP.flags.replace(f"--minibatch 10 {DECAY}", "--minibatch 16 --searched-weight 0 --imitation 1"),
    "public",
)
RARE_SHOP_IMITATION = replace(
    SHOP_IMITATION, name="imitation of what a wider tsr+ finds", flags=SHOP_IMITATION.flags.replace(BEAM, WIDER_BEAM)
)
# In questions: rates that do not fall, as in the shop; and, as TSPO's credit does, a guide that knows labels.
DEEP_PLUS = Method(
    "tsr+ without decay", IN_QUESTIONS.flags.replace(f"--minibatch 10 {DECAY}", "--minibatch 16"), "public"
)
BY_LABELS = Method(
    "imitation of what a narrow tsr+ finds by labels",
    SHOP_IMITATION.flags.replace(BEAM, NARROW_BEAM).replace(SHOP_SCORE, QA_LABELS),
    "oracle",
    probe=(NARROW_BEAM, QA_LABELS),
)
ALWAYS = Method("search always", BY_ESTIMATE.flags.replace(" --search-when failed", ""), "public")
NO_DECAY = Method("tsr+ without decay", BY_ESTIMATE.flags.removesuffix(f" {DECAY}"), "public")
IMITATION = Method("imitation of what tsr+ finds", f"{BY_ESTIMATE.flags} --searched-weight 0 --imitation 1", "public")
ORACLE = Method("tsr+, oracle guide", BY_ESTIMATE.flags.replace("'estimate'", "'oracle'"), "oracle")
REWARD = Method("tsr+, reward alone", BY_ESTIMATE.flags.replace(ESTIMATE, "reward"))
GRAPH = Method("graph credit, searches inform", f"{TSR_PLUS.flags} --estimator graph --searched-weight 0", "public")
# A quarter of the groups begins in the middle of the run's own episodes.
STATES = Method("tsr+, states", f"{TSR_PLUS.flags} --start-states 4", "public")
# Without a guide: Levin tree search goes by the policy's own probabilities, and its loss imitates what it found.
IN_TREE = "levin(expansions=60)"
LEVIN = Method(
    "levin and its loss",
    f"--naive 4 --trajectories 1 --search {IN_TREE} --search-when failed --minibatch 10 {DECAY} --searched-weight 0 "
    "--imitation 1 --imitated expansions",
    probe=(IN_TREE, "reward"),
)
LEVIN_ALIKE = replace(LEVIN, name="levin, all solutions alike", flags=LEVIN.flags.replace(" --imitated expansions", ""))
LEVIN_GRPO = replace(LEVIN, name="tsr+ by levin", flags=LEVIN.flags.partition(" --searched-weight")[0])


def contrasts(part: Part) -> Iterator[Contrast]:
    """Yield the contrasts of a part of the study."""
    rare = sokoban(10, 16)
    if part == "headline":
        for base in ("S1", "S2", "S3", "S4", "S5"):
            yield Contrast(part, rare, base, TSR_PLUS, FILTERING)
    if part == "ablation":
        for other in (NARROW, ALWAYS, NO_DECAY, IMITATION, ORACLE, REWARD, GRAPH):
            yield Contrast(part, rare, "S1", other, FILTERING, 4)
    if part == "unguided":
        for control in (FILTERING, TSR_PLUS):
            for base in ("S1", "S2", "S3", "S4", "S5"):
                yield Contrast(part, rare, base, LEVIN, control)
    if part == "by levin":
        for other in (LEVIN_ALIKE, LEVIN_GRPO):
            yield Contrast(part, rare, "S1", other, FILTERING, 4)
    if part == "moments":
        yield Contrast(part, rare, "S1", STATES, FILTERING, 2)
    if part == "estimate":
        for base in ("S1", "S2", "S3", "S4"):
            yield Contrast(part, rare, base, BY_ESTIMATE, FILTERING, 4 if base == "S3" else 8)
    if part == "easier":
        for method in (TSR_PLUS, LEVIN):
            for base in ("S1", "S2", "S4"):
                yield Contrast(part, rare, base, method, EASIER, 4)
    if part == "hard":
        yield Contrast(part, hard(), "H1", TSR_PLUS, FILTERING, 4)
        yield Contrast(part, hard(), "H1", BY_ESTIMATE, FILTERING, 2)
        yield Contrast(part, hard(), "H1", LEVIN, FILTERING, 4)
    if part == "lake":
        yield Contrast(part, lake(12, 40), "L1", ON_ICE, FILTERING)
        yield Contrast(part, lake(6), "L1", ON_ICE, FILTERING)
        yield Contrast(part, lake(4), "L1", ON_ICE, FILTERING)
        for setting in (lake(6, sure=1.0), lake(6, sure=0.6)):
            yield Contrast(part, setting, "L1", ON_ICE, FILTERING, 2)
    if part == "words":
        yield Contrast(part, words("webshop", SHOP_SCORE, IN_SHOP), "W1", IN_WEBSHOP, FILTERING)
        yield Contrast(part, large_shop(), "W1", SHOP_IMITATION, FILTERING)
        yield Contrast(part, large_shop(), "W1", IN_WEBSHOP, FILTERING, 2)
        yield Contrast(part, choosy_shop(), "W2", RARE_SHOP_IMITATION, FILTERING)
        yield Contrast(part, choosy_shop(), "W2", RARE_SHOP_IMITATION, BY_REWARD)
        yield Contrast(part, words("retrieval_qa", QA_SCORE, IN_QA), "Q1", IN_QUESTIONS, FILTERING)
        yield Contrast(part, deep_questions(), "D1", DEEP_PLUS, FILTERING)
        yield Contrast(part, deep_questions(), "D1", BY_LABELS, FILTERING)
    if part == "law":
        for base in ("S1", "S2", "S4"):
            for low, high in ((3, 8), (5, 10), (7, 12)):
                yield Contrast(part, sokoban(low, high, 60_000), base, BY_ESTIMATE, FILTERING, 2)


def cells(part: Part) -> Iterator[Cell]:
    """Yield the runs of a part, each once, pair by pair and seed by seed."""
    wanted = list(contrasts(part))
    done = set()
    for seed in range(max((contrast.seeds for contrast in wanted), default=0)):
        for contrast in wanted:
            for method in (contrast.method, contrast.control):
                cell = Cell(contrast.setting, contrast.base, method, seed)
                if seed < contrast.seeds and cell not in done:
                    done.add(cell)
                    yield cell


def probe(out: Path, wanted: Iterable[Contrast], workers: int, *, instances: int, episodes: int) -> None:
    """Measure what a success costs before training, by plain play and by the search that each contrast names."""
    jobs = []
    for name, contrast in sorted({probe_name(contrast): contrast for contrast in wanted}.items()):
        search, score = contrast.probe
        flags = (
            f"probe {contrast.setting.world} --model {out / 'bases' / contrast.base} --search {search} --score {score} "
            f"--instances {instances} --episodes {episodes} --json {out / 'probes' / name}.json"
        ) + (f" --env-set {contrast.setting.env_set}" if contrast.setting.env_set else "")
        if not (out / "probes" / f"{name}.json").exists():
            jobs.append(command_job(flags, out / "logs" / f"probe-{name}.log"))
    (out / "probes").mkdir(parents=True, exist_ok=True)
    run_all(jobs, workers)


def probe_name(contrast: Contrast) -> str:
    """Return the name of a probe's file."""
    own = f"-{contrast.method.name}" if contrast.method.probe else ""
    return f"{contrast.setting.world}-{contrast.setting.name}-{contrast.base}{own}".replace(" ", "-")


def train_cells(out: Path, cells: Iterable[Cell], workers: int, *, watch: Callable[[], object] | None = None) -> None:
    """Do the runs that are not finished, see `benchmarks.tsr_runs.train`."""
    train(out, {cell.name: train_flags(out, cell) for cell in cells}, workers, watch=watch)


def train_flags(out: Path, cell: Cell) -> str:
    """Return the command line of a run but for its folder."""
    return f"train {cell.setting.world} --model {out / 'bases' / cell.base} {cell.flags()} --label {_label(cell)}"


def row_of(out: Path, cell: Cell) -> Row | None:
    """Return the row of a run from its files, None where it is not finished."""
    numbers = measured(out / "cells" / cell.name)
    if numbers is None:
        return None
    of_run = ("env_steps", "optimizer_steps", "seconds")
    of_point = ("sampled_tokens", "prompt_tokens", "seconds", "success", "distinct", "optimal")
    return {
        "cell": cell.name,
        "world": cell.setting.world,
        "setting": cell.setting.name,
        "base": cell.base,
        "method": cell.method.name,
        "guide": cell.method.guide,
        "seed": cell.seed,
        "command": command(train_flags(Path("OUT"), cell)),
        **{name: numbers[name] for name in of_run},
        "points": [{name: point[name] for name in of_point} for point in numbers["points"]],
    }


def probe_row(out: Path, contrast: Contrast) -> Row | None:
    """Return a probe's rows, None where it was not made."""
    path = out / "probes" / f"{probe_name(contrast)}.json"
    if not path.exists():
        return None
    return {
        "probe": probe_name(contrast),
        "world": contrast.setting.world,
        "setting": contrast.setting.name,
        "base": contrast.base,
        "rows": json.loads(path.read_text()),
    }


def _label(cell: Cell) -> str:
    return cell.method.name.replace(" ", "_")
