"""Engine: the scripted one says what it is told, so that everything else can be tested without a model."""

from tests.agents.scripted_engine import ScriptedEngine
from tsr_gym.agents.policies.engine import Completion, Engine
from tsr_gym.agents.policies.transformers_engine import TransformersEngine


def test_a_script_answers_every_seed_of_every_prompt_in_order():
    engine = ScriptedEngine(lambda prompt, seed: (*prompt, seed))
    assert engine.generate([(1, 2), (3,)], seeds=[[7, 8], [9]]) == [
        [Completion((1, 2, 7), (0.0,) * 3, "stop"), Completion((1, 2, 8), (0.0,) * 3, "stop")],
        [Completion((3, 9), (0.0,) * 2, "stop")],
    ]


def test_a_script_counts_its_calls_and_has_no_weights_to_replace():
    engine = ScriptedEngine(lambda prompt, seed: ())
    engine.generate([(1,)], seeds=[[1, 2, 3]])
    engine.load_weights([("weight", 1)])
    engine.generate([], seeds=[])
    assert engine.calls == 2


def test_both_engines_offer_what_the_protocol_names():
    names = {name for name, value in vars(Engine).items() if callable(value) and not name.startswith("_")}
    assert names == {"generate", "load_weights", "abort"}
    assert all(names <= set(dir(kind)) for kind in (ScriptedEngine, TransformersEngine))
