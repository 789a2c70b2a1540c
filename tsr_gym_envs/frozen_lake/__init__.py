"""FrozenLake: rules, maps, the exact optimum, scores and the environment."""
