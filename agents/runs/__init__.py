"""Runs: a training run in a folder: configuration, trainer, checkpoints, logs, embedded base models."""
