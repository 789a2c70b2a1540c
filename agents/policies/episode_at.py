"""The episode of an environment at a node of a tree, read from the node's snapshot without restoring it."""

from tsr_gym.errors import TsrGymError
from tsr_gym.snapshots import EnvState
from tsr_gym.state_env import Episode
from tsr_gym.tree import Tree


def episode_at(tree: Tree, node: int) -> Episode:
    """Return the state and the counters of the environment at a node.

    Raises:
        TsrGymError: The node has no snapshot, or not of a `StateEnv`.
    """
    snapshot = tree.nodes[node].snapshot
    inner = None if snapshot is None else snapshot.layers[-1].state
    if not isinstance(inner, EnvState):
        raise TsrGymError(f"wanted the snapshot of a StateEnv at node {node}, got {type(inner).__name__}")
    episode: Episode = inner.episode
    return episode
