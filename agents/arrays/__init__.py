"""Search in arrays: thousands of tasks at once, over batches of environments whose actions are numbers.

For policies that answer in arrays too, such as a table, a rule or a small network: millions of nodes per second, and no
object per node. Needs numba.
"""

from tsr_gym.agents.arrays.beam import ArrayBeam, array_beam
from tsr_gym.agents.arrays.puct import ArrayPuct, array_puct
from tsr_gym.agents.arrays.tree import ArrayEnv, ArrayRequest, ArrayTree

__all__ = ["ArrayBeam", "ArrayEnv", "ArrayPuct", "ArrayRequest", "ArrayTree", "array_beam", "array_puct"]
