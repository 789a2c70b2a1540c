"""Databases behind tools: schemas, generated data, tasks with rules, and the environment."""
