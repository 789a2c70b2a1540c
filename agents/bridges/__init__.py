"""Bridges: trees as data for other trainers and tools, and this package's search inside other trainers."""
