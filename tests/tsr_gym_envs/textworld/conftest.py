"""Generated games, in a cache that lasts for the tests of this folder."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def textworld_cache(tmp_path_factory):
    """Keep generated games in one folder for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TSR_GYM_CACHE", str(tmp_path_factory.mktemp("games")))
        yield
