"""Short names of modules: the same module, with the same classes, under both names."""

from importlib import import_module
from importlib.util import find_spec

import pytest

from tests.tsr_gym.own_process import run_python
from tsr_gym.agents import SHORT


@pytest.mark.parametrize("short", SHORT)
def test_a_short_name_is_the_very_module(short):
    module, long = import_module(f"tsr_gym.agents.{short}"), f"tsr_gym.agents.{SHORT[short]}"
    assert module is import_module(long)
    assert module.__name__ == module.__spec__.name == long


def test_parts_of_a_package_are_not_loaded_a_second_time():
    code = (
        "from tsr_gym.agents.advantages.gae import gae\n"
        "from tsr_gym.agents.learning.advantages.gae import gae as same\n"
        "from tsr_gym.agents.search import search\n"
        "import tsr_gym.agents.losses, tsr_gym.agents.learning.losses, sys\n"
        "print(gae is same, search.__module__, tsr_gym.agents.losses is tsr_gym.agents.learning.losses)\n"
        "print([name for name, module in sys.modules.items() if name.startswith('tsr_gym.agents.') "
        "and sys.modules[module.__name__] is not module])"
    )
    assert run_python(code).splitlines() == ["True tsr_gym.agents.episodes.search True", "[]"]


def test_what_was_never_there_is_not_found():
    assert find_spec("tsr_gym.agents.nothing") is None
    with pytest.raises(ModuleNotFoundError, match=r"tsr_gym\.agents\.search_more"):
        import_module("tsr_gym.agents.search_more")


def test_the_names_that_documents_show_work():
    code = (
        "from tsr_gym.agents.advantages import grpo, tree_grpo, tspo\n"
        "from tsr_gym.agents.batch import collate\n"
        "from tsr_gym.agents.credit import first_occurrence\n"
        "from tsr_gym.agents.filters import keep_uncertain\n"
        "from tsr_gym.agents.losses import policy_loss\n"
        "from tsr_gym.agents.random_policy import RandomPolicy\n"
        "from tsr_gym.agents.search import search\n"
        "from tsr_gym.agents.strategies import beam\n"
        "from tsr_gym.agents.trajectory import Group\n"
        "print('all of them')"
    )
    assert run_python(code).strip() == "all of them"
