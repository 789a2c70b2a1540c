"""Names and folders are checked before torch is imported, and the answer names the choices and what was meant."""

from tests.conftest import run_python
from tsr_gym.agents.learning import advantages
from tsr_gym.agents.learning.estimators import ESTIMATORS

TYPOS = [
    ("train sokobann", "did you mean sokoban? wanted one of countdown, database, frozen_lake, jericho, retri"),
    ("train sokoban --score SokobanScor", "did you mean SokobanScore? wanted one of"),
    ("train sokoban --rater SelfConsistancy", "did you mean SelfConsistency? wanted one of"),
    ("train sokoban --filter keep_uncertan", "did you mean keep_uncertain?"),
    ("train sokoban --search beem", "did you mean beam? wanted one of"),
    ("train sokoban --estimator tree_grop", "did you mean tree_grpo? wanted one of auto, bi_level_gae"),
    ("train sokoban --model mine/modle", "found none; did you mean mine/model?"),
    ("train sokoban --env-set num_boxes=99", "wanted 1 to 8 boxes"),
    ("eval mine/modle", "found none; did you mean mine/model?"),
    ("eval default --env sokobann", "did you mean sokoban?"),
    ("train --resume mine/nope", "wanted the folder of a run with run.toml and a checkpoint"),
    ("audit nope.jsonl", "nope.jsonl: wanted a file or a folder, there is none"),
    ("base-model sokobann --out x", "did you mean sokoban?"),
    ("base-model sokoban --out mine", "mine exists: choose another folder"),
]
# The libraries of learning can be found, but importing one raises.
CODE = """
import contextlib, io, sys
from tsr_gym.agents import cli
for args, wanted in {typos!r}:
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        status = cli.main(args.split())
    assert status == 2, (args, status)
    assert wanted in said.getvalue(), (args, said.getvalue())
    assert said.getvalue().count(chr(10)) == 1, said.getvalue()
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    cli.main(["base-model", "--help"])
print(sorted({{"torch", "transformers", "numba", "matplotlib"}} & set(sys.modules)))
"""


def test_a_typo_is_answered_without_the_libraries_of_learning(tmp_path):
    (tmp_path / "mine" / "model").mkdir(parents=True)
    (tmp_path / "mine" / "model" / "config.json").write_text("{}")
    code = f"import os; os.chdir({str(tmp_path)!r})\n" + CODE.format(typos=TYPOS)
    assert run_python(code).strip() == "[]"


def test_the_names_of_estimators_are_those_that_the_package_gives_to_batches():
    others = {"Backup", "Contrast", "estimate", "tree_value_targets", "turn_value_targets", "value_targets"}
    assert sorted(ESTIMATORS) == sorted(set(advantages.__all__) - others)
