"""`tsr completion`: the scripts that tyro writes know every command, and bash completes with them."""

import shutil
import subprocess
from contextlib import redirect_stdout
from functools import cache
from io import StringIO

import pytest

from tsr_gym.agents import cli


@cache
def script(shell):
    with redirect_stdout(StringIO()) as out:
        assert cli.main(["completion", shell]) == 0
    return out.getvalue()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_knows_every_command_and_its_settings(shell):
    text = script(shell)
    assert [name for name in cli.COMMANDS if f"'{name}'" not in text] == []
    for flag in ("--noise", "--below", "--no-self-test", "--max-queries"):
        assert flag in text


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["tr"], ["train", "tree"]),
        (["train", "--noi"], ["--noise"]),
        (["train", "sokoban", "--noise", ""], ["common", "fresh", "same"]),
        (["webshop", "gen"], ["generate"]),
    ],
    ids=" ".join,
)
def test_bash_completes_commands_settings_and_choices(words, wanted, tmp_path):
    (tmp_path / "tsr.bash").write_text(script("bash"))
    quoted = " ".join(f"'{word}'" for word in ["tsr", *words])
    line = f"source tsr.bash; COMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _tyro_tsr; echo ${{COMPREPLY[@]}}"
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.split()) == wanted
