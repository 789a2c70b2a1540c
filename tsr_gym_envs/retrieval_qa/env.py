"""The retrieval QA environment: questions, protocol, retriever and grading put together."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tsr_gym import ConfigError, Limits, Step, TextEnv
from tsr_gym.codec import encode
from tsr_gym.state_env import new_tuple
from tsr_gym.teaching import Teaching
from tsr_gym.text_env import MAX_TEXT, Guide
from tsr_gym_envs.reasons import invalid
from tsr_gym_envs.retrieval_qa.bm25_retriever import BM25Retriever
from tsr_gym_envs.retrieval_qa.contract import Question, Retriever
from tsr_gym_envs.retrieval_qa.grading import Reward, Transcript, exact_match, grade, make_reward, token_f1
from tsr_gym_envs.retrieval_qa.plan import Searches, next_turn, random_success, sensible_turns
from tsr_gym_envs.retrieval_qa.players import qa_teaching
from tsr_gym_envs.retrieval_qa.protocol import (
    Protocol,
    compact_protocol,
    compact_turn,
    cut_turn,
    make_protocol,
    parse,
    plain,
)
from tsr_gym_envs.retrieval_qa.questions import Sources, open_sources
from tsr_gym_envs.retrieval_qa.state import (
    AnswerMatch,
    History,
    ObservationMode,
    RetrievalSettings,
    RetrievalState,
    RetrievalTurn,
)
from tsr_gym_envs.settings import check_kinds

_VALID: dict[str, Any] = {}
_LATE = {"action_is_executed": False}


class RetrievalQAEnv(TextEnv[RetrievalState]):
    """Answer a question by searching a corpus over several turns.

    ## Description
    The task of Search-R1 and its successors. A turn is everything that the agent writes at once: a thought and a
    search, or a thought and the final answer. The defaults ask generated multi-hop questions over a generated corpus;
    with files, any questions over any corpus.

    ## Action Space
    Text, of which the protocol reads one action. With ``search-r1``, ``<search>query</search>`` or
    ``<answer>text</answer>``; what follows the first closing tag is dropped. A turn that holds neither is shown how to
    write them, and counts. This environment reads the tags itself: do not put `AnswerFormat` around it.

    ## Observation Space
    Text: first the question; after a search its passages in the protocol's words; after the answer, and after a search
    in the last turn, nothing. That is what happened in the last turn, for agents that remember; with
    ``history="transcript"`` it is everything so far, question first, and where that is too long, without its oldest
    turns. `instructions` holds the protocol's explanation of the task. With ``observation_mode="compact"`` texts are
    lower-case words between blanks, for very small models: ``ask ... ?``, then ``doc title | text`` for each passage.

    ## Starting State
    A question of the split, drawn with the seed. ``reset(options={"question_id": ID})`` asks that question, from
    any split; where data sources share an id, ``"data_source"`` chooses.

    ## Rewards
    At the end of the episode, and 0 before. `reward`: ``exact_match`` or ``f1`` of the answer; ``format`` and
    ``format-f1``, Search-R1's ladder for structure; ``search-r1`` (its v0.3 grader), ``search-r1-em`` (v0.1 and v0.2)
    and ``tree-grpo``, which grade as the published code does, quirks included; or a `Reward` of your own, or a mapping
    of its fields.

    ## Episode End
    Terminates with the answer. Truncates after `max_turns` turns and, in protocols with an extra turn, one more. The
    last turn never searches. With ``verl``, a turn without any action terminates, too.

    ## Information
    As every `TextEnv`, ``invalid_reason`` where a turn was invalid, and the same at every turn:
    ``question_id`` and ``group`` (data source and id, for groups of rollouts); ``golden_answers``, which no agent is
    shown and credit rules look for; ``answer`` (None before it is given);
    ``exact_match``, ``f1`` and ``answer_correct`` of it (False and 0.0 before); ``searches``, the number carried out;
    ``retrieved``, a tuple of passage ids per turn; ``answer_turn``, the first turn, counted from 1, whose passages as
    shown hold a golden answer, else 0; ``supporting_found``, the supporting passages shown so far, and
    ``supporting_recall``, their share (None where the question does not name any).

    ## Arguments
    | keyword | default | what |
    |---|---|---|
    | `questions` | None: generated | path of a file for `load_questions`, a sequence of `Question`, or how many |
    | `corpus` | None: generated | path of a jsonl file of passages or of an index folder |
    | `retriever` | None: BM25 over `corpus` | a `Retriever`, or ``"module:name"``, which is called with `corpus` |
    | `entities` | None: 3000 | how many the generated world has |
    | `hops` | None: all kinds | of generated questions, such as ``[1, 2]``: equally often, and no other kinds |
    | `world_seed` | 0 | the seed of the generated world |
    | `preset` | ``paper`` | the only one: what Search-R1's later scripts do |
    | `protocol` | ``search-r1`` | also ``skyrl``, ``verl``; a mapping of fields with ``preset``; a `Protocol` |
    | `reward` | ``exact_match`` | see above |
    | `max_turns`, `top_k` | 4, 3 | as in Search-R1's later scripts |
    | `split` | ``all`` | ``train``, ``valid`` (published as dev) or ``test``; by a hash of the id where not published |
    | `history` | ``last`` | or ``transcript`` |
    | `observation_mode` | ``protocol`` | or ``compact`` |
    | `answer_match` | ``boundary`` | of whole words; also ``substring`` (Search-R1's), ``supporting`` (any such id) |
    | `max_remembered` | 4096 | searches that an environment and its clones remember |
    | `render_mode` | None | or ``ansi`` |

    A retriever that fails raises RetrievalFailed, and the episode stands where it stood: call `step` again, or restore
    a snapshot later.

    ## Version History
    v0: first version.
    """

    draws_noise = False
    guide = Guide("tsr_gym.wrappers:RetrievalQAScore", {"kind": "novelty"})
    model_forms = frozenset({"observation_mode"})
    reads_tags = True

    def __init__(
        self,
        settings: RetrievalSettings,
        sources: Sources,
        *,
        max_remembered: int = 4096,
        render_mode: str | None = None,
    ) -> None:
        self._num_turns = settings.max_turns + settings.protocol.extra_turn
        super().__init__(settings, limits=Limits(self._num_turns), separator=None, render_mode=render_mode)
        self.settings = settings
        self.instructions = settings.protocol.instructions
        self.questions = sources.questions
        self._sources = sources
        self._is_compact = settings.observation_mode == "compact"
        self.searches = Searches(
            sources.retriever, settings.protocol, settings.top_k, max_remembered, compact=self._is_compact
        )
        self._drawn_from = self.questions.of_split(settings.split)

    def question(self, state: RetrievalState) -> Question:
        """Return the question that is asked."""
        return self.questions.questions[state.question]

    def initial(self, rng: np.random.Generator, options: dict[str, Any]) -> RetrievalState:
        """Return a new question, the one of the options or else one that is drawn."""
        if unknown := sorted(set(options) - {"question_id", "data_source"}):
            raise ConfigError(f"wanted reset options among ['data_source', 'question_id'], got {unknown}")
        if options:
            return RetrievalState(self.questions.place_of(options))
        return RetrievalState(self._drawn_from[int(rng.integers(len(self._drawn_from)))])

    def transition(self, state: RetrievalState, action: str, rng: np.random.Generator) -> Step:
        """Return the effect of one turn; every text is a turn, also a blank one.

        Raises:
            RetrievalFailed: The retriever did not answer.
        """
        protocol = self.settings.protocol
        text = cut_turn(action, protocol)
        asked = parse(text, protocol)
        # The state holds every turn, so their number identifies the last one. It never searches: no turn is left in
        # which the agent could read the passages.
        is_last = len(state.turns) + 1 >= self._num_turns
        if asked.kind == "search" and not is_last:
            return new_tuple(Step, (self._search(state, text, asked.queries), 0.0, False, _VALID))
        outcome: Any = "late" if asked.kind == "search" else asked.kind
        after = state._replace(
            turns=(*state.turns, RetrievalTurn(text, outcome, asked.queries)),
            answer=asked.answer if outcome == "answer" else None,
        )
        ended = outcome == "answer" or (outcome == "invalid" and protocol.ends_on_invalid)
        reward = self.grade(after) if ended or is_last else 0.0
        if outcome == "invalid":
            return Step(after, reward, ended, invalid(asked.reason))
        return Step(after, reward, ended, _LATE if outcome == "late" else _VALID)

    def _search(self, state: RetrievalState, text: str, queries: tuple[str, ...]) -> RetrievalState:
        question = self.question(state)
        ids = self.searches.find(queries).ids
        # States hold ids alone: the texts come back from the memory of searches, or from the retriever.
        answer_turn, supporting = state.answer_turn, state.found
        if any(name in ids and name not in supporting for name in question.supporting):
            supporting = tuple(name for name in question.supporting if name in ids or name in supporting)
        if answer_turn is None and self._answers(question, queries, ids):
            answer_turn = len(state.turns) + 1
        turns = (*state.turns, new_tuple(RetrievalTurn, (text, "search", queries, ids)))
        return new_tuple(RetrievalState, (state.question, turns, None, answer_turn, supporting))

    def _answers(self, question: Question, queries: tuple[str, ...], ids: tuple[str, ...]) -> bool:
        """Return whether the passages of a search count as evidence for a golden answer."""
        match = self.settings.answer_match
        if match == "supporting":
            return any(name in ids for name in question.supporting)
        return self.searches.holds_answer(queries, question.golden_answers, match)

    def grade(self, state: RetrievalState) -> float:
        """Return the reward of an episode that ends in a state."""
        question, rule, protocol = self.question(state), self.settings.reward, self.settings.protocol
        if not rule.reads_transcript:
            return grade(rule, Transcript(answer=state.answer), question.golden_answers)
        # The agent never reads the observation after the last turn, so it is not part of the response.
        response = "".join(turn.text + self._shown(turn) for turn in state.turns[:-1]) + state.turns[-1].text
        transcript = Transcript(
            f"{protocol.instructions}\n{_asked(question)}\n",
            response,
            state.answer,
            state.answer_turn is not None,
            (protocol.think_tag, protocol.search_tag, protocol.information_tag, protocol.answer_tag),
        )
        return grade(rule, transcript, question.golden_answers)

    def observe(self, state: RetrievalState) -> str:
        """Return the last turn's observation, or the whole transcript, by `history`.

        Raises:
            RetrievalFailed: The passages are no longer remembered, and the retriever did not answer.
        """
        if not state.turns:
            return self._asks(state)
        if self.settings.history == "last":
            return self._shown(state.turns[-1])
        return self._transcript(state)

    def _asks(self, state: RetrievalState) -> str:
        asked = _asked(self.question(state))
        return f"ask {plain(asked)} ?" if self._is_compact else asked

    def _shown(self, turn: RetrievalTurn) -> str:
        if turn.kind == "search":
            return self.searches.find(turn.queries).observation
        return self.settings.protocol.invalid if turn.kind == "invalid" else ""

    def _transcript(self, state: RetrievalState) -> str:
        asked = self._asks(state)
        room = MAX_TEXT - len(asked)
        parts: list[str] = []
        for turn in reversed(state.turns):
            part = f"\n{turn.text}{self._shown(turn)}"
            room -= len(part)
            if room < 0:
                break
            parts.append(part)
        return asked + "".join(reversed(parts))

    def state_key(self, state: RetrievalState) -> bytes:
        """Return the bytes of the question, the passages shown so far, and the answer.

        The order of the passages and the number of turns do not count. Where the reward depends on the transcript,
        what was written and shown counts, too.
        """
        read = tuple(sorted({name for turn in state.turns for name in turn.passages}))
        texts = tuple((turn.text, turn.kind) for turn in state.turns) if self.settings.reward.reads_transcript else ()
        return encode((self.question(state).group, read, state.answer, texts))

    def is_success(self, state: RetrievalState) -> bool:
        """Return whether the final answer is a golden one."""
        return state.answer is not None and exact_match(state.answer, self.question(state).golden_answers)

    def legal_actions(self, state: RetrievalState) -> tuple[str, ...]:
        """Return sensible turns, made of the question and of the titles that were read last; no label is used."""
        searched = [turn.queries for turn in state.turns if turn.kind == "search"]
        titles = self.searches.find(searched[-1]).titles if searched else ()
        return self._turns(self.question(state).question, titles)

    def _turns(self, question: str, titles: tuple[str, ...]) -> tuple[str, ...]:
        turns = sensible_turns(question, titles, self.settings.protocol)
        return tuple(dict.fromkeys(map(self._in_form, turns))) if self._is_compact else turns

    def _in_form(self, turn: str) -> str:
        return compact_turn(turn, self.settings.protocol) if self._is_compact else turn

    def optimal_turn(self, state: RetrievalState, turns_left: int | None, actions_left: int | None) -> str | None:
        """Return the next search of the question's decomposition, then the golden answer; None where it has none."""
        asked = {query for turn in state.turns for query in turn.queries}
        turn = next_turn(
            self.question(state),
            asked,
            self.settings.protocol,
            may_search=turns_left is None or turns_left > 1,
            structured=self.settings.reward.reads_transcript,
            same=plain if self._is_compact else str,
        )
        return None if turn is None else self._in_form(turn)

    def teaching(self) -> Teaching | None:
        """Return the teaching of a reader who follows decompositions; None without any, or without compact texts."""
        return None if self.settings.protocol.tool else qa_teaching(self._sources)

    def success_bars(self, state: RetrievalState) -> tuple[float, float] | None:
        """Return the success of uniformly drawn `legal_actions`, and 1: the best policy answers in the first turn.

        None unless the retriever is an index on this machine, because every search of random play is evaluated.
        """
        if not isinstance(self.searches.retriever, BM25Retriever):
            return None
        question, protocol = self.question(state), self.settings.protocol
        turns = partial(self._turns, question.question)
        return random_success(question, self.searches, turns, protocol, self._num_turns), 1.0

    def _facts(self, state: RetrievalState) -> dict[str, Any]:
        question, answer = self.question(state), state.answer
        correct = self.is_success(state)
        return {
            "success": correct,
            "question_id": question.id,
            "group": question.group,
            "golden_answers": question.golden_answers,
            "answer": answer,
            "exact_match": correct,
            "f1": 0.0 if answer is None else token_f1(answer, question.golden_answers),
            "answer_correct": correct,
            "searches": sum(turn.kind == "search" for turn in state.turns),
            "retrieved": tuple(turn.passages for turn in state.turns),
            "answer_turn": state.answer_turn or 0,
            "supporting_found": state.found,
            "supporting_recall": len(state.found) / len(question.supporting) if question.supporting else None,
        }


def _asked(question: Question) -> str:
    """Return the text of a question, with its question mark."""
    text = question.question.strip()
    return text if text.endswith("?") else f"{text}?"


def make(
    questions: str | Path | Sequence[Question] | int | None = None,
    corpus: str | Path | None = None,
    *,
    preset: str = "paper",
    retriever: Retriever | str | None = None,
    entities: int | None = None,
    hops: int | Sequence[int] | None = None,
    world_seed: int = 0,
    protocol: str | Mapping[str, Any] | Protocol = "search-r1",
    reward: str | Mapping[str, Any] | Reward = "exact_match",
    max_turns: int = 4,
    top_k: int = 3,
    split: str = "all",
    history: History = "last",
    observation_mode: ObservationMode = "protocol",
    answer_match: AnswerMatch = "boundary",
    max_remembered: int = 4096,
    render_mode: str | None = None,
) -> RetrievalQAEnv:
    """Make the environment behind ``gym.make("tsr/RetrievalQA-v0", ...)``; `RetrievalQAEnv` documents the keywords.

    Raises:
        ConfigError: A setting is unknown or impossible.
        InvalidCorpus: The questions or the corpus are missing or malformed.
        GenerationFailed: The generated world is too small for so many questions.
    """
    if preset != "paper":
        raise ConfigError(f"wanted preset='paper', got {preset!r}: choose among published settings with `protocol`")
    wire, rule = make_protocol(protocol), make_reward(reward)
    check_kinds(RetrievalSettings, {"max_turns": max_turns, "top_k": top_k, "split": split})
    sources = open_sources(questions, corpus, retriever, entities=entities, hops=hops, world_seed=world_seed)
    settings = RetrievalSettings(
        questions=sources.questions.digest,
        retriever=sources.retriever.digest,
        protocol=compact_protocol(wire) if observation_mode == "compact" else wire,
        reward=rule,
        max_turns=max_turns,
        top_k=top_k,
        split=split,
        history=history,
        answer_match=answer_match,
        observation_mode=observation_mode,
    )
    return RetrievalQAEnv(settings, sources, max_remembered=max_remembered, render_mode=render_mode)
