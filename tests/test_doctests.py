"""The examples in docstrings run: every module of the package, under the name that users import it by."""

import doctest
from importlib import import_module

import pytest

from tests.test_house import SOURCES
from tests.test_imports import MODULES

# The module that only verl can import has no examples.
WITH_EXAMPLES = sorted(module for module, name in MODULES.items() if ">>> " in SOURCES[name][1])


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_the_examples_of_a_module_print_what_they_show(module):
    done = doctest.testmod(import_module(module))
    assert (done.failed, done.attempted > 0) == (0, True)
