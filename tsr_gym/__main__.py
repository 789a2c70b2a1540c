"""``python -m tsr_gym``: the `tsr` command."""

import sys

from tsr_gym.optional import load

if __name__ == "__main__":
    sys.exit(load("tsr_gym.agents.cli:main")())
