"""``python -m tsr_gym.cli`` is the `tsr` command."""

import sys

from tsr_gym.cli import main

sys.exit(main())
