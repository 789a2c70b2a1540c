"""Actions on record: by value, whoever owns the memory."""

import numpy as np
import pytest

from tests.tsr_gym.foreign import worlds
from tsr_gym.foreign.freezing import Uncopyable, kept
from tsr_gym.foreign.thawing import Thawer, same


def test_views_into_the_same_memory_are_kept_as_numbers():
    whole = np.arange(6, dtype=np.int8)
    record = kept({"left": whole[:4], "both": (whole[2:], [whole])})
    whole[:] = 0
    thawed = Thawer({}).thawed(record)
    assert thawed["left"].tolist() == [0, 1, 2, 3]
    assert thawed["both"][0].tolist() == [2, 3, 4, 5]
    assert thawed["both"][1][0].dtype == np.int8


def test_a_tensor_is_kept_as_numbers_and_given_as_a_tensor():
    torch = pytest.importorskip("torch")
    tensor = torch.tensor([1.5, 2.0], requires_grad=True)
    record = kept([tensor, tensor])
    assert same(record, kept([tensor.detach().clone(), tensor]))
    one, other = Thawer({}).thawed(record)
    assert isinstance(one, torch.Tensor)
    one[0] = 0
    assert other.tolist() == [1.5, 2.0]
    assert Thawer({}).thawed(record)[0].tolist() == [1.5, 2.0]


def test_what_has_no_value_of_its_own_is_refused():
    with pytest.raises(Uncopyable, match="a Resource frees something"):
        kept({"turn": worlds.Resource()})
