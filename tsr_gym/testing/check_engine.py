"""check_engine: proof by use that an engine samples from the policy that the learner trains."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import exp, isfinite, sqrt
from typing import Any

from tsr_gym.errors import CheckFailed, ConfigError, Unsupported, shown

Ids = tuple[int, ...]
# Returns the learner's log-probability of each token of an answer, given the prompt and the answer.
Reference = Callable[[Ids, Ids], Sequence[float]]
# Changes the learner and returns the arguments of `load_weights`.
Update = Callable[[], Iterable[tuple[str, Any]]]
REASONS = ("stop", "length", "abort")


@dataclass(frozen=True, slots=True)
class EngineTrial:
    """An engine under check.

    Attributes:
        engine: The engine.
        prompts: Token ids of the prompts.
        reference: The learner's log-probabilities; None if they are unknown.
        update: Changes the learner; None if its weights stay the same.
        stop_ids: Tokens that end an answer.
        tolerance: Largest difference of a log-probability, in nats.
    """

    engine: Any
    prompts: tuple[Ids, ...]
    reference: Reference | None
    update: Update | None
    stop_ids: frozenset[int]
    tolerance: float

    def ask(self, prompts: Sequence[Ids], seeds: Sequence[Sequence[int]], **settings: int) -> list[list[Any]]:
        """Return the engine's answers, after a check of each one.

        Raises:
            CheckFailed: Their number is wrong, one breaks the contract, or the engine changed its arguments.
        """
        given = [list(prompt) for prompt in prompts], [list(row) for row in seeds]
        answers: list[list[Any]] = self.engine.generate(given[0], seeds=given[1], **settings)
        if given != ([list(prompt) for prompt in prompts], [list(row) for row in seeds]):
            raise CheckFailed("completions", "generate changed the prompts or seeds that it was given")
        counts, wanted = [len(row) for row in answers], [len(row) for row in seeds]
        if counts != wanted:
            raise CheckFailed("counts", f"wanted {wanted} completions for the prompts, one per seed, got {counts}")
        for prompt, row in zip(prompts, answers, strict=True):
            for completion in row:
                self._check(prompt, completion)
        return answers

    def one_each(self, prompts: Sequence[Ids], seed: int, **settings: int) -> list[Any]:
        """Return one answer to each prompt, all with the same seed."""
        return [row[0] for row in self.ask(prompts, [[seed]] * len(prompts), **settings)]

    def compare(self, check: str, prompts: Sequence[Ids], answers: Sequence[Any]) -> None:
        """Compare the log-probabilities of answers with the reference.

        Raises:
            CheckFailed: One differs.
        """
        assert self.reference is not None
        for prompt, completion in zip(prompts, answers, strict=True):
            wanted = [float(number) for number in self.reference(prompt, completion.token_ids)]
            differences = [abs(a - b) for a, b in zip(completion.logprobs, wanted, strict=True)]
            if not max(differences) <= self.tolerance:
                place = max(range(len(wanted)), key=differences.__getitem__)
                raise CheckFailed(
                    check,
                    f"token {place} of the answer to {shown(prompt)} has log-probability "
                    f"{completion.logprobs[place]:.7g} and the learner's is {wanted[place]:.7g}: the engine has "
                    "other weights, read another prompt, or samples from another distribution than it reports "
                    "(check the temperature)",
                )

    def _check(self, prompt: Ids, completion: Any) -> None:
        ids, logprobs = completion.token_ids, completion.logprobs
        knows = self.engine.capabilities.logprobs
        whole = {
            "token_ids, a tuple of some ints": type(ids) is tuple and ids and all(type(token) is int for token in ids),
            "one logprob per token, () without the capability": len(logprobs) == (len(ids) if knows else 0),
            "finite logprobs of at most 0": all(isfinite(number) and number <= 1e-6 for number in logprobs),
            f"a finish_reason of {REASONS}": completion.finish_reason in REASONS,
            "num_cached from 0 to the prompt's length": 0 <= completion.num_cached <= len(prompt),
        }
        for what, holds in whole.items():
            if not holds:
                raise CheckFailed("completions", f"wanted {what}, got {shown(completion)}")
        if completion.weight_version != self.engine.weight_version:
            raise CheckFailed(
                "weight version",
                f"wanted {shown(self.engine.weight_version)} on a completion, got {shown(completion.weight_version)}",
            )


def token_ids_of(answers: Iterable[Iterable[Any]]) -> list[list[Ids]]:
    """Return the token ids of answers."""
    return [[completion.token_ids for completion in row] for row in answers]


SEEDS = range(1, 9)
DRAWS = 400
# Standard deviations by which a count may differ from its expectation. A correct engine exceeds it once in a hundred
# million counts.
MOST_DEVIATIONS = 6.0
NO_LOGPROBS = "the engine has no log-probabilities"


def the_contract_is_offered(trial: EngineTrial) -> str:
    """Check that capabilities and weight version can be read and have the right types."""
    try:
        able = trial.engine.capabilities
        flags = (able.logprobs, able.seeds, able.company, able.weights, able.abort)
        version = trial.engine.weight_version
    except AttributeError as error:
        raise CheckFailed("contract", f"the engine lacks a part of the contract: {error}") from error
    if not all(type(flag) is bool for flag in flags) or type(version) is not int:
        raise CheckFailed("contract", f"wanted capabilities of bools and an int weight_version, got {able}, {version}")
    return ""


def every_prompt_gets_its_number(trial: EngineTrial) -> str:
    """Check calls with different numbers of samples per prompt, zero included."""
    trial.ask((), ())
    trial.ask(trial.prompts, [range(1, 2 + number % 4) for number in range(len(trial.prompts))])
    trial.ask(trial.prompts[:2], [(), (1, 2, 3)])
    return ""


def seeds_decide(trial: EngineTrial) -> str:
    """Check that different seeds give different samples, and equal seeds equal ones."""
    (first,) = token_ids_of(trial.ask(trial.prompts[:1], [SEEDS]))
    if len(set(first)) == 1:
        raise CheckFailed("seeds", f"{len(first)} distinct seeds gave the same sample {shown(first[0])}")
    if not trial.engine.capabilities.seeds:
        return "only that samples differ: the engine takes no seeds"
    (twice,) = token_ids_of(trial.ask(trial.prompts[:1], [[*SEEDS, *SEEDS]]))
    (again,) = token_ids_of(trial.ask(trial.prompts[:1], [SEEDS]))
    if not twice == first * 2 == again * 2:
        raise CheckFailed("seeds", "the same prompt and seed gave another sample on the second call")
    return ""


def company_does_not_matter(trial: EngineTrial) -> str:
    """Check that a sample does not depend on the other prompts of its batch or their order."""
    if not trial.engine.capabilities.company:
        return "the engine does not promise it"
    seeds = [(3 * number + 1, 3 * number + 2) for number in range(len(trial.prompts))]
    together = token_ids_of(trial.ask(trial.prompts, seeds))
    backwards = token_ids_of(trial.ask(trial.prompts[::-1], seeds[::-1]))[::-1]
    alone = [token_ids_of(trial.ask([prompt], [row]))[0] for prompt, row in zip(trial.prompts, seeds, strict=True)]
    for where, other in (("in another order", backwards), ("alone", alone)):
        if other != together:
            raise CheckFailed("company", f"prompts that were asked {where} gave other samples with the same seeds")
    return ""


def logprobs_are_the_learners(trial: EngineTrial) -> str:
    """Check the log-probabilities of samples against the reference."""
    if not trial.engine.capabilities.logprobs:
        return NO_LOGPROBS
    for prompt, row in zip(trial.prompts, trial.ask(trial.prompts, [SEEDS] * len(trial.prompts)), strict=True):
        trial.compare("logprobs", [prompt] * len(row), row)
    return ""


def samples_match_their_probabilities(trial: EngineTrial) -> str:
    """Check that the frequencies of tokens match their log-probabilities: no hidden top-k, top-p or temperature."""
    if not trial.engine.capabilities.logprobs:
        return NO_LOGPROBS
    (row,) = trial.ask(trial.prompts[:1], [range(1000, 1000 + DRAWS)], max_tokens=1)
    reported = {completion.token_ids[0]: exp(completion.logprobs[0]) for completion in row}
    counts = Counter(completion.token_ids[0] for completion in row)
    for token, p in reported.items():
        # The 1 keeps the deviation of rare tokens from vanishing.
        deviation = sqrt(DRAWS * p * (1 - min(p, 1.0)) + 1)
        if abs(counts[token] - DRAWS * p) > MOST_DEVIATIONS * deviation:
            raise CheckFailed(
                "sampling",
                f"token {token} was drawn {counts[token]} times of {DRAWS}, its log-probability means {DRAWS * p:.1f}: "
                "the engine samples from another distribution than it reports",
            )
    # Good-Turing estimate: tokens that were never drawn have in sum about the share of those that were drawn once. A
    # larger unseen probability means that some tokens cannot be drawn at all.
    once, twice = (sum(count == times for count in counts.values()) for times in (1, 2))
    unseen, most = 1 - sum(reported.values()), (once + MOST_DEVIATIONS * sqrt(once + 2 * twice + 1)) / DRAWS
    if unseen > most:
        raise CheckFailed(
            "sampling",
            f"in {DRAWS} draws, tokens with a total probability of {unseen:.3f} never came, and at most "
            f"{most:.3f} is plausible: the engine leaves out tokens (top-k, top-p) that its log-probabilities count",
        )
    return ""


def prompts_are_taken_token_by_token(trial: EngineTrial) -> str:
    """Check prompts that no tokenizer would produce, and prompts that differ in one token."""
    if not trial.engine.capabilities.logprobs:
        return NO_LOGPROBS
    longest = max(trial.prompts, key=len)
    odd = [longest[:1] * 2 + longest, longest[1:], longest[::-1], (*longest[:-1], longest[0]), longest[-1:] * 5]
    trial.compare("prompt tokens", odd, trial.one_each(odd, 5, max_tokens=2))
    return ""


def prompts_that_continue_are_computed_right(trial: EngineTrial) -> str:
    """Check prompts that extend earlier prompts and answers, as the turns of an episode do."""
    if not trial.engine.capabilities.logprobs:
        return NO_LOGPROBS
    prompts = list(trial.prompts)
    for turn in range(3):
        answers = trial.one_each(prompts, 20 + turn)
        trial.compare("continued prompts", prompts, answers)
        prompts = [
            (*prompt, *completion.token_ids, *trial.prompts[0][: 1 + number % 3])
            for number, (prompt, completion) in enumerate(zip(prompts, answers, strict=True))
        ]
    return ""


def answers_end_at_their_limit(trial: EngineTrial) -> str:
    """Check calls with `max_tokens`."""
    for limit in (1, 2, 3):
        for row in trial.ask(trial.prompts, [SEEDS] * len(trial.prompts), max_tokens=limit):
            for completion in row:
                length, reason = len(completion.token_ids), completion.finish_reason
                if length > limit or reason == "abort" or (reason == "length" and length != limit):
                    raise CheckFailed("length", f"wanted at most {limit} tokens, got {length} with reason {reason!r}")
    return ""


def stop_tokens_end_answers(trial: EngineTrial) -> str:
    """Check that an answer ends at its stop token, with the finish reason stop."""
    if not trial.stop_ids:
        return "no stop_ids were given"
    seeds = range(2000, 2064)
    stopped = 0
    for row in trial.ask(trial.prompts, [seeds] * len(trial.prompts)):
        for completion in row:
            *inside, last = completion.token_ids
            if trial.stop_ids & set(inside):
                raise CheckFailed("stop tokens", f"an answer continues after its stop token: {shown(completion)}")
            if (last in trial.stop_ids) != (completion.finish_reason == "stop"):
                raise CheckFailed(
                    "stop tokens", f"wanted the reason stop exactly where a stop token ends: {shown(completion)}"
                )
            stopped += completion.finish_reason == "stop"
    return "" if stopped else "no answer reached a stop token"


def aborts_are_reported(trial: EngineTrial) -> str:
    """Check that answers aborted from another thread have the finish reason abort."""
    if not trial.engine.capabilities.abort:
        return "the engine does not offer it"
    prompts, seeds = trial.prompts, [range(3000, 3032)] * len(trial.prompts)
    for _ in range(5):
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(trial.ask, prompts, seeds)
            # Repeated until the call has ended, because an abort before its start has no effect.
            while not asked.done():
                trial.engine.abort()
        if any(completion.finish_reason == "abort" for row in asked.result() for completion in row):
            break
    else:
        raise CheckFailed("abort", "generate was aborted five times, and no completion has the finish_reason abort")
    for row in trial.ask(prompts[:1], [SEEDS]):
        if any(completion.finish_reason == "abort" for completion in row):
            raise CheckFailed("abort", "an abort ends later calls, too")
    return ""


def versions_are_reported(trial: EngineTrial) -> str:
    """Check that `load_weights` sets the version (`EngineTrial.ask` checks it on every completion)."""
    engine = trial.engine
    if not engine.capabilities.weights:
        return "" if engine.weight_version == 0 else "the engine's weights cannot be changed"
    before = engine.weight_version
    for given, wanted in ((before + 7, before + 7), (None, before + 8)):
        engine.load_weights((), version=given)
        if engine.weight_version != wanted:
            raise CheckFailed(
                "weight version",
                f"load_weights(version={given}) left the engine at {engine.weight_version}: wanted {wanted}",
            )
        trial.one_each(trial.prompts, 1)
    return ""


def new_weights_answer(trial: EngineTrial) -> str:
    """Check that after an update all answers use the new weights, and that wrong weights are refused."""
    engine = trial.engine
    if not engine.capabilities.weights:
        return "the engine's weights cannot be changed"
    if trial.update is None:
        return "no update was given"
    before = trial.one_each(trial.prompts, 30)
    weights = list(trial.update())
    engine.load_weights(weights, version=engine.weight_version + 1)
    after = trial.one_each(trial.prompts, 30)
    if [answer[:2] for answer in after] == [answer[:2] for answer in before]:
        raise CheckFailed("weight update", "the engine gives the same answers before and after an update")
    grown = [(*prompt, *answer.token_ids) for prompt, answer in zip(trial.prompts, before, strict=True)]
    asked = [*trial.prompts, *grown]
    if engine.capabilities.logprobs:
        trial.compare("weight update", asked, [*after, *trial.one_each(grown, 31)])
    _wrong_weights_are_refused(trial, weights)
    if engine.capabilities.logprobs:
        trial.compare("weight update", asked, trial.one_each(asked, 32))
    return ""


def _wrong_weights_are_refused(trial: EngineTrial, weights: list[tuple[str, Any]]) -> None:
    if not weights:
        return
    version = trial.engine.weight_version
    name, value = next(((name, value) for name, value in weights if len(value) > 1), weights[0])
    for wrong in (("no.such.parameter", value), (name, value[:1])):
        try:
            trial.engine.load_weights([wrong], version=version)
        # Each engine raises other exceptions.
        except Exception:
            continue
        raise CheckFailed("weight update", f"load_weights accepted {wrong[0]!r} of shape {[*wrong[1].shape]}")


def what_is_missing_raises(trial: EngineTrial) -> str:
    """Check that an engine raises Unsupported for missing capabilities, in place of doing nothing."""
    able = trial.engine.capabilities
    calls = {"abort": trial.engine.abort, "weights": lambda: trial.engine.load_weights(())}
    missing = [name for name, offered in (("abort", able.abort), ("weights", able.weights)) if not offered]
    for name in missing:
        try:
            calls[name]()
        except Unsupported:
            continue
        raise CheckFailed("unsupported", f"the capability {name} is missing: wanted Unsupported, got no error")
    return "" if missing else "the engine offers everything"


PROMPTS = ((11, 12, 13, 14, 15), (11, 12, 13, 14, 15, 16, 17, 18), (9,), (20, 21))
HELD = "held"

# The order matters: a fault that an early rule names would also break later ones.
RULES: dict[str, Callable[[EngineTrial], str]] = {
    "contract": the_contract_is_offered,
    "counts": every_prompt_gets_its_number,
    "logprobs": logprobs_are_the_learners,
    "prompt tokens": prompts_are_taken_token_by_token,
    "continued prompts": prompts_that_continue_are_computed_right,
    "seeds": seeds_decide,
    "company": company_does_not_matter,
    "sampling": samples_match_their_probabilities,
    "length": answers_end_at_their_limit,
    "stop tokens": stop_tokens_end_answers,
    "abort": aborts_are_reported,
    "weight version": versions_are_reported,
    "weight update": new_weights_answer,
    "unsupported": what_is_missing_raises,
}


def check_engine(
    engine: Any,
    *,
    reference: Reference | None = None,
    update: Update | None = None,
    prompts: Sequence[Sequence[int]] = PROMPTS,
    stop_ids: Collection[int] = (),
    tolerance: float = 1e-5,
) -> dict[str, str]:
    """Check that an engine keeps the contract `tsr_gym.agents.policies.engine.Engine`, and return the checked rules.

    The rules cover counts of samples, seeds, the prompts' exact tokens, log-probabilities of the distribution that is
    sampled from, limits, stop tokens, aborts, versions and updates of the weights, and that missing capabilities raise
    `tsr_gym.Unsupported`. Afterwards the engine has the weights of `update`.

    Args:
        engine: Any object with the methods of the contract, sampling at a temperature above 0.
        reference: Returns the learner's log-probability of each token of an answer, given the prompt and the answer, as
            it is sampled: ``log_softmax(logits / temperature)``. Required if the engine has log-probabilities.
        update: Changes the learner, so that `reference` uses the new weights, and returns their names and tensors for
            ``load_weights``; nothing if engine and learner share the model.
        prompts: Token ids of several prompts of different lengths, with room left in the model's context.
        stop_ids: Tokens that end an answer.
        tolerance: Largest difference of a log-probability, in nats.

    Returns:
        For each rule ``"held"``, or why it was not checked.

    Raises:
        CheckFailed: A rule is broken; `check` names it.
        ConfigError: The engine has log-probabilities, and no reference is given.
    """
    asked = tuple(tuple(prompt) for prompt in prompts)
    if len(asked) < 2 or not all(asked):
        raise ConfigError(f"wanted at least two prompts, none empty, got {asked}")
    trial = EngineTrial(engine, asked, reference, update, frozenset(stop_ids), tolerance)
    outcomes = {}
    for name, rule in RULES.items():
        outcomes[name] = rule(trial) or HELD
        if name == "contract" and engine.capabilities.logprobs and reference is None:
            raise ConfigError("the engine has log-probabilities: wanted a reference to compare them with, got None")
    return outcomes
