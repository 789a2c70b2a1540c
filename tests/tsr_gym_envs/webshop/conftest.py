"""Catalogues that the tests of the shop share."""

import pytest

from tsr_gym_envs.webshop.catalogue.opening import import_catalogue


@pytest.fixture(scope="session")
def real_catalogue(shared, tmp_path_factory):
    """The real small set, imported once."""
    return import_catalogue(shared / "data" / "webshop", tmp_path_factory.mktemp("real"))
