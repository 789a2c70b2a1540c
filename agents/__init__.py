"""From searched trajectories to a better policy: strategies, search, credit, learning and evaluation.

Imported as ``tsr_gym.agents``. Search, strategies and trajectories need nothing but the core; models and learning need
the extra ``agents``. The folders stand in the order of a trajectory, and each imports only those before it.
"""

if __name__ != "tsr_gym.agents":
    raise ImportError("import this package as tsr_gym.agents: under two names there would be two of every class")
