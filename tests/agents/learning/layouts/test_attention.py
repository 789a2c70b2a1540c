"""Attention over a forest: the mask against rows, and the three ways to attend against the formula."""

import pytest
import torch

from tests.agents.learning.layouts.rows import BATCHES, batch_of, random_model
from tests.agents.learning.layouts.test_forest import HAND, rows_batch
from tsr_gym import ConfigError
from tsr_gym.agents.learning.layouts import attending, attention_of, grow_forest, sees


def seen_in_rows(forest, window=None):
    """Return which tokens see which, `[U, U]`, read off the rows."""
    size = len(forest.ids)
    found = torch.zeros(size, size, dtype=torch.bool)
    for line in forest.place.tolist():
        row = [token for token in line if token >= 0]
        for column, token in enumerate(row):
            first = 0 if window is None else max(0, column - window + 1)
            found[token, row[first : column + 1]] = True
    return found


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("window", [None, 1, 3])
@pytest.mark.parametrize("name", ["trees", "nested", "twins"])
def test_a_token_sees_itself_and_what_is_before_it_in_its_rows(name, window, share):
    forest = grow_forest(batch_of(BATCHES[name]()), share=share)
    numbers = torch.arange(len(forest.ids))
    mask = sees(forest, window)(0, 0, numbers[:, None], numbers)
    assert torch.equal(mask, seen_in_rows(forest, window))


def plain(forest, query, key, value, scale, window):
    """Return attention in the words of its formula."""
    times = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(times, dim=1), value.repeat_interleave(times, dim=1)
    scores = (query @ key.transpose(2, 3)) * (query.shape[-1] ** -0.5 if scale is None else scale)
    return scores.masked_fill(~seen_in_rows(forest, window), -torch.inf).softmax(dim=-1) @ value


def heads(size, *, requires_grad):
    torch.manual_seed(0)
    shapes = (1, 4, size, 8), (1, 2, size, 8), (1, 2, size, 8)
    return [torch.randn(shape, requires_grad=requires_grad) for shape in shapes]


# FlexAttention has no backward pass on a CPU, and does not even begin where one might be wanted.
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("kernel", ["runs", "mask", "flex"])
@pytest.mark.parametrize(("scale", "window"), [(None, None), (0.5, 4), (0.5, 200)])
@pytest.mark.parametrize("share", [False, True])
def test_each_way_to_attend_is_the_formula(kernel, scale, window, share):
    forest = grow_forest(batch_of(BATCHES["trees"]()), share=share)
    attention = attention_of(forest, kernel)
    found, gradients = [], []
    for way in (plain, None):
        parts = heads(len(forest.ids), requires_grad=kernel != "flex")
        whole = way(forest, *parts, scale, window) if way else attention(*parts, scale=scale, window=window)
        found.append(whole.detach())
        if kernel != "flex":
            (whole * torch.linspace(-1, 1, whole.numel()).reshape(whole.shape)).sum().backward()
            gradients.append([part.grad for part in parts])
    torch.testing.assert_close(found[1], found[0], atol=2e-6, rtol=1e-5)
    for one, other in zip(*gradients[::-1], strict=True) if gradients else ():
        torch.testing.assert_close(one, other, atol=5e-6, rtol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("window", [None, 4])
def test_on_a_gpu_flex_attention_and_its_gradients_are_those_of_runs(window):
    forest = grow_forest(batch_of(BATCHES["trees"]()).to("cuda"), share=True)
    found = []
    for kernel in ("runs", "flex"):
        parts = [part.detach().cuda().requires_grad_() for part in heads(len(forest.ids), requires_grad=False)]
        whole = attention_of(forest, kernel)(*parts, scale=None, window=window)
        whole.square().sum().backward()
        found.append([whole.detach(), *(part.grad for part in parts)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3)


def test_a_model_has_its_own_attention_before_and_after():
    model = random_model("qwen2")
    own = model.config._attn_implementation
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        before = model(input_ids=ids).logits
        with pytest.raises(ConfigError, match="does not hand the forest on"), attending(model):
            model(input_ids=ids)
        assert model.config._attn_implementation == model.model.config._attn_implementation == own
        assert torch.equal(model(input_ids=ids).logits, before)


def test_attention_inside_attention_stays():
    model = random_model("qwen2")
    forest = grow_forest(rows_batch(HAND), share=True)
    given = {"input_ids": forest.ids[None], "position_ids": forest.depth[None], "use_cache": False}
    with torch.no_grad(), attending(model):
        with attending(model):
            one = model(**given, forest_attention=attention_of(forest, "runs")).logits
        other = model(**given, forest_attention=attention_of(forest, "mask")).logits
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
