"""A language model of two small tables, an engine for it, and engines with one fault each."""

from bisect import bisect
from collections.abc import Callable
from threading import Event

import numpy as np

from tsr_gym import ConfigError, Unsupported
from tsr_gym.agents.policies.engine import Capabilities, Completion

WORDS, STATES, STOP = 24, 97, 3
TEMPERATURE = 0.7
PROMPTS = ((11, 12, 13, 14, 15), (11, 12, 13, 14, 15, 16, 17, 18), (9,), (20, 21))


def tables(seed):
    """Return the weights of a model: logits are a row of the body plus the head."""
    rng = np.random.default_rng(seed)
    return {"body.weight": rng.normal(size=(STATES, WORDS)), "head.weight": rng.normal(size=(WORDS,))}


def state_of(ids):
    """Return the row for a text; it depends on every token and its position."""
    state = 1
    for token in ids:
        state = (31 * state + token + 1) % STATES
    return state


def log_softmax(logits):
    return logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())


class Learner:
    """The model as the learner computes it."""

    def __init__(self, seed=0):
        self.weights = tables(seed)

    def __call__(self, prompt, answer):
        """Return the log-probability of each token of an answer, as it is sampled."""
        logprobs = []
        for number, token in enumerate(answer):
            logits = self.weights["body.weight"][state_of((*prompt, *answer[:number]))] + self.weights["head.weight"]
            logprobs.append(log_softmax(logits / TEMPERATURE)[token])
        return logprobs

    def update(self):
        self.weights = tables(7)
        return list(self.weights.items())


class ToyEngine:
    """An engine without a fault."""

    capabilities = Capabilities()
    max_tokens = 12

    def __init__(self):
        self.weights = tables(0)
        self.weight_version = 0
        self.cache = {}
        self.aborted = Event()

    def generate(self, prompts, *, seeds, max_tokens=None):
        self.aborted.clear()
        limit = self.limit(max_tokens)
        return [
            [self.complete(tuple(prompt), seed, limit) for seed in row]
            for prompt, row in zip(prompts, seeds, strict=True)
        ]

    def limit(self, max_tokens):
        return min(max_tokens or self.max_tokens, self.max_tokens)

    def complete(self, prompt, seed, limit):
        ids, logprobs, reason = [], [], "length"
        while len(ids) < limit and reason == "length":
            cumulative, reported = self.step((*self.seen(prompt), *ids))
            ids.append(min(bisect(cumulative, self.draw(seed, len(ids))), WORDS - 1))
            logprobs.append(reported[ids[-1]])
            reason = "stop" if ids[-1] == STOP else "abort" if self.aborted.is_set() else "length"
        return Completion(tuple(ids), tuple(logprobs), reason, 0, self.weight_version)

    def seen(self, prompt):
        return prompt

    def step(self, ids):
        """Return the cumulative probabilities that are sampled from, and the log-probabilities that are reported."""
        if ids not in self.cache:
            logits = self.weights["body.weight"][state_of(ids)] + self.weights["head.weight"]
            cumulative = np.exp(self.sampled_from(logits)).cumsum()
            self.cache[ids] = cumulative.tolist(), self.reported(logits).tolist()
        return self.cache[ids]

    def sampled_from(self, logits):
        return log_softmax(logits / TEMPERATURE)

    def reported(self, logits):
        return log_softmax(logits / TEMPERATURE)

    def draw(self, seed, position):
        """Return a uniform number (SplitMix64)."""
        state = (seed * 100 + position + 1) * 0x9E3779B97F4A7C15 % 2**64
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
        return (state ^ (state >> 31)) / 2**64

    def load_weights(self, weights, *, version=None):
        for name, value in weights:
            if name not in self.weights or self.weights[name].shape != value.shape:
                raise ConfigError(f"no parameter {name} of shape {value.shape}")
            self.weights[name] = value
        self.cache.clear()
        self.weight_version = self.weight_version + 1 if version is None else version

    def abort(self):
        self.aborted.set()


class Fixed(ToyEngine):
    """An engine without a fault that can do less."""

    capabilities = Capabilities(logprobs=False, seeds=False, company=False, weights=False, abort=False)

    def complete(self, prompt, seed, limit):
        return super().complete(prompt, seed, limit)._replace(logprobs=())

    def __init__(self):
        super().__init__()
        self.rng = np.random.default_rng(0)

    def draw(self, seed, position):
        return self.rng.random()

    def load_weights(self, weights, *, version=None):
        raise Unsupported("the weights of this engine stay as they are")

    def abort(self):
        raise Unsupported("this engine cannot be interrupted")


FAULTS: dict[str, tuple[str, Callable[[], ToyEngine]]] = {}


def fault(check):
    """Register an engine with a fault for the rule that must find it."""

    def keep(kind):
        FAULTS[kind.__name__] = (check, kind)
        return kind

    return keep


@fault("contract")
class SaysNothingOfItself(ToyEngine):
    capabilities = property()


@fault("counts")
class TakesTheFirstPromptsCountForAll(ToyEngine):
    def generate(self, prompts, *, seeds, max_tokens=None):
        seeds = [[*row, *range(90, 90 + len(seeds[0]))][: len(seeds[0])] for row in seeds]
        return super().generate(prompts, seeds=seeds, max_tokens=max_tokens)


@fault("completions")
class WritesIntoPrompts(ToyEngine):
    def generate(self, prompts, *, seeds, max_tokens=None):
        answers = super().generate(prompts, seeds=seeds, max_tokens=max_tokens)
        for prompt, row in zip(prompts, answers, strict=True):
            prompt += row[0].token_ids if row else ()
        return answers


@fault("completions")
class LeavesOutTheLastLogprob(ToyEngine):
    def complete(self, prompt, seed, limit):
        done = super().complete(prompt, seed, limit)
        return done._replace(logprobs=done.logprobs[:-1])


@fault("completions")
class HasAReasonOfItsOwn(ToyEngine):
    def complete(self, prompt, seed, limit):
        return super().complete(prompt, seed, limit)._replace(finish_reason="eos")


@fault("logprobs")
class ReportsWithoutTheTemperature(ToyEngine):
    def reported(self, logits):
        return log_softmax(logits)


@fault("logprobs")
class PutsATokenBeforeThePrompt(ToyEngine):
    def seen(self, prompt):
        return (1, *prompt)


@fault("logprobs")
class HasAnotherHead(ToyEngine):
    def __init__(self):
        super().__init__()
        self.weights["head.weight"] = tables(1)["head.weight"]


@fault("prompt tokens")
class SpellsPromptsAnew(ToyEngine):
    """Two equal tokens in a row become one, as re-encoding a text can do."""

    def seen(self, prompt):
        return tuple(token for before, token in zip((None, *prompt), prompt, strict=False) if token != before)


@fault("continued prompts")
class ForgetsWhatWasNeverFed(ToyEngine):
    """The last token of an answer is not added to the cache, so a prompt that continues the answer lacks it."""

    def __init__(self):
        super().__init__()
        self.known = {}

    def complete(self, prompt, seed, limit):
        done = super().complete(prompt, seed, limit)
        self.known[prompt + done.token_ids] = prompt + done.token_ids[:-1]
        return done

    def seen(self, prompt):
        for length in range(len(prompt) - 1, 0, -1):
            if prompt[:length] in self.known:
                return self.known[prompt[:length]] + prompt[length:]
        return prompt


@fault("seeds")
class IgnoresSeeds(ToyEngine):
    def draw(self, seed, position):
        return super().draw(0, position)


@fault("seeds")
class DrawsAnewEveryTime(ToyEngine):
    calls = 0

    def generate(self, prompts, *, seeds, max_tokens=None):
        self.calls += 1
        return super().generate(prompts, seeds=seeds, max_tokens=max_tokens)

    def draw(self, seed, position):
        return super().draw(seed + 1000 * self.calls, position)


@fault("company")
class DrawsByTheNumberOfPrompts(ToyEngine):
    number = 0

    def generate(self, prompts, *, seeds, max_tokens=None):
        self.number = len(prompts)
        return super().generate(prompts, seeds=seeds, max_tokens=max_tokens)

    def draw(self, seed, position):
        return super().draw(seed + 1000 * self.number, position)


@fault("sampling")
class SamplesOnlyTheTopFive(ToyEngine):
    def sampled_from(self, logits):
        return log_softmax(np.where(logits >= np.sort(logits)[-5], logits / TEMPERATURE, -np.inf))


@fault("sampling")
class SamplesAtAnotherTemperature(ToyEngine):
    def sampled_from(self, logits):
        return log_softmax(logits / 1.1)


@fault("length")
class KnowsOnlyItsOwnLimit(ToyEngine):
    def limit(self, max_tokens):
        return self.max_tokens


@fault("length")
class StopsATokenEarly(ToyEngine):
    def limit(self, max_tokens):
        return max(1, super().limit(max_tokens) - 1)


@fault("stop tokens")
class SaysStopAtItsLimit(ToyEngine):
    """It stops only at its own limit, which is longer than any requested one."""

    def complete(self, prompt, seed, limit):
        done = super().complete(prompt, seed, limit)
        return done._replace(finish_reason="stop") if len(done.token_ids) == self.max_tokens else done


@fault("stop tokens")
class GoesOnAfterTheStop(ToyEngine):
    def complete(self, prompt, seed, limit):
        done = super().complete(prompt, seed, limit)
        while len(done.token_ids) < limit:
            more = super().complete(prompt + done.token_ids, seed, limit - len(done.token_ids))
            done = done._replace(
                token_ids=done.token_ids + more.token_ids,
                logprobs=done.logprobs + more.logprobs,
                finish_reason=more.finish_reason,
            )
        return done


@fault("abort")
class CannotBeAborted(ToyEngine):
    def abort(self):
        pass


@fault("abort")
class StaysAborted(ToyEngine):
    def generate(self, prompts, *, seeds, max_tokens=None):
        stays = self.aborted.is_set()
        self.aborted.clear = lambda: None
        assert stays is self.aborted.is_set()
        return super().generate(prompts, seeds=seeds, max_tokens=max_tokens)


@fault("weight version")
class BearsNoVersion(ToyEngine):
    def complete(self, prompt, seed, limit):
        return super().complete(prompt, seed, limit)._replace(weight_version=0)


@fault("weight version")
class CountsByItself(ToyEngine):
    def load_weights(self, weights, *, version=None):
        super().load_weights(weights)


@fault("weight update")
class KeepsItsWeights(ToyEngine):
    def load_weights(self, weights, *, version=None):
        super().load_weights((), version=version)


@fault("weight update")
class KeepsItsHead(ToyEngine):
    """As in engines that store a head tied to the embeddings separately."""

    def load_weights(self, weights, *, version=None):
        super().load_weights([item for item in weights if item[0] != "head.weight"], version=version)


@fault("weight update")
class KeepsItsCache(ToyEngine):
    def load_weights(self, weights, *, version=None):
        kept = dict(self.cache)
        super().load_weights(weights, version=version)
        self.cache |= {ids: step for ids, step in kept.items() if len(ids) > 6}


@fault("weight update")
class PassesOverUnknownNames(ToyEngine):
    def load_weights(self, weights, *, version=None):
        super().load_weights([item for item in weights if item[0] in self.weights], version=version)


@fault("weight update")
class StretchesSmallWeights(ToyEngine):
    def load_weights(self, weights, *, version=None):
        fitted = [(name, value + np.zeros_like(self.weights[name])) for name, value in weights if name in self.weights]
        if len(fitted) < len(list(weights)):
            raise ConfigError("no such parameter")
        super().load_weights(fitted, version=version)


@fault("unsupported")
class AbortsNothingInSilence(ToyEngine):
    capabilities = Capabilities(abort=False)

    def abort(self):
        pass


@fault("unsupported")
class LoadsNothingInSilence(ToyEngine):
    capabilities = Capabilities(weights=False)

    def load_weights(self, weights, *, version=None):
        pass
