"""Where what is built at first use is kept: catalogues, worlds, indexes."""

import os
from pathlib import Path


def cache_home() -> Path:
    """Return the folder of everything that tsr-gym builds and can build again.

    ``TSR_GYM_CACHE`` where it is set, else ``tsr-gym`` below the user's cache folder.
    """
    chosen = os.environ.get("TSR_GYM_CACHE")
    return Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tsr-gym"
