"""What workers of Ray cost in addition to the searches, and how long it takes to recover when parts die.

A cluster on this machine, the embedded model of Sokoban, and the beam of the demonstration. Every round of searches is
compared with the same round without Ray: its instances, each once, and their tokens.

Ray's share of a round is its time less that of the slowest worker's own work. It is measured twice: with workers that
search, which here share two cores, and with workers that hand back what they once searched, so that only what Ray and
the driver do is left. A hand-over of weights is the time that the first round by new weights takes longer: from the
learner's tensors to a worker that holds them, whose engine has continued the fixed prompts, compared with the learner.
Recovery is the time from ``kill -9`` of the only worker, or from the loss of the node that it ran on while another node
is there, to the last group of the round that it interrupts: the loss is noticed, a process started, its libraries
imported, the model read, weights handed over, and the searches done again. Times are wall-clock, with other work on the
machine.
Run: python -m benchmarks.scale, in an environment with ray (`make test-ray` makes one: .venv-ray)
"""

import argparse
import json
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Timer
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.measure import RESULTS, run_timed, write_result
from tsr_gym.agents.config import TrainConfig
from tsr_gym.agents.episodes.collect import Collected, Collector
from tsr_gym.agents.episodes.model_player import ModelPlayer
from tsr_gym.agents.episodes.settings import SearchConfig
from tsr_gym.agents.learning.learner import Learner
from tsr_gym.agents.learning.settings import LearnConfig
from tsr_gym.agents.models.language_model import load_policy, save_policy
from tsr_gym.agents.models.settings import ModelConfig
from tsr_gym.agents.runs.workers.on_ray import WorkerConfig, connected
from tsr_gym.agents.runs.workers.remote_collector import RemoteCollector
from tsr_gym.agents.runs.workers.worker import Files, Job, RolloutWorker, WorkerResult, files_of, weights_of
from tsr_gym.agents.teaching.base_model import default_model

# A loss is noticed after about 1.5 seconds without an answer; by default after about 15.
ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "300",
    "RAY_health_check_timeout_ms": "500",
    "RAY_health_check_failure_threshold": "3",
}
GROUPS = 8
SIZES = {"64 wide, 2 layers": None, "256 wide, 4 layers": (256, 4), "512 wide, 8 layers": (512, 8)}
MEMORY = 500 * 2**20
RECOVERIES: dict[str, dict[str, Any]] = {
    "recovery_from_a_killed_actor": {},
    "recovery_from_a_lost_node": {"nodes": True},
}
PARTS = ["per_tree", "share_of_a_round", "hand_over_of_weights", *RECOVERIES]


class Replaying(RolloutWorker):
    """A worker that searches a piece of work once and then hands back what it found, as if it had taken no time."""

    def __init__(self, config: TrainConfig, files: Files) -> None:
        super().__init__(config, files)
        self.known: dict[int, WorkerResult[Collected]] = {}

    def search(self, job: Job) -> WorkerResult[Collected]:
        """Hand back what was found for these instances."""
        if job.first not in self.known:
            self.known[job.first] = super().search(job)
        return self.known[job.first]._replace(seconds=0.0)


class Bench:
    """A model with its learner, and rounds of its searches without and with workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        search = SearchConfig(search="beam(width=2, branching=4)", groups=GROUPS, trajectories=2)
        learn = LearnConfig(algorithm="grpo")
        self.config = TrainConfig(env="sokoban", search=search, model=ModelConfig(model=str(folder)), learn=learn)
        policy = load_policy(folder, device=torch.device("cpu"))
        player = ModelPlayer(self.config.env, self.config.task, self.config.model, policy)
        pool = player.pool("train", search)
        self.chat = player.chat_about(pool.base, temperature=1.0)
        self.learner = Learner(policy.model, None, learn)
        self.plain = Collector(search, pool, self.chat, seed=0)

    def workers(self, address: str, count: int, make: type[RolloutWorker] = RolloutWorker) -> RemoteCollector:
        """Return a collector with workers, which is ready."""
        settings = WorkerConfig(ray=address, ray_workers=count, ray_patience=300, ray_retries=5)
        files = files_of(self.folder, adapter=False)
        remote = RemoteCollector(self.config, files, settings, self.chat.engine, self.learner, make=make)
        remote.collect(0, GROUPS)
        return remote

    def new_weights(self) -> None:
        """Count a version on; the weights stay as they are, so that every round can be compared."""
        self.chat.engine.load_weights((), version=self.chat.engine.weight_version + 1)


def tokens_of(collected: Collected) -> list[Any]:
    """Return the instances of a round, in order, and all that was sampled for them."""
    return [
        (group.task, [[node.candidate.token_ids for node in tree.nodes] for tree in trees])
        for group, trees in zip(collected.groups, collected.trees, strict=True)
    ]


def share_of_rounds(bench: Bench, address: str, rounds: int) -> dict[str, Any]:
    """Return milliseconds of a round without the workers' own work, by the number of workers."""
    wanted = tokens_of(bench.plain.collect(0, GROUPS))
    by_side: dict[str, Any] = {}
    for name, make, counts in (("searching", RolloutWorker, (1, 2)), ("replaying", Replaying, (1, 2, 4))):
        for count in counts:
            remote = bench.workers(address, count, make)
            # A few times, so that every worker has searched what it is to hand back.
            for _ in range(3):
                remote.collect(0, GROUPS)
            busy = time.process_time()
            taken = [remote.collect(0, GROUPS) for _ in range(rounds)]
            busy = time.process_time() - busy
            assert all(tokens_of(result) == wanted for result in taken), "not the same trees"
            shares = [1000 * result.seconds["workers"] for result in taken]
            by_side.setdefault(name, {})[count] = {
                "median_ms": round(median(shares), 2),
                "least_ms": round(min(shares), 2),
                "driver_processor_ms": round(1000 * busy / rounds, 2),
            }
            remote.close()
    fits = {}
    for statistic in ("median_ms", "least_ms"):
        counts, shares = zip(*((count, row[statistic]) for count, row in by_side["replaying"].items()), strict=True)
        slope, base = np.polyfit(counts, shares, 1)
        fits[statistic] = {"base": round(base, 2), "per_worker": round(slope, 2)}
    return by_side | {"replaying_by_workers": fits}


def per_tree(bench: Bench) -> dict[str, float]:
    """Return the bytes of a searched instance on its way to the driver."""
    collected = bench.plain.collect(0, GROUPS)
    trees = sum(map(len, collected.trees))
    data = pickle.dumps(collected, protocol=5)
    started = time.process_time()
    for _ in range(20):
        pickle.loads(data)
    read = (time.process_time() - started) / 20
    nodes = sum(len(tree.nodes) for grown in collected.trees for tree in grown)
    return {
        "trees": trees,
        "nodes_per_tree": round(nodes / trees, 1),
        "kilobytes_per_tree": round(len(data) / trees / 1000, 2),
        "driver_reads_a_tree_in_ms": round(1000 * read / trees, 3),
    }


def hand_overs(bench: Bench, address: str, rounds: int, folder: Path) -> dict[str, Any]:
    """Return seconds from a learner's weights to a checked worker, by the size of the model."""
    sizes = {}
    for name, size in SIZES.items():
        sized = bench if size is None else Bench(resized(bench.folder, folder / name, *size))
        remote = sized.workers(address, 1)
        longer = []
        for _ in range(rounds):
            sized.new_weights()
            # Plain play of one instance, because the searches themselves do not count.
            first, second = (remote.collect(0, 1, plainly=True).seconds["workers"] for _ in range(2))
            longer.append(first - second)
        size_in_bytes = sum(array.nbytes for array in weights_of(sized.learner.model).values())
        sizes[name] = {"megabytes": round(size_in_bytes / 1e6, 2), "milliseconds": round(1000 * median(longer), 1)}
        remote.close()
    return sizes


def resized(folder: Path, out: Path, hidden: int, layers: int) -> Path:
    """Write a model of random weights and another size, with the tokenizer of a known one."""
    policy = load_policy(folder, device=torch.device("cpu"))
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    config.update({"hidden_size": hidden, "intermediate_size": 4 * hidden, "num_hidden_layers": layers})
    config.update({"layer_types": ["full_attention"] * layers})
    torch.manual_seed(0)
    out.mkdir()
    save_policy(policy._replace(model=AutoModelForCausalLM.from_config(config)), out)
    return out


def recoveries(bench: Bench, faults: int, minutes: float, *, nodes: bool = False) -> dict[str, Any]:
    """Return seconds of recovery from the loss of the first worker, or of the node that it is on."""
    seconds: list[float] = []
    rounds = right = 0
    until = time.monotonic() + 60 * minutes
    with cluster(0 if nodes else 1) as made, connected(WorkerConfig(ray=made.address)):
        spare = [made.add_node(num_cpus=1, object_store_memory=MEMORY) for _ in range(2 if nodes else 0)]
        remote = bench.workers(made.address, 1)
        wanted = tokens_of(remote.collect(0, GROUPS))
        for fault in range(faults):
            # Answers once the worker runs again.
            lose = _losing(made, remote, spare if nodes else None)
            struck: list[float] = []
            timer = Timer(0.02 * (1 + fault % 5), lambda lose=lose, struck=struck: _strike(lose, struck))
            timer.start()
            while not remote.metrics():
                # A fault between two rounds is met by the next one.
                right += tokens_of(remote.collect(0, GROUPS)) == wanted
                rounds += 1
            seconds.append(time.monotonic() - struck[0])
            timer.join()
            print(f"fault {fault + 1}: {seconds[-1]:.1f} s", flush=True)
            if nodes:
                spare.append(made.add_node(num_cpus=1, object_store_memory=MEMORY))
            if time.monotonic() > until:
                break
        remote.close()
    return {
        "faults": len(seconds),
        "rounds": rounds,
        "rounds_with_each_group_once_and_its_tokens": right,
        "median_s": round(median(seconds), 1),
        "longest_s": round(max(seconds), 1),
    }


def _strike(lose: Callable[[], None], struck: list[float]) -> None:
    struck.append(time.monotonic())
    lose()


def _losing(made: Any, remote: RemoteCollector, spare: list[Any] | None) -> Callable[[], None]:
    """Return a function that kills the first worker, or its node."""
    pid, node = remote.crew.where(0)
    if spare is None:
        return lambda: os.kill(pid, signal.SIGKILL)
    own = next(worker for worker in spare if worker.node_id == node)
    spare.remove(own)
    return lambda: made.remove_node(own, allow_graceful=False)


@contextmanager
def cluster(cpus: int) -> Iterator[Any]:
    """Give a cluster on this machine, so far of one node."""
    from ray.cluster_utils import Cluster

    made = Cluster()
    try:
        made.add_node(num_cpus=cpus, object_store_memory=MEMORY, include_dashboard=False)
        yield made
    finally:
        made.shutdown()


def measured(part: str, bench: Bench, args: argparse.Namespace) -> Any:
    """Return the numbers of a part."""
    if part == "per_tree":
        return per_tree(bench)
    if part in RECOVERIES:
        return recoveries(bench, args.faults, args.minutes, **RECOVERIES[part])
    with TemporaryDirectory() as name, cluster(8) as made, connected(WorkerConfig(ray=made.address)):
        if part == "share_of_a_round":
            return share_of_rounds(bench, made.address, args.rounds)
        return hand_overs(bench, made.address, args.rounds // 2, Path(name))


def main() -> None:
    """Measure, and put each part into the result as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=20, help="injected faults of each kind")
    parser.add_argument("--minutes", type=float, default=60, help="after which no more faults of a kind are injected")
    parser.add_argument("--rounds", type=int, default=30, help="rounds that a median is taken of")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure; the rest stays")
    parser.add_argument("--out", type=Path, default=RESULTS / "scale.json", help="another result file, for a trial")
    args = parser.parse_args()
    os.environ |= ENVIRONMENT
    torch.set_num_threads(1)
    bench = Bench(default_model("sokoban", (), note=print))
    about = {"ray": version("ray"), "settings": {"groups": GROUPS, "search": bench.config.search.search}}
    for part in args.parts:
        numbers = {part: measured(part, bench, args)}
        recorded = json.loads(args.out.read_text(encoding="utf-8")) if args.out.exists() else {}
        before = {name: recorded[name] for name in PARTS if name in recorded}
        write_result("scale", about | before | numbers, out=args.out)


if __name__ == "__main__":
    run_timed(main)
