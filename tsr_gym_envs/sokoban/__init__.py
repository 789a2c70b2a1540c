"""Sokoban: rules, levels, generation, oracle, scores and the environment."""
