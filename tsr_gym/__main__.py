"""``python -m tsr_gym``: the `tsr` command."""

import sys
from collections.abc import Callable
from typing import cast

from tsr_gym.optional import load

if __name__ == "__main__":
    sys.exit(cast(Callable[[], int], load("tsr_gym.agents.cli:main"))())
