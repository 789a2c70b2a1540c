"""check_engine: proof by use that an engine samples from the policy that the learner trains."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import exp, isfinite, sqrt
from typing import Any

from tsr_gym.errors import CheckFailed, ConfigError, Unsupported, shown

Ids = tuple[int, ...]
# From a prompt and an answer to the learner's log-probability of each token of the answer.
Reference = Callable[[Ids, Ids], Sequence[float]]
# Changes the learner, and returns what `load_weights` is to be given.
Update = Callable[[], Iterable[tuple[str, Any]]]
REASONS = ("stop", "length", "abort")


@dataclass(frozen=True, slots=True)
class EngineTrial:
    """An engine under check.

    Attributes:
        engine: What is checked.
        prompts: Token ids to ask with.
        reference: The learner's log-probabilities; None where they are not known.
        update: Changes the learner; None where its weights stay.
        stop_ids: Tokens that end an answer.
        tolerance: Most difference of a log-probability.
    """

    engine: Any
    prompts: tuple[Ids, ...]
    reference: Reference | None
    update: Update | None
    stop_ids: frozenset[int]
    tolerance: float

    def ask(self, prompts: Sequence[Ids], seeds: Sequence[Sequence[int]], **settings: int) -> list[list[Any]]:
        """Return the engine's answers, after a look that every one is whole.

        Raises:
            CheckFailed: There are more or fewer than wanted, one is not what the contract says, or the engine wrote
                into what it was given.
        """
        given = [list(prompt) for prompt in prompts], [list(row) for row in seeds]
        answers: list[list[Any]] = self.engine.generate(given[0], seeds=given[1], **settings)
        if given != ([list(prompt) for prompt in prompts], [list(row) for row in seeds]):
            raise CheckFailed("completions", "generate wrote into the prompts or seeds that it was given")
        found, wanted = [len(row) for row in answers], [len(row) for row in seeds]
        if found != wanted:
            raise CheckFailed("counts", f"wanted {wanted} completions for the prompts, one per seed, got {found}")
        for prompt, row in zip(prompts, answers, strict=True):
            for completion in row:
                self._check(prompt, completion)
        return answers

    def one_each(self, prompts: Sequence[Ids], seed: int, **settings: int) -> list[Any]:
        """Return one answer to each prompt, all by the same seed."""
        return [row[0] for row in self.ask(prompts, [[seed]] * len(prompts), **settings)]

    def compare(self, check: str, prompts: Sequence[Ids], answers: Sequence[Any]) -> None:
        """Hold the log-probabilities of answers against the reference.

        Raises:
            CheckFailed: One differs.
        """
        assert self.reference is not None
        for prompt, completion in zip(prompts, answers, strict=True):
            wanted = [float(one) for one in self.reference(prompt, completion.token_ids)]
            differences = [abs(a - b) for a, b in zip(completion.logprobs, wanted, strict=True)]
            if not max(differences) <= self.tolerance:
                place = max(range(len(wanted)), key=differences.__getitem__)
                raise CheckFailed(
                    check,
                    f"token {place} of the answer to {shown(prompt)} has log-probability "
                    f"{completion.logprobs[place]:.7g} and the learner's is {wanted[place]:.7g}: other weights, "
                    "another prompt than was given, or another distribution than was sampled from (temperature "
                    "included)",
                )

    def _check(self, prompt: Ids, completion: Any) -> None:
        ids, logprobs = completion.token_ids, completion.logprobs
        knows = self.engine.capabilities.logprobs
        whole = {
            "token_ids, a tuple of some ints": type(ids) is tuple and ids and all(type(one) is int for one in ids),
            "one logprob per token, () without the capability": len(logprobs) == (len(ids) if knows else 0),
            "finite logprobs of at most 0": all(isfinite(one) and one <= 1e-6 for one in logprobs),
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


def said(answers: Iterable[Iterable[Any]]) -> list[list[Ids]]:
    """Return the token ids of answers."""
    return [[completion.token_ids for completion in row] for row in answers]


SEEDS = range(1, 9)
DRAWS = 400
# Standard deviations by which a count may miss its expectation; with fair dice one in a hundred million does.
MOST_DEVIATIONS = 6.0
NO_LOGPROBS = "the engine has no log-probabilities"


def the_contract_is_offered(trial: EngineTrial) -> str:
    """Check that what an engine says of itself can be read."""
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
    """Check calls that want different numbers of samples, none among them."""
    trial.ask((), ())
    trial.ask(trial.prompts, [range(1, 2 + number % 4) for number in range(len(trial.prompts))])
    trial.ask(trial.prompts[:2], [(), (1, 2, 3)])
    return ""


def seeds_decide(trial: EngineTrial) -> str:
    """Check that other seeds give other samples, and equal seeds equal ones."""
    (first,) = said(trial.ask(trial.prompts[:1], [SEEDS]))
    if len(set(first)) == 1:
        raise CheckFailed("seeds", f"{len(first)} distinct seeds gave the same sample {shown(first[0])}")
    if not trial.engine.capabilities.seeds:
        return "only that samples differ: the engine takes no seeds"
    (twice,) = said(trial.ask(trial.prompts[:1], [[*SEEDS, *SEEDS]]))
    (again,) = said(trial.ask(trial.prompts[:1], [SEEDS]))
    if not twice == first * 2 == again * 2:
        raise CheckFailed("seeds", "the same prompt and seed gave another sample when it was asked for again")
    return ""


def company_does_not_matter(trial: EngineTrial) -> str:
    """Check that a sample is the same alone, in company, and in another order."""
    if not trial.engine.capabilities.company:
        return "the engine does not promise it"
    seeds = [(3 * number + 1, 3 * number + 2) for number in range(len(trial.prompts))]
    together = said(trial.ask(trial.prompts, seeds))
    backwards = said(trial.ask(trial.prompts[::-1], seeds[::-1]))[::-1]
    alone = [said(trial.ask([prompt], [row]))[0] for prompt, row in zip(trial.prompts, seeds, strict=True)]
    for where, other in (("in another order", backwards), ("alone", alone)):
        if other != together:
            raise CheckFailed("company", f"prompts that were asked {where} gave other samples by the same seeds")
    return ""


def logprobs_are_the_learners(trial: EngineTrial) -> str:
    """Check the log-probabilities of samples against the reference."""
    if not trial.engine.capabilities.logprobs:
        return NO_LOGPROBS
    for prompt, row in zip(trial.prompts, trial.ask(trial.prompts, [SEEDS] * len(trial.prompts)), strict=True):
        trial.compare("logprobs", [prompt] * len(row), row)
    return ""


def samples_are_drawn_as_often_as_said(trial: EngineTrial) -> str:
    """Check that tokens come as often as their own log-probabilities say: nothing was cut or sharpened unsaid."""
    if not trial.engine.capabilities.logprobs:
        return NO_LOGPROBS
    (row,) = trial.ask(trial.prompts[:1], [range(1000, 1000 + DRAWS)], max_tokens=1)
    said_p = {completion.token_ids[0]: exp(completion.logprobs[0]) for completion in row}
    counts = Counter(completion.token_ids[0] for completion in row)
    for token, p in said_p.items():
        # Rare tokens have no deviation worth the name.
        deviation = sqrt(DRAWS * p * (1 - min(p, 1.0)) + 1)
        if abs(counts[token] - DRAWS * p) > MOST_DEVIATIONS * deviation:
            raise CheckFailed(
                "sampling",
                f"token {token} was drawn {counts[token]} times of {DRAWS}, its log-probability says {DRAWS * p:.1f}: "
                "the engine samples from another distribution than it reports",
            )
    # What is never drawn has, as Good and Turing found, about the probability of what was drawn once.
    once, twice = (sum(count == times for count in counts.values()) for times in (1, 2))
    unseen, most = 1 - sum(said_p.values()), (once + MOST_DEVIATIONS * sqrt(once + 2 * twice + 1)) / DRAWS
    if unseen > most:
        raise CheckFailed(
            "sampling",
            f"in {DRAWS} draws tokens with a probability of {unseen:.3f} in all never came, wanted is at most "
            f"{most:.3f}: the engine leaves out tokens (top-k, top-p) that its log-probabilities count",
        )
    return ""


def prompts_are_taken_token_by_token(trial: EngineTrial) -> str:
    """Check prompts that no text would be spelled as, and prompts that differ in one token."""
    if not trial.engine.capabilities.logprobs:
        return NO_LOGPROBS
    longest = max(trial.prompts, key=len)
    odd = [longest[:1] * 2 + longest, longest[1:], longest[::-1], (*longest[:-1], longest[0]), longest[-1:] * 5]
    trial.compare("prompt tokens", odd, trial.one_each(odd, 5, max_tokens=2))
    return ""


def prompts_that_continue_are_computed_right(trial: EngineTrial) -> str:
    """Check prompts that extend what was said before, as the turns of an episode do."""
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
    """Check calls with a limit of their own."""
    for limit in (1, 2, 3):
        for row in trial.ask(trial.prompts, [SEEDS] * len(trial.prompts), max_tokens=limit):
            for completion in row:
                length, reason = len(completion.token_ids), completion.finish_reason
                if length > limit or reason == "abort" or (reason == "length" and length != limit):
                    raise CheckFailed("length", f"wanted at most {limit} tokens, got {length} with reason {reason!r}")
    return ""


def stop_tokens_end_answers(trial: EngineTrial) -> str:
    """Check that an answer ends with its stop token, and says so."""
    if not trial.stop_ids:
        return "no stop_ids were given"
    seeds = range(2000, 2064)
    stopped = 0
    for row in trial.ask(trial.prompts, [seeds] * len(trial.prompts)):
        for completion in row:
            *inside, last = completion.token_ids
            if trial.stop_ids & set(inside):
                raise CheckFailed("stop tokens", f"an answer goes on after its stop token: {shown(completion)}")
            if (last in trial.stop_ids) != (completion.finish_reason == "stop"):
                raise CheckFailed("stop tokens", f"wanted reason stop where a stop token ends: {shown(completion)}")
            stopped += completion.finish_reason == "stop"
    return "" if stopped else "no answer came to a stop token"


def an_abort_is_told(trial: EngineTrial) -> str:
    """Check that what another thread breaks off comes back with that reason."""
    if not trial.engine.capabilities.abort:
        return "the engine does not offer it"
    prompts, seeds = trial.prompts, [range(3000, 3032)] * len(trial.prompts)
    for _ in range(5):
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(trial.ask, prompts, seeds)
            # Until it has ended, because before it has begun there is nothing to break off.
            while not asked.done():
                trial.engine.abort()
        if any(completion.finish_reason == "abort" for row in asked.result() for completion in row):
            break
    else:
        raise CheckFailed("abort", "generate was aborted five times, and no completion has the finish_reason abort")
    for row in trial.ask(prompts[:1], [SEEDS]):
        if any(completion.finish_reason == "abort" for completion in row):
            raise CheckFailed("abort", "an abort ends calls that came after it")
    return ""


def versions_are_told(trial: EngineTrial) -> str:
    """Check that completions bear the version of the weights (every other rule looks that they do)."""
    engine = trial.engine
    if not engine.capabilities.weights:
        return "" if engine.weight_version == 0 else "the engine's weights stay as they are"
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
    """Check that after an update everything is computed by the new weights, and a wrong one is refused."""
    engine = trial.engine
    if not engine.capabilities.weights:
        return "the engine's weights stay as they are"
    if trial.update is None:
        return "no update was given"
    before = trial.one_each(trial.prompts, 30)
    weights = list(trial.update())
    engine.load_weights(weights, version=engine.weight_version + 1)
    after = trial.one_each(trial.prompts, 30)
    if [one[:2] for one in after] == [one[:2] for one in before]:
        raise CheckFailed("weight update", "the engine answers after an update exactly as before it")
    grown = [(*prompt, *one.token_ids) for prompt, one in zip(trial.prompts, before, strict=True)]
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
        # Each engine has errors of its own.
        except Exception:
            continue
        raise CheckFailed("weight update", f"load_weights took {wrong[0]!r} of shape {[*wrong[1].shape]}")


def what_is_missing_raises(trial: EngineTrial) -> str:
    """Check that an engine refuses what its capabilities leave out, in place of doing nothing."""
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

# In this order, because an early rule names a culprit that would also break the later ones.
RULES: dict[str, Callable[[EngineTrial], str]] = {
    "contract": the_contract_is_offered,
    "counts": every_prompt_gets_its_number,
    "logprobs": logprobs_are_the_learners,
    "prompt tokens": prompts_are_taken_token_by_token,
    "continued prompts": prompts_that_continue_are_computed_right,
    "seeds": seeds_decide,
    "company": company_does_not_matter,
    "sampling": samples_are_drawn_as_often_as_said,
    "length": answers_end_at_their_limit,
    "stop tokens": stop_tokens_end_answers,
    "abort": an_abort_is_told,
    "weight version": versions_are_told,
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
    """Prove by use that an engine keeps `tsr_gym.agents.policies.engine.Engine`, and return what was looked at.

    Counts of samples, seeds, the prompts' exact tokens, log-probabilities of the very distribution that is sampled
    from, limits, stop tokens, aborts, versions of the weights, an update of the weights, and that what the engine
    cannot do raises `tsr_gym.Unsupported`. The engine is used; afterwards it has the weights that `update` gave it.

    Args:
        engine: Any object with the methods of the contract, sampling at a temperature above 0.
        reference: From a prompt and an answer to the learner's log-probability of each token of the answer, as it is
            sampled: ``log_softmax(logits / temperature)``. Wanted of every engine that has log-probabilities.
        update: Changes the learner, so that `reference` answers by the new weights, and returns their names and
            tensors for ``load_weights``; nothing where the learner's model is the engine's own.
        prompts: Token ids to ask with, several and of different lengths; they leave room in the model's context.
        stop_ids: Tokens that end an answer.
        tolerance: Most difference of a log-probability, in nats.

    Returns:
        By rule, ``"held"`` or why it was not asked.

    Raises:
        CheckFailed: A rule is broken; `check` names it.
        ConfigError: The engine has log-probabilities, and no reference is given.
    """
    asked = tuple(tuple(prompt) for prompt in prompts)
    if len(asked) < 2 or not all(asked):
        raise ConfigError(f"wanted at least two prompts, none empty, got {asked}")
    trial = EngineTrial(engine, asked, reference, update, frozenset(stop_ids), tolerance)
    found = {}
    for name, rule in RULES.items():
        found[name] = rule(trial) or HELD
        if name == "contract" and engine.capabilities.logprobs and reference is None:
            raise ConfigError("the engine has log-probabilities: wanted a reference to hold them against, got None")
    return found
