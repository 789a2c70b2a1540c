"""Bridges: what trees say, as data for trainers and tools of others."""
