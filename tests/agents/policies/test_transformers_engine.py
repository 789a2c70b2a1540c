"""Engines of this process: samples, seeds and log-probabilities against plain forward passes."""

import copy
import math

import pytest
import torch
from transformers import (
    FalconConfig,
    FalconForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    MistralConfig,
    MistralForCausalLM,
)

from tests.agents.tiny import random_qwen2
from tests.conftest import deep
from tsr_gym import ConfigError, PromptTooLong
from tsr_gym.agents.policies.transformers_engine import TransformersEngine, sample_tokens, uniforms
from tsr_gym.agents.policies.trie_engine import TrieEngine

STOP = 5


def slow(model, prompt, seed, *, max_tokens=8, temperature=1.0):
    """Sample without batch, cache or mask; return ids and log-probabilities of the tempered softmax."""
    said, scores = [], []
    context = model.config.max_position_embeddings
    while len(said) < max_tokens and len(prompt) + len(said) < context and STOP not in said:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([[*prompt, *said]]), use_cache=False).logits[0, -1]
        token = int(sample_tokens(logits[None], temperature, torch.tensor([seed]), len(said))[0])
        tempered = [logit / temperature for logit in logits.double().tolist()]
        largest = max(tempered)
        scores.append(tempered[token] - largest - math.log(sum(math.exp(logit - largest) for logit in tempered)))
        said.append(token)
    return tuple(said), scores


@pytest.fixture(scope="module")
def model(tokenizer):
    return random_qwen2(tokenizer, context=96)


def transformers_engine(model, **settings):
    return TransformersEngine(model, **{"stop_ids": [STOP], "max_tokens": 8, **settings})


def trie_engine(model, **settings):
    return TrieEngine(model, **{"stop_ids": [STOP], "max_tokens": 8, **settings})


@pytest.fixture(params=[transformers_engine, trie_engine])
def engine_of(request):
    """Make an engine; what holds of one that samples in this process holds of both."""
    return request.param


def check(engine, prompts, seeds, **settings):
    """Compare the samples of an engine with those of the slow sampler, and return them."""
    answers = engine.generate(prompts, seeds=seeds)
    assert [len(row) for row in answers] == [len(row) for row in seeds]
    for prompt, row, drawn in zip(prompts, seeds, answers, strict=True):
        for seed, completion in zip(row, drawn, strict=True):
            ids, scores = slow(engine.model, prompt, seed, max_tokens=engine.max_tokens, **settings)
            assert completion.token_ids == ids
            assert list(completion.logprobs) == pytest.approx(scores, abs=2e-5)
            assert completion.finish_reason == ("stop" if ids[-1] == STOP else "length")
    return answers


# Of different lengths, the second one twice, and one that begins like another.
PROMPTS = [(7, 8, 9), (11, 12, 13, 14, 15, 16, 17), (11, 12, 13, 14, 15, 16, 17), (7, 8, 9, 20, 21), (30,)]
SEEDS = [[1, 2], [3, 4, 5], [6], [7, 8], [9]]


@pytest.mark.parametrize("temperature", [0.6, 1.0, 1.8])
def test_samples_and_their_log_probabilities_are_those_of_a_full_forward_pass(engine_of, model, temperature):
    check(engine_of(model, temperature=temperature), PROMPTS, SEEDS, temperature=temperature)


def test_temperature_zero_follows_the_most_likely_tokens(engine_of, model):
    (row,) = engine_of(model, temperature=0).generate([PROMPTS[1]], seeds=[[1, 2]])
    ids = []
    for _ in range(8):
        with torch.no_grad():
            ids.append(int(model(input_ids=torch.tensor([[*PROMPTS[1], *ids]])).logits[0, -1].argmax()))
        if ids[-1] == STOP:
            break
    assert [completion.token_ids for completion in row] == [tuple(ids)] * 2
    assert row[0].logprobs == (0.0,) * len(ids)


def ids_of(answers):
    return [[completion.token_ids for completion in row] for row in answers]


@pytest.mark.parametrize("reuse", [True, False])
def test_a_sample_is_the_same_alone_and_in_any_company(engine_of, model, reuse):
    together = ids_of(engine_of(model, reuse=reuse).generate(PROMPTS, seeds=SEEDS))
    for prompt, seeds, answers in zip(PROMPTS, SEEDS, together, strict=True):
        alone = [engine_of(model, reuse=reuse).generate([prompt], seeds=[[seed]])[0][0] for seed in seeds]
        assert [completion.token_ids for completion in alone] == answers
    backwards = ids_of(engine_of(model, reuse=reuse).generate(PROMPTS[::-1], seeds=SEEDS[::-1]))
    assert backwards[::-1] == together
    assert ids_of(engine_of(model, reuse=reuse, max_batch=2).generate(PROMPTS, seeds=SEEDS)) == together


@pytest.mark.parametrize(
    "settings", [{}, {"cache_gib": 2e-5, "max_batch": 3}, *map(deep, [{"reuse": False}, {"cache_gib": 2e-5}])], ids=str
)
def test_prompts_that_grow_along_a_tree_are_answered_as_if_computed_from_the_start(engine_of, model, settings):
    engine = engine_of(model, **settings)
    prompts, seeds = PROMPTS, SEEDS
    for turn in range(3):
        answers = check(engine, prompts, seeds)
        # Continue from every sample: some at once, some after words of different lengths.
        said = [(prompt, *pair) for prompt, row in zip(prompts, answers, strict=True) for pair in enumerate(row)]
        prompts = [(*prompt, *made.token_ids, *range(40, 40 + (n + turn) % 4)) for prompt, n, made in said[:7]]
        seeds = [[100 * turn + number, 55] for number in range(len(prompts))]


def test_what_was_not_computed_again_is_counted(engine_of, model):
    engine = engine_of(model)
    (first, again, other) = engine.generate([PROMPTS[1], PROMPTS[1], PROMPTS[0]], seeds=[[3], [4], [5]])
    # The second sample of an equal prompt shares all of it.
    assert [row[0].num_cached for row in (first, again, other)] == [0, 7, 0]
    said = first[0].token_ids
    longer = (*PROMPTS[1], *said, 40, 41)
    (grown,) = engine.generate([longer], seeds=[[6, 7]])
    # Everything but the last token, which was drawn and never fed to the model.
    assert [completion.num_cached for completion in grown] == [7 + len(said) - 1, len(longer)]
    (unknown,) = engine.generate([(60, 61, 62)], seeds=[[1]])
    assert unknown[0].num_cached == 0
    (never,) = engine_of(model, reuse=False).generate([longer], seeds=[[6, 7]])
    assert [completion.num_cached for completion in never] == [0, len(longer)]
    # No prompts are no answers.
    assert (engine.generate([], seeds=[]), engine.generate([PROMPTS[0]], seeds=[[]])) == ([], [[]])


def test_an_answer_ends_with_a_stop_token_at_its_limit_or_where_the_context_ends(engine_of, model):
    rows = engine_of(model, max_tokens=5).generate([PROMPTS[0]], seeds=[range(60)])[0]
    for completion in rows:
        assert STOP not in completion.token_ids[:-1]
        stopped = completion.token_ids[-1] == STOP
        assert completion.finish_reason == ("stop" if stopped else "length")
        assert stopped or len(completion.token_ids) == 5
        assert len(completion.token_ids) == len(completion.logprobs)
    # Every token stops, so every answer is one token.
    engine = engine_of(model, stop_ids=range(model.config.vocab_size), max_tokens=9)
    (row,) = engine.generate([PROMPTS[0]], seeds=[[1, 2, 3]])
    assert [(len(completion.token_ids), completion.finish_reason) for completion in row] == [(1, "stop")] * 3
    prompts = [tuple(range(6, 6 + length)) for length in (95, 93, 10)]
    answers = check(engine_of(model), prompts, [[1], [2], [3]])
    assert len(answers[0][0].token_ids) == 1
    assert len(answers[1][0].token_ids) <= 3
    # The company in the batch is not cut with it.
    assert len(answers[2][0].token_ids) > 3


@pytest.mark.parametrize("length", [96, 97, 200, 0])
def test_a_prompt_that_leaves_no_room_is_refused_with_the_numbers(engine_of, model, length):
    with pytest.raises(PromptTooLong, match=rf"1 to 95 tokens.*context of 96, got {length}"):
        engine_of(model).generate([PROMPTS[0], (9,) * length], seeds=[[1], [2]])


def test_new_weights_change_the_samples_and_what_was_known_is_forgotten(engine_of, model, tokenizer):
    own, other = copy.deepcopy(model), random_qwen2(tokenizer, context=96, seed=9)
    engine = engine_of(own)
    before = check(engine, PROMPTS, SEEDS)
    engine.load_weights(other.state_dict().items())
    grown = [(*PROMPTS[0], *before[0][0].token_ids, 40)]
    # The slow sampler computes with the new weights only; stale keys and values would show.
    after = check(engine, [*grown, *PROMPTS], [[4], *SEEDS])
    assert after[0][0].num_cached == 0
    assert ids_of(after[1:]) == ids_of(engine_of(other).generate(PROMPTS, seeds=SEEDS))
    assert ids_of(after[1:]) != ids_of(before)


def step(optimizer, **settings):
    """Return a function that takes an optimizer step on a model."""

    def stepped(model):
        model(input_ids=torch.tensor([PROMPTS[1]])).logits.logsumexp(-1).sum().backward()
        optimizer(model.parameters(), lr=0.01, **settings).step()

    return stepped


def scale(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.9)


def halve(model):
    model.load_state_dict({name: value / 2 for name, value in model.state_dict().items()})


def replace(model):
    for parameter in model.parameters():
        parameter.data = parameter.data * 0.9


AdamW, SGD = torch.optim.AdamW, torch.optim.SGD


@pytest.mark.parametrize(
    "change",
    [step(AdamW), step(AdamW, fused=True), step(AdamW, foreach=True), step(SGD, fused=True), scale, halve, replace],
)
def test_weights_that_changed_in_place_are_noticed(engine_of, model, change):
    own = copy.deepcopy(model)
    engine = engine_of(own)
    before = check(engine, PROMPTS, SEEDS)
    grown = [(*PROMPTS[0], *before[0][0].token_ids, 40)]
    change(own)
    # The slow sampler computes with the new weights only; stale keys and values would show.
    assert check(engine, [*grown, *PROMPTS], [[4], *SEEDS])[0][0].num_cached == 0
    # Nothing has changed since, so what is cached now is used.
    assert check(engine, grown, [[5]])[0][0].num_cached > 0


def test_an_unknown_weight_is_named(engine_of, model):
    with pytest.raises(ConfigError, match=r"no parameter 'model\.layers\.7\.weight'"):
        engine_of(copy.deepcopy(model)).load_weights([("model.layers.7.weight", torch.zeros(1))])


@pytest.mark.parametrize("tie", [True, False])
def test_heads_tied_to_the_embeddings_or_not_are_both_replaced(engine_of, tokenizer, tie):
    own, other = (random_qwen2(tokenizer, context=96, seed=seed, tie=tie) for seed in (1, 2))
    assert (own.lm_head.weight.data_ptr() == own.model.embed_tokens.weight.data_ptr()) == tie
    engine = engine_of(own)
    engine.load_weights(other.state_dict().items())
    assert ids_of(engine.generate(PROMPTS, seeds=SEEDS)) == ids_of(engine_of(other).generate(PROMPTS, seeds=SEEDS))
    # As a checkpoint of a tied model has it: without the head.
    engine.load_weights((name, value) for name, value in own.state_dict().items() if not tie or "lm_head" not in name)
    check(engine, PROMPTS, SEEDS)


SMALL = {"vocab_size": 80, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
WIDE = {"intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 96, "initializer_range": 0.3}


def mistral():
    return MistralForCausalLM(MistralConfig(**SMALL, **WIDE, head_dim=8, sliding_window=6))


def gemma():
    layers = ["sliding_attention", "full_attention"]
    return Gemma2ForCausalLM(Gemma2Config(**SMALL, **WIDE, head_dim=8, sliding_window=6, layer_types=layers))


@pytest.mark.parametrize("make", [mistral, gemma], ids=["every layer slides", "every other layer slides"])
def test_a_model_whose_layers_forget_is_computed_from_the_start_and_still_right(make):
    torch.manual_seed(3)
    engine = transformers_engine(make().eval())
    prompts, seeds = PROMPTS, SEEDS
    for turn in range(3):
        answers = check(engine, prompts, seeds)
        prompts = [(*p, *row[0].token_ids, *range(40, 43 + turn)) for p, row in zip(prompts, answers, strict=True)]
        seeds = [[turn, 10 + number] for number in range(len(prompts))]
        assert answers[0][0].num_cached == 0
    # Longer than the window of six by far, so the mask of the window took part.
    assert min(map(len, prompts)) > 12


def test_a_model_with_absolute_positions_and_dropout_is_sampled_without_dropout():
    torch.manual_seed(3)
    sizes = {"vocab_size": 80, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 96}
    model = GPT2LMHeadModel(GPT2Config(**sizes, initializer_range=0.3)).eval()
    engine = transformers_engine(model)
    answers = check(engine, PROMPTS, SEEDS)
    model.train()
    assert ids_of(engine.generate(PROMPTS, seeds=SEEDS)) == ids_of(answers)
    grown = [(*prompt, *row[0].token_ids, 40) for prompt, row in zip(PROMPTS, answers, strict=True)]
    assert check(engine, grown, SEEDS)[0][0].num_cached > 0


def test_a_model_whose_positions_are_counted_by_the_mask_has_a_row_for_every_sample():
    torch.manual_seed(3)
    model = FalconForCausalLM(FalconConfig(**SMALL, alibi=True, initializer_range=0.3)).eval()
    # Long enough that samples of other models would share a row.
    prompts = [tuple(range(6, 46)), tuple(range(20, 70))]
    answers = check(transformers_engine(model), prompts, [[1, 2, 3, 4], [5, 6, 7, 8]])
    assert all(len(row) == 4 for row in answers)


def test_lower_precision_still_returns_log_probabilities_of_what_was_drawn(model):
    exact = transformers_engine(model).generate(PROMPTS, seeds=SEEDS)
    rough = transformers_engine(model, autocast=torch.bfloat16).generate(PROMPTS, seeds=SEEDS)
    first = [(a[0], b[0]) for a, b in zip(exact, rough, strict=True) if a[0].token_ids[0] == b[0].token_ids[0]]
    assert first
    for ours, theirs in first:
        assert theirs.logprobs[0] == pytest.approx(ours.logprobs[0], abs=0.2)


@pytest.mark.parametrize(
    "settings", [{"max_tokens": 0}, {"max_batch": 0}, {"temperature": -0.1}, {"stop_ids": []}], ids=str
)
def test_impossible_settings_are_refused(engine_of, model, settings):
    with pytest.raises(ConfigError, match=r"^wanted "):
        engine_of(model, **settings)


M = 2**64 - 1


def splitmix64(seed, number):
    """Return the outputs of Steele, Lea and Flood's generator, in unsigned arithmetic."""
    state, found = seed & M, []
    for _ in range(number):
        state = (state + 0x9E3779B97F4A7C15) & M
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M
        found.append(z ^ (z >> 31))
    return found


def test_the_twin_is_the_published_generator():
    # The first outputs for seed 1234567, as Rosetta Code and many test suites list them.
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert splitmix64(1234567, 4) == published


def test_the_uniform_numbers_are_the_top_53_bits_of_splitmix64():
    seeds = [0, 1, 1234567, 2**63 - 1, 2**62 + 12345, -1, -(2**63), 0]
    outputs = [splitmix64(seed, 40) for seed in seeds]
    for position in range(40):
        numbers = uniforms(torch.tensor(seeds), position).tolist()
        # Exact: a double holds 53 bits.
        assert [number * 2**53 for number in numbers] == [output[position] >> 11 for output in outputs]
        assert all(0 <= number < 1 for number in numbers)


LOGITS = torch.tensor([2.0, -1.0, 0.5, 0.0, 3.0, -4.0, 1.0])


def softmax(logits, temperature):
    """Return the probabilities, in plain Python."""
    powers = [math.exp(logit / temperature) for logit in logits.tolist()]
    return [power / sum(powers) for power in powers]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_samples_are_distributed_as_the_softmax_says(temperature):
    number = 20_000
    ids, _ = sample_tokens(LOGITS.expand(number, -1), temperature, torch.arange(number), position=4)
    counts = torch.bincount(ids, minlength=len(LOGITS)).tolist()
    expected = [number * chance for chance in softmax(LOGITS, temperature)]
    # Cells with fewer than five expected draws are put together, as the test wants it.
    small = [i for i, wanted in enumerate(expected) if wanted < 5]
    cells = [(counts[i], expected[i]) for i in range(len(LOGITS)) if i not in small]
    if small:
        cells.append((sum(counts[i] for i in small), sum(expected[i] for i in small)))
    statistic = sum((count - wanted) ** 2 / wanted for count, wanted in cells)
    # The 99.9 % quantile of chi-square with 6 degrees of freedom is 22.5; fewer degrees have a smaller one.
    assert statistic < 22.5


@pytest.mark.parametrize("temperature", [0.3, 1.0, 1.7])
def test_the_log_probability_is_that_of_the_distribution_that_was_drawn_from(temperature):
    rows = LOGITS.expand(500, -1)
    ids, logprobs = sample_tokens(rows, temperature, torch.arange(500), position=0)
    expected = [math.log(softmax(LOGITS, temperature)[token]) for token in ids.tolist()]
    assert logprobs.tolist() == pytest.approx(expected, abs=1e-6)


def test_the_draw_inverts_the_distribution_without_impossible_tokens_in_full_precision():
    # Four equal tokens: a uniform number of 0.6 is the third quarter.
    rows = torch.zeros(200, 4)
    ids, _ = sample_tokens(rows, 1.0, torch.arange(200), position=9)
    expected = [int(4 * (splitmix64(seed, 10)[9] / 2**64)) for seed in range(200)]
    assert ids.tolist() == expected
    rows = torch.stack([LOGITS, LOGITS.flip(0)])
    ids, logprobs = sample_tokens(rows, 0, torch.tensor([1, 2]), position=0)
    assert (ids.tolist(), logprobs.tolist()) == ([4, 2], [0.0, 0.0])
    rows = torch.tensor([[0.0, -math.inf, 0.0, -math.inf]]).expand(3000, -1)
    ids, logprobs = sample_tokens(rows, 1.0, torch.arange(3000), position=0)
    assert set(ids.tolist()) == {0, 2}
    assert logprobs.tolist() == pytest.approx([math.log(0.5)] * 3000, abs=1e-6)
    rows = LOGITS.bfloat16()[None]
    _, logprobs = sample_tokens(rows, 1.0, torch.tensor([3]), position=0)
    assert logprobs.dtype == torch.float32
