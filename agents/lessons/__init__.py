"""Lessons: which groups are learned from, and whose credit their rewards are."""
