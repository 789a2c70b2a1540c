"""Helpers of tests with a real Ray: clusters on this machine, and workers with faults."""

import json
import os
import time
from collections import Counter
from contextlib import contextmanager
from functools import partial, partialmethod
from pathlib import Path

from tests.agents.short_runs import result, short_run
from tsr_gym.agents.runs import parts
from tsr_gym.agents.runs.trainer import start_run
from tsr_gym.agents.runs.workers.on_ray import OFF, WorkerConfig
from tsr_gym.agents.runs.workers.remote_collector import RemoteCollector
from tsr_gym.errors import EngineFailed

# Set before Ray is imported, which reads them at once.
os.environ |= {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Otherwise actors wait for other processes of the machine, for minutes.
    "RAY_worker_niceness": "0",
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "300",
    "RAY_health_check_timeout_ms": "500",
    "RAY_health_check_failure_threshold": "3",
}
MEMORY = 100 * 2**20
SEARCH = {"search": "beam(width=2, branching=2)", "groups": 3, "trajectories": 2}


@contextmanager
def cluster(*cpus):
    """Yield a cluster on this machine, with a node for each number of processors; the first node is its head."""
    from ray.cluster_utils import Cluster

    made = Cluster()
    try:
        for count in cpus:
            made.add_node(num_cpus=count, object_store_memory=MEMORY, include_dashboard=False)
        made.wait_for_nodes()
        yield made
    finally:
        made.shutdown()


def make_workers_by(make, patch):
    """Let runs make their workers by a function, such as `faulty` returns."""
    makes = {"__init__": partialmethod(RemoteCollector.__init__, make=make)}
    patch.setattr(parts, "RemoteCollector", type("RemoteCollector", (RemoteCollector,), makes))


def faulty(fault, folder, *, examined=False):
    """Return a maker of workers, one of which has a fault at its first job; a file in `folder` marks that it had it.

    Args:
        fault: ``"dies"``, ``"hangs"``, ``"breaks"`` (its engine fails), ``"loses"`` (leaves out its last instance),
            ``"stale"`` (keeps its first weights) or ``"secretly stale"`` (also reports the new version).
        folder: An empty folder.
        examined: Whether the work is of held-out instances, and not a search.
    """

    def make(config, files):
        from tsr_gym.agents.runs.parity import continue_prompts
        from tsr_gym.agents.runs.workers.worker import Exam, RolloutWorker

        def first():
            try:
                (Path(folder) / fault).touch(exist_ok=False)
            except FileExistsError:
                return False
            return True

        class Faulty(RolloutWorker):
            def take(self, weights, version):
                if not fault.endswith("stale") or version == 0 or not first():
                    return super().take(weights, version)
                if fault == "secretly stale":
                    self.engine.load_weights((), version=version)
                self.continuations = tuple(continue_prompts(self.engine, self.model.config))
                self.weight_version = version

            def work(self, job):
                if isinstance(job, Exam) != examined or fault.endswith("stale") or not first():
                    return super().work(job)
                if fault == "dies":
                    os.kill(os.getpid(), 9)
                if fault == "hangs":
                    time.sleep(10_000)
                if fault == "breaks":
                    raise EngineFailed("it broke off")
                return super().work(job._replace(tasks=job.tasks[:-1], starts=job.starts[:-1]))

        return Faulty(config, files)

    return make


def train(out, base, *, watch=lambda made, event, record: None, workers=OFF, **changes):
    """Train a short run and return its result; see `result`."""
    changes = {"search": SEARCH, "run": {"updates": 3}} | changes
    made = start_run(short_run(out, base, **changes), base, workers=workers)
    assert made.run(watch=partial(watch, made))
    return result(out)


def on(address, **changes):
    return WorkerConfig(ray=address, **{"ray_workers": 2, "ray_patience": 120, **changes})


def faults_in(trained):
    """Remove the counts of faults from a result and return their sums by fault."""
    counts = [line.pop("worker_faults", {}) for log in ("metrics", "evaluations") for line in trained[log]]
    return dict(sum(map(Counter, counts), Counter()))


def nodes_of(trees):
    return {name: [json.loads(line) for line in text.splitlines()] for name, text in trees.items()}
