"""Models and runs that break: damaged folders of models, weights that change in place, and updates that diverge."""

import copy
import json
import math
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.abuse.attacks import Counts, Outcome, attacked, counted, damaged
from tests.agents.policies.test_transformers_engine import (
    SGD,
    AdamW,
    halve,
    replace,
    scale,
    slow,
    step,
    transformers_engine,
    trie_engine,
)
from tests.agents.runs.test_trainer import Killed
from tests.agents.short_runs import UPDATES, records, result, short_run
from tests.agents.tiny import random_qwen2
from tsr_gym import CheckpointError, ConfigError, EngineFailed, TrainingDiverged
from tsr_gym.agents.models.language_model import load_policy
from tsr_gym.agents.runs.progress import checkpoints
from tsr_gym.agents.runs.trainer import resume_run, start_run

CPU = torch.device("cpu")


def _folders(count, seed, sound):
    """Damage or remove files of a model's folder, or let one of them name code that lies there."""
    rng = np.random.default_rng(seed)
    text = "Up || Left, then down"
    wanted = load_policy(sound, device=CPU).tokenizer(text)["input_ids"]
    names = sorted(path.name for path in sound.iterdir())
    for _ in range(count):
        with TemporaryDirectory() as home:
            folder, ran = Path(shutil.copytree(sound, Path(home) / "model")), Path(home) / "ran"
            way, name = ("removed", "damaged", "code")[rng.integers(3)], names[rng.integers(len(names))]
            file = folder / name
            if way == "removed":
                for number in rng.permutation(len(names))[: rng.integers(1, 3)]:
                    (folder / names[number]).unlink()
            elif way == "damaged":
                file.write_bytes(damaged(file.read_bytes(), rng))
            else:
                file = folder / ("config.json", "tokenizer_config.json", "generation_config.json")[rng.integers(3)]
                content = json.loads(file.read_bytes()) if file.exists() else {}
                auto = ("AutoConfig", "AutoModelForCausalLM", "AutoTokenizer", "AutoModel")
                file.write_text(json.dumps(content | {"auto_map": dict.fromkeys(auto, "own.Own")}))
                (folder / "own.py").write_text(f"open({str(ran)!r}, 'w')\nOwn = None\n")

            def attack(folder=folder, way=way):
                policy = load_policy(folder, device=CPU)
                ids = policy.tokenizer(text)["input_ids"]
                logits = policy.model(input_ids=torch.tensor([ids])).logits
                # Damage to a vocabulary may change what it spells; only of whole files nothing may.
                return len(ids) > 1 and bool(logits.isfinite().all()) and (ids == wanted or way == "damaged")

            came = attacked(f"{way}: {name} of {names}", attack, (CheckpointError, ConfigError))
            yield came._replace(count="wrong") if ran.exists() else came


def test_damaged_folders_of_models_are_refused_or_whole_and_their_code_never_runs(hold, chat_model):
    counts = hold("folders of models", lambda count, seed: counted(_folders(count, seed, chat_model)), 20)
    assert counts.refused > 0


STEPS = (step(AdamW), step(AdamW, fused=True), step(AdamW, foreach=True), step(SGD, fused=True))
CHANGES = (*STEPS, scale, halve, replace)


def _changed_weights(count, seed, sound):
    rng = np.random.default_rng(seed)
    make = lambda own: (transformers_engine, trie_engine)[rng.integers(2)](own, max_tokens=4)  # noqa: E731
    for _ in range(count):
        own = copy.deepcopy(sound)
        engines, prompt, changes = [make(own), make(own)], [7, 8, 9], rng.integers(len(CHANGES), size=3)

        def attack(own=own, engines=engines, prompt=prompt, changes=changes):
            for number in changes:
                for engine in engines:
                    ((answer,),) = engine.generate([prompt], seeds=[[3]])
                    ids, logprobs = slow(own, tuple(prompt), 3, max_tokens=4)
                    if answer.token_ids != ids or not np.allclose(answer.logprobs, logprobs, atol=5e-5):
                        return False
                prompt.extend(ids)
                CHANGES[number](own)
            return True

        yield attacked(f"changes {changes.tolist()}", attack, ())


def test_engines_answer_by_the_weights_that_their_model_has_now(hold, tokenizer):
    model = random_qwen2(tokenizer, context=96)
    counts = hold("changed weights", lambda count, seed: counted(_changed_weights(count, seed, model)), 8)
    assert counts.right == counts.tried


# Where an update breaks, or is killed: in a loss, before or after a step of an optimizer, at the end of the update.
PLACES = ("loss", "gradient", "weights", "end")


def divergence_campaign(count: int, seed: int, whole: dict, base_model: Path) -> Counts:
    """Return the outcomes of runs with numbers that are none, or a kill, at a random place of a random update."""
    return counted(_divergences(count, np.random.default_rng(seed), whole, base_model))


def _divergences(count: int, rng: np.random.Generator, whole: dict, base_model: Path) -> Iterator[Outcome]:
    for _ in range(count):
        place, wrong = PLACES[rng.integers(len(PLACES))], (math.nan, math.inf, -math.inf, None)[rng.integers(4)]
        # After the broken place, the run may also be killed at one of its next touches of the disk.
        update, part, touch = (int(number) for number in rng.integers((UPDATES, 1000, 8)))
        kept, every = 1 + int(rng.integers(2)), 1 + int(rng.integers(2))
        what = f"{wrong} in {place} {part} of update {update + 1}, kill at touch {touch}, every {every}, kept {kept}"
        with TemporaryDirectory() as home:
            run = Path(home) / "run"
            config = short_run(run, base_model, run={"keep_checkpoints": kept, "checkpoint_every": every})
            attack = partial(_survives, config, base_model, whole, (place, wrong, update, part, touch))
            yield attacked(what, attack, ())


def _survives(config, base_model, whole, blow):
    run = config.run.out
    with pytest.MonkeyPatch.context() as patched:
        trainer = start_run(config, base_model)
        _break(patched, trainer, *blow)
        with suppress(TrainingDiverged, EngineFailed, Killed):
            trainer.run()
    newest = checkpoints(run)[-1]
    files = (newest / "model" / "model.safetensors", newest / "critic.safetensors")
    sound = all(tensor.isfinite().all() for file in files for tensor in load_file(file).values())
    steps = [line["step"] for line in records(run)] if (run / "metrics.jsonl").exists() else []
    logged = steps == [*range(1, len(steps) + 1)] and int(newest.name) <= len(steps)
    return sound and logged and resume_run(run).run() and result(run) == whole


def _break(patched, trainer, place, wrong, update, part, touch):
    """Break one update of a run at a place; `part` chooses the optimizer, the step and the parameter."""
    learner, broken, steps = trainer.parts.learner, [], []

    def blow(tensor):
        broken.append(place)
        if wrong is None:
            raise Killed
        with torch.no_grad():
            tensor.view(-1)[part % tensor.numel()] = wrong

    def is_due():
        if broken or trainer.progress.update != update:
            return False
        steps.append(place)
        return len(steps) > part // 2 % 2

    def touched(real):
        def call(*args, **kwargs):
            if broken and broken.append(place) is None and len(broken) == touch + 2:
                raise Killed
            return real(*args, **kwargs)

        return call

    for name in ("fsync", "replace"):
        patched.setattr(os, name, touched(getattr(os, name)))
    optimizer = list(learner.optimizers.values())[part % 2]
    parameters = [tensor for group in optimizer.param_groups for tensor in group["params"]]
    tensor = parameters[part // 4 % len(parameters)]
    real_step, real_loss, real_check = optimizer.step, learner._loss, learner.check_weights

    def stepped(*args, **kwargs):
        due = is_due()
        if due and place == "gradient" and tensor.grad is not None:
            blow(tensor.grad)
        real_step(*args, **kwargs)
        if due and place == "weights":
            blow(tensor)

    def lost(*args, **kwargs):
        loss, parts = real_loss(*args, **kwargs)
        if is_due():
            factor = torch.ones(1)
            blow(factor)
            loss = loss * factor.sum()
        return loss, parts

    def checked():
        if not broken and trainer.progress.update == update + 1:
            blow(tensor)
        real_check()

    if place == "loss":
        patched.setattr(learner, "_loss", lost)
    elif place == "end":
        patched.setattr(learner, "check_weights", checked)
    else:
        patched.setattr(optimizer, "step", stepped)


def test_a_run_that_diverges_keeps_sound_checkpoints_that_agree_with_its_log(hold, undisturbed, base_model):
    whole = result(undisturbed)
    counts = hold("divergences", lambda count, seed: divergence_campaign(count, seed, whole, base_model), 3)
    assert counts.right == counts.tried
