"""What the tests of vLLM share: a model that it can compute on a CPU, and references for its engines."""

from functools import partial

import torch

from tests.agents.policies.test_engine import STOPS, TEMPERATURE, learners_logprobs
from tests.agents.tiny import chatml_tokenizer, random_qwen2
from tsr_gym.agents.policies.vllm_engine import VllmEngine

CONTEXT, MAX_TOKENS = 256, 12
# Two tokens more than two blocks of the prefix cache.
LONG = tuple(range(40, 106))


def soft_model(*, tie, seed=0):
    """Return a model with heads 32 wide, whose logits are small enough for float32 to agree with itself to 1e-6."""
    model = random_qwen2(chatml_tokenizer(), context=CONTEXT, seed=seed, tie=tie, hidden=128)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    return model


def saved_model(folder, *, tie, seed=0):
    """Write such a model with its tokenizer into a folder, and return the model."""
    model = soft_model(tie=tie, seed=seed)
    model.save_pretrained(folder)
    chatml_tokenizer().save_pretrained(folder)
    return model


def engine_of(host, **settings):
    return VllmEngine(
        host, **{"stop_ids": tuple(STOPS), "max_tokens": MAX_TOKENS, "temperature": TEMPERATURE, **settings}
    )


def check_whole_contract(check_engine, host, learner, *, tie):
    """Run the suite with an update to other weights, and return the findings; the host keeps the new weights."""

    def update():
        learner.load_state_dict(soft_model(tie=tie, seed=9).state_dict())
        return learner.state_dict().items()

    prompts = ((11, 12, 13, 14, 15), (*LONG, 7), (*LONG, 7, 8), (20, 21), (9,))
    reference = partial(learners_logprobs, learner)
    return check_engine(engine_of(host), reference=reference, update=update, prompts=prompts, stop_ids=STOPS)


def logprobs_of(model, prompt, completion, temperature=TEMPERATURE):
    """Return the model's own log-probabilities of an answer, by a forward pass without a cache."""
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *completion.token_ids]]), use_cache=False).logits[
            0, len(prompt) - 1 : -1
        ]
    rows = (logits.double() / temperature).log_softmax(dim=-1)
    return rows.gather(1, torch.tensor(completion.token_ids)[:, None])[:, 0].tolist()
