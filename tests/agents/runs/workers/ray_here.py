"""What tests over a real Ray share: one on this machine, clusters of some nodes, and workers with faults to order."""

import os
import time
from contextlib import contextmanager
from pathlib import Path

# Before Ray is imported, which reads them then.
os.environ |= {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Otherwise actors give way to whatever else the machine does, for minutes.
    "RAY_worker_niceness": "0",
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "300",
    "RAY_health_check_timeout_ms": "500",
    "RAY_health_check_failure_threshold": "3",
}
MEMORY = 100 * 2**20


@contextmanager
def cluster(*cpus):
    """Give a cluster on this machine, with a node for each number of processors; the first one is its head."""
    from ray.cluster_utils import Cluster

    made = Cluster()
    try:
        for count in cpus:
            made.add_node(num_cpus=count, object_store_memory=MEMORY, include_dashboard=False)
        made.wait_for_nodes()
        yield made
    finally:
        made.shutdown()


def faulty(kind, folder, *, examined=False):
    """Return a maker of workers, one of which has a fault at its first piece of work; `folder` remembers that it had.

    Args:
        kind: ``"dies"``, ``"hangs"``, ``"loses"`` (the last of its instances), ``"stale"`` (keeps its first weights and
            says so) or ``"secretly stale"`` (and says that it has the new ones).
        folder: An empty folder.
        examined: Whether the work is of held-out instances, and not a search.
    """

    def make(config, files):
        from tsr_gym.agents.runs.parity import continued
        from tsr_gym.agents.runs.workers.worker import Exam, RolloutWorker

        def first():
            try:
                (Path(folder) / kind).touch(exist_ok=False)
            except FileExistsError:
                return False
            return True

        class Faulty(RolloutWorker):
            def take(self, weights, version):
                if not kind.endswith("stale") or version == 0 or not first():
                    return super().take(weights, version)
                if kind == "secretly stale":
                    self.engine.weight_version = version
                self.said = tuple(continued(self.engine, self.model_config))
                self.weight_version = version

            def work(self, job):
                if isinstance(job, Exam) != examined or kind.endswith("stale") or not first():
                    return super().work(job)
                if kind == "dies":
                    os.kill(os.getpid(), 9)
                if kind == "hangs":
                    time.sleep(10_000)
                return super().work(job._replace(tasks=job.tasks[:-1], starts=job.starts[:-1]))

        return Faulty(config, files)

    return make
