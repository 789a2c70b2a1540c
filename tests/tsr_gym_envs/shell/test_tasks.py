"""Tasks of the shell: the oracle solves them, their beginnings do not, and splits share none."""

import numpy as np
import pytest

pytest.importorskip("just_bash", reason="needs just-bash: pip install 'tsr-gym[shell]'")

from tests.conftest import seeds
from tsr_gym_envs.shell.families import FAMILIES, Draw
from tsr_gym_envs.shell.files import HOME, beginning, files_from, table_of
from tsr_gym_envs.shell.session import Session, ShellLimits, run
from tsr_gym_envs.shell.tasks import TaskKey, best_plan, draw_number, is_solved, make_task, stated_share, verdict

LIMITS = ShellLimits()


def done(session, *commands):
    for command in commands:
        session = run(session, command, LIMITS).session
    return session


@pytest.mark.parametrize("style", FAMILIES)
@pytest.mark.parametrize("depth", range(1, 9))
@pytest.mark.parametrize("number", seeds(2, 200))
def test_the_plan_solves_a_task_command_by_command(style, depth, number):
    key = TaskKey(number, depth, depth, style)
    task = make_task(key)
    session = Session(task.files)
    assert len(task.plan) == depth
    assert not is_solved(key, task.files)
    shares = [stated_share(key, session.files)]
    for turn, command in enumerate(task.plan):
        assert best_plan(key, session) == task.plan[turn:]
        assert not is_solved(key, session.files)
        session = done(session, command)
        shares.append(stated_share(key, session.files))
    assert is_solved(key, session.files)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert best_plan(key, session) == ()


@pytest.mark.parametrize("style", FAMILIES)
def test_every_family_has_its_plan_and_wrong_guesses(style):
    for number, (family, cost) in enumerate(FAMILIES[style].items()):
        for seed in range(4):
            part = family(Draw(np.random.default_rng([number, seed])))
            assert len(part.plan) == cost, family
            assert set(part.guesses) - set(part.plan), family


def key_of(family, style="sentences", depth=1):
    """Return the key of the first task that consists of a family."""
    for number in range(1000):
        key = TaskKey(number, depth, depth, style)
        if len(make_task(key).parts) == 1 and family in make_task(key).text:
            return key
    raise AssertionError(family)


def test_the_checker_wants_the_task_and_nothing_else():
    key = key_of("number of lines")
    task = make_task(key)
    start = Session(task.files)
    (command,) = task.plan
    log, out = command.split()[3], command.split()[-1]
    other = next(path for path in task.files.paths if path.count("/") == 3 and path != f"{HOME}/{log.split('/')[0]}")
    right = done(start, command)
    assert is_solved(key, right.files)
    for change in (
        f"rm {other}",
        f"echo >> {log}",
        f"chmod 600 {log}",
        "touch new",
        f"mkdir {out}x",
        f"echo 1 >> {out}",
    ):
        assert not is_solved(key, done(right, change).files), change
    assert is_solved(key, done(right, "touch /tmp/x; cd /tmp; x=1").files)
    # What can be undone is undone; what is lost is lost.
    for change in ("touch new; mkdir new2", f"chmod 600 {log}", "cd /tmp", f"echo wrong > {out}"):
        state = done(start, change)
        plan = best_plan(key, state)
        assert is_solved(key, done(state, *plan).files), change
    for change in (f"rm {log}", f"grep x {log} > {log}", f"rm -r {other}"):
        assert best_plan(key, done(start, change)) is None, change


def test_a_repaired_script_must_work_on_other_arguments():
    key = key_of("repair it")
    task = make_task(key)
    cheat = done(Session(task.files), task.parts[0].guesses[0])
    assert stated_share(key, cheat.files) == 1.0
    assert not is_solved(key, cheat.files)


def test_splits_share_no_task_up_to_names():
    forms = {}
    for split in ("train", "valid", "test"):
        rng = np.random.default_rng(5)
        for style in FAMILIES:
            key = TaskKey(0, 1, 2, style)
            numbers = [draw_number(rng, key, split) for _ in range(60)]
            forms.setdefault(split, set()).update(make_task(key._replace(number=number)).form for number in numbers)
    assert not forms["train"] & forms["test"]
    assert not forms["train"] & forms["valid"]
    assert not forms["test"] & forms["valid"]
    assert min(map(len, forms.values())) > 40


def test_the_form_of_a_task_does_not_know_its_names(monkeypatch):
    import tsr_gym_envs.shell.families as families

    key = TaskKey(3, 4, 4, "sentences")
    before = make_task.__wrapped__(key)
    monkeypatch.setattr(families, "NAMES", tuple(reversed(families.NAMES)))
    monkeypatch.setattr(families, "WORDS", tuple(reversed(families.WORDS)))
    renamed = make_task.__wrapped__(key)
    assert renamed.text != before.text
    assert renamed.form == before.form
    assert before.form != make_task(key._replace(number=4)).form


def test_files_are_the_same_value_in_any_order_of_writing():
    contents = {f"{HOME}/d{number % 7}/f{number}": f"{number}\n" for number in range(50)}
    files = beginning(contents, {})
    assert beginning(dict(reversed(contents.items())), {}) == files
    table = table_of(files)
    assert files_from(dict(reversed(table.items()))) == files
    assert verdict.cache_info().maxsize
