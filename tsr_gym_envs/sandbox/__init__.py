"""Sandboxes: real files and commands under the contract of text environments, with snapshots by a backend."""
