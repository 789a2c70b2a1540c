"""Seeds in compiled code: the published numbers of splitmix64, and Python's own integers."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tests.agents.arrays import singles
from tests.tsr_gym.own_process import run_python
from tsr_gym.agents.arrays import tree


def test_seeds_derive_by_splitmix64():
    # The first outputs of splitmix64 from the state 0, as its authors' code gives them.
    first = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [int(tree.derive(np.uint64(0), number)) for number in range(3)] == first


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**40))
def test_seeds_are_those_of_plain_python(seed, number):
    assert int(tree.derive(np.uint64(seed), number)) == singles.derive(seed, number)


def test_purposes_are_apart_from_each_other_and_from_children():
    assert (tree.POLICY, tree.DICE, tree.TIE) == (singles.POLICY, singles.DICE, singles.TIE)
    assert len({tree.POLICY, tree.DICE, tree.TIE} | set(range(100))) == 103


def test_without_numba_the_pip_line_is_named():
    code = "import sys; sys.modules['numba'] = None\nimport tsr_gym.agents\nimport tsr_gym.agents.arrays"
    done = run_python(code, check=False)
    assert done.returncode == 1
    assert "pip install 'tsr-gym[agents]'" in done.stderr
