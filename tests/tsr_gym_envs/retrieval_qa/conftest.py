"""What is left out of these tests where the libraries of models are not installed."""

from importlib.util import find_spec

# Doctests are looked for in every file, which is imported for it.
collect_ignore = [] if find_spec("torch") else ["with_dense.py"]
