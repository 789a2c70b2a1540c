"""Log-probabilities and entropies of sampled tokens without the logits of all of them at once.

The logits of 4,096 tokens over 152,000 words are 2.5 GB in float32, several times over in a backward pass. Here the
output head is applied to a few tokens at a time, and again in the backward pass.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import linear
from torch.utils.checkpoint import checkpoint

from tsr_gym.errors import ConfigError

# Most logits that exist at a time: 256 MiB in float32.
BLOCK = 2**26


class Head(NamedTuple):
    """The map from a model's last hidden states to its logits: ``cap tanh(scale head(x) / cap)``.

    Attributes:
        module: The output layer, from hidden states to a number per word of the vocabulary.
        scale: Factor of the logits.
        cap: Bound that the logits are softly kept within; None for none.
    """

    module: Any
    scale: float = 1.0
    cap: float | None = None

    def transform(self, logits: Tensor) -> Tensor:
        """Return the model's logits for its output layer's, in place."""
        if self.scale != 1.0:
            logits = logits.mul_(self.scale)
        return logits if self.cap is None else logits.div_(self.cap).tanh_().mul_(self.cap)

    def slope(self, logits: Tensor) -> Tensor | float:
        """Return the derivative of `transform`, given what it returned."""
        return self.scale if self.cap is None else self.scale * (1 - (logits / self.cap) ** 2)


def read_head(model: Any) -> Head | None:
    """Return a model's output head, found by watching what a forward pass does with chosen logits.

    Args:
        model: A Hugging Face causal language model; all processes of a sharded one have to ask.

    Returns:
        None where the model does something else to its logits than to scale and cap them, or has no such head: its
        logits are then to be computed as a whole.
    """
    module = model.get_output_embeddings()
    if module is None:
        return None
    # The tiny logit shows the scale, because a soft cap is linear near 0. The huge ones show the cap itself. The others
    # check that scale and cap explain everything that the model does to its logits.
    asked = torch.tensor([2.0**-10, 2.0**20, -(2.0**20), 0.5, -3.0, 17.0, 64.0, 0.0])
    answered = _ask(model, module, asked)
    if answered is None:
        return None
    near, far = float(answered[0] / asked[0]), float(answered[1])
    head = Head(module, scale=near)
    if far < 2.0**19 * near:
        head = Head(module, scale=near, cap=far)
    expected = head.transform(asked.double().clone())
    agree = torch.allclose(answered.double(), expected, rtol=1e-5, atol=1e-6)
    return head if agree else None


def chunked_logprobs(
    hidden: Tensor, tokens: Tensor, head: Head, *, temperature: float = 1.0, block: int = BLOCK
) -> tuple[Tensor, Tensor]:
    """Return the log-probability of each sampled token and the entropy of the choice it was.

    Equal, in value and gradient, to the log-softmax of all logits, which never exist at once: the largest tensor has
    `block` elements, or as many as the head's weight. The product with the weight is computed in the precision of
    autocast where there is one, everything after it in float32.

    Args:
        hidden: `[N, H]`, last hidden states of the tokens before.
        tokens: `[N]` int64.
        head: The output head; a plain linear layer is differentiated by hand, any other by computing it twice.
        temperature: Of the sampling distribution.
        block: Most logits at a time.

    Returns:
        Both `[N]`, float32.
    """
    if type(head.module) is nn.Linear:
        weight, bias = head.module.weight, head.module.bias
        both: tuple[Tensor, Tensor] = _LinearHead.apply(hidden, weight, bias, tokens, head, temperature, block)  # type: ignore[no-untyped-call]
        return both
    with torch.no_grad():
        words = head.module(hidden[:1]).shape[-1]
    # One chunk even where there is nothing, so that the results have their type and shape.
    parts = [
        checkpoint(_measure, head, hidden[part], tokens[part], temperature, use_reentrant=False)
        for part in _chunks(len(hidden), words, block) or [slice(0, 0)]
    ]
    return torch.cat([logprobs for logprobs, _ in parts]), torch.cat([entropy for _, entropy in parts])


def read_logprobs(
    model: Any,
    inputs: Mapping[str, Any],
    select: Callable[[Tensor], Tensor],
    tokens: Tensor,
    *,
    temperature: float = 1.0,
    head: Head | None = None,
    block: int = BLOCK,
) -> tuple[Tensor, Tensor]:
    """Return the log-probability of some tokens and the entropy of the choice that each was, both `[N]`.

    Args:
        model: A Hugging Face causal language model.
        inputs: What to call it with.
        select: From its logits, or from its last hidden states, to those before each token, `[N, ...]`.
        tokens: `[N]` int64.
        temperature: Of the sampling distribution.
        head: What `read_head` found, to take the logits in parts; None computes all at once.
        block: Most logits at a time.

    Raises:
        ConfigError: The head is not that of the model.
    """
    if head is None:
        return _of_logits(select(model(**inputs).logits).float() / temperature, tokens)
    hidden = select(_last_hidden(model, head.module, inputs))
    return chunked_logprobs(hidden, tokens, head, temperature=temperature, block=block)


def token_logprobs(
    model: Any,
    ids: Tensor,
    present: Tensor,
    sampled: Tensor,
    *,
    temperature: float = 1.0,
    head: Head | None = None,
    block: int = BLOCK,
) -> tuple[Tensor, Tensor]:
    """Return the log-probability of each sampled token and the entropy of the choice it was.

    Args:
        model: A Hugging Face causal language model.
        ids: `[B, T]` token ids.
        present: `[B, T]`, where there is a token.
        sampled: `[B, T]`, where to look; never in the first column.
        temperature: Of the sampling distribution.
        head: What `read_head` found, to take the logits in parts; None computes all at once.
        block: Most logits at a time.

    Returns:
        Both `[B, T]`, 0 where nothing was sampled.

    Raises:
        ConfigError: The head is not that of the model.
    """
    before = sampled[:, 1:]
    inputs = {"input_ids": ids, "attention_mask": present.long(), "use_cache": False}
    parts = read_logprobs(
        model, inputs, lambda read: read[:, :-1][before], ids[sampled], temperature=temperature, head=head, block=block
    )
    logprobs, entropy = (torch.zeros(ids.shape, device=ids.device).masked_scatter(sampled, part) for part in parts)
    return logprobs, entropy


def cross_logprobs(
    model: Any,
    prompts: Sequence[Sequence[int]],
    answers: Sequence[Sequence[int]],
    *,
    temperature: float = 1.0,
    head: Head | None = None,
    microbatch: int = 16,
) -> Tensor:
    """Return ``log pi(answer | prompt)`` of each answer after each prompt, summed over its tokens, `[R, P]`.

    It takes a forward pass for every pair: 16 prompts with one answer each are 256 rows.

    Args:
        model: A Hugging Face causal language model.
        prompts: Token ids of P prompts.
        answers: Token ids of R answers, none empty.
        temperature: Of the sampling distribution.
        head: What `read_head` found; None computes all logits at once.
        microbatch: Rows per forward pass.
    """
    device = next(model.parameters()).device
    rows = [(tuple(prompt), tuple(answer)) for answer in answers for prompt in prompts]
    sums = []
    with torch.no_grad():
        for start in range(0, len(rows), microbatch):
            part = rows[start : start + microbatch]
            width = max(len(prompt) + len(answer) for prompt, answer in part)
            ids = torch.tensor(
                [[*prompt, *answer] + [0] * (width - len(prompt) - len(answer)) for prompt, answer in part]
            )
            place = torch.arange(width)
            starts = torch.tensor([[len(prompt)] for prompt, _ in part])
            ends = torch.tensor([[len(prompt) + len(answer)] for prompt, answer in part])
            present, sampled = place < ends, (place >= starts) & (place < ends)
            parts = (ids.to(device), present.to(device), sampled.to(device))
            sums.append(token_logprobs(model, *parts, temperature=temperature, head=head)[0].sum(dim=1))
    return torch.cat(sums).reshape(len(answers), len(prompts))


def _last_hidden(model: Any, module: Any, inputs: Mapping[str, Any]) -> Tensor:
    """Return the hidden states that a model hands to its output layer, which gets none of them."""
    caught: list[Tensor] = []

    def catch(module: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        caught.append(inputs[0])
        return (inputs[0][:, :0],)

    # The output layer gets an empty slice of the hidden states, so no logits are computed for the whole batch.
    hook = module.register_forward_pre_hook(catch)
    try:
        model(**inputs)
    finally:
        hook.remove()
    if len(caught) != 1:
        raise ConfigError(
            f"wanted the model to call its output layer once, it did {len(caught)} times: a compiled model ignores "
            "hooks that came later; compile its layers in place of the whole (compile_layers), or pass head=None"
        )
    return caught[0]


def _ask(model: Any, module: Any, logits: Tensor) -> Tensor | None:
    """Return the logits that a model makes of chosen ones, None where its output layer does not decide them."""
    calls = []

    def answer(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        calls.append(inputs[0].shape)
        return (
            logits.to(output).repeat(-(-output.shape[-1] // len(logits)))[: output.shape[-1]].expand_as(output).clone()
        )

    hook = module.register_forward_hook(answer)
    try:
        with torch.no_grad():
            ids = torch.ones(1, 2, dtype=torch.int64, device=next(model.parameters()).device)
            made = model(input_ids=ids, attention_mask=ids, use_cache=False).logits
    finally:
        hook.remove()
    whole = len(calls) == 1 and calls[0][:2] == (1, 2) and made.shape[-1] >= len(logits)
    return made[0, -1, : len(logits)].cpu() if whole else None


def _chunks(tokens: int, words: int, block: int) -> list[slice]:
    size = max(1, block // words)
    return [slice(start, start + size) for start in range(0, tokens, size)]


def _of_logits(logits: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    logprobs = torch.log_softmax(logits, dim=-1)
    return logprobs.gather(1, tokens[:, None])[:, 0], -(logprobs.exp() * logprobs).sum(dim=-1)


def _measure(head: Head, hidden: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    logits = head.module(hidden).float()
    logits = logits * head.scale
    if head.cap is not None:
        logits = head.cap * torch.tanh(logits / head.cap)
    return _of_logits(logits / temperature, tokens)


class _Taken(NamedTuple):
    """The map from an output layer's products to scaled logits, and its precision."""

    scale: float
    cap: float | None
    temperature: float
    working: torch.dtype


def _weigh(products: Tensor, tokens: Tensor, how: _Taken) -> tuple[Tensor, Tensor, Tensor]:
    """Return for each token the log of the sum over all words, its own log-probability, and the entropy."""
    logits = Head(None, how.scale, how.cap).transform(products.to(how.working)).div_(how.temperature)
    tops = logits.logsumexp(dim=-1)
    logprobs = logits.gather(1, tokens[:, None])[:, 0] - tops
    return tops, logprobs, torch.special.entr(logits.sub_(tops[:, None]).exp_()).sum(dim=-1)


def _slope(
    products: Tensor,
    tokens: Tensor,
    about: tuple[Tensor, Tensor],
    wanted: tuple[Tensor | None, Tensor | None],
    how: _Taken,
) -> Tensor:
    """Return the gradient by an output layer's products, given what `_weigh` found and the gradients by that."""
    (tops, entropy), (by_logprobs, by_entropy) = about, wanted
    head = Head(None, how.scale, how.cap)
    logits = head.transform(products.to(how.working))
    slope = head.slope(logits) / how.temperature
    shares = (logits / how.temperature).sub_(tops[:, None]).exp_()
    gradient = torch.zeros_like(shares)
    if by_entropy is not None:
        gradient = (torch.special.entr(shares) - shares * entropy[:, None]).mul_(by_entropy[:, None])
    if by_logprobs is not None:
        gradient -= shares.mul_(by_logprobs[:, None])
        gradient.scatter_add_(1, tokens[:, None], by_logprobs[:, None])
    return gradient.mul_(slope).to(products.dtype)


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function compiled for tensors of any size; its first call imports the compiler, which takes a second."""
    compiled: Callable[..., Any] = torch.compile(function, dynamic=True)
    return compiled


def _on(device: torch.device, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as it runs on a device."""
    # On a GPU, what is done to each product takes longer than the product unless it is done in one go.
    return _compiled(function) if device.type == "cuda" else function


class _LinearHead(torch.autograd.Function):
    """Log-probabilities and entropies through a linear head, differentiated by hand.

    With ``p`` the softmax of the logits ``z`` and ``H`` its entropy, ``d log p_token / dz = [token] - p`` and
    ``dH / dz = -p (log p + H)``.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        tokens: Tensor,
        head: Head,
        temperature: float,
        block: int,
    ) -> tuple[Tensor, Tensor]:
        # A gradient by an output that no loss uses stays None, and nothing is computed for it.
        ctx.set_materialize_grads(False)
        device = hidden.device.type
        ctx.dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        ctx.working, ctx.block = torch.promote_types(ctx.dtype, torch.float32), block
        ctx.how = _Taken(head.scale, head.cap, temperature, ctx.working)
        weigh = _on(hidden.device, _weigh)
        logprobs, entropy, tops = (hidden.new_empty(len(hidden), dtype=ctx.working) for _ in range(3))
        for part, _, products in _LinearHead.products(ctx, hidden, weight, bias):
            tops[part], logprobs[part], entropy[part] = weigh(products, tokens[part], ctx.how)
        ctx.save_for_backward(hidden, weight, bias, tokens, tops, entropy)
        return logprobs, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        by_logprobs, by_entropy = gradients
        hidden, weight, bias, tokens, tops, entropy = ctx.saved_tensors
        for_hidden, for_weight, for_bias = (
            torch.zeros_like(part, dtype=ctx.working) if needed else None
            for part, needed in zip((hidden, weight, bias), ctx.needs_input_grad, strict=False)
        )
        words = weight.to(ctx.dtype)
        slope = _on(hidden.device, _slope)
        # The products are computed a second time: keeping them from the forward pass would take the memory that the
        # chunks save.
        for part, states, products in _LinearHead.products(ctx, hidden, words, bias):
            about = tops[part], entropy[part]
            asked = [None if whole is None else whole[part] for whole in (by_logprobs, by_entropy)]
            gradient = slope(products, tokens[part], about, (asked[0], asked[1]), ctx.how)
            if for_hidden is not None:
                for_hidden[part] = (gradient @ words).to(ctx.working)
            if for_weight is not None:
                for_weight += (gradient.T @ states).to(ctx.working)
            if for_bias is not None:
                for_bias += gradient.sum(dim=0, dtype=ctx.working)
        results = [
            None if made is None else made.to(part.dtype)
            for made, part in ((for_hidden, hidden), (for_weight, weight), (for_bias, bias))
        ]
        return (*results, None, None, None, None)

    @staticmethod
    def products(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None
    ) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield a slice of the tokens at a time, its hidden states and the output layer's products with them."""
        weight = weight.to(ctx.dtype)
        bias = None if bias is None else bias.to(ctx.dtype)
        for part in _chunks(len(hidden), len(weight), ctx.block):
            states = hidden[part].to(ctx.dtype)
            yield part, states, linear(states, weight, bias)
