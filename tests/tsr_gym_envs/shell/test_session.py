"""Commands of the shell: sessions, limits, and that nothing of the machine is reached."""

import os
import time

import pytest

from tests.conftest import run_python

pytest.importorskip("just_bash", reason="needs just-bash: pip install 'tsr-gym[shell]'")

from tsr_gym_envs.shell.closed import ABSENT, closed_library
from tsr_gym_envs.shell.files import HOME, beginning
from tsr_gym_envs.shell.session import Refused, Session, ShellLimits, run

LIMITS = ShellLimits()
START = Session(beginning({f"{HOME}/a": "one\ntwo\n", f"{HOME}/b/c": "three\n"}, {}))


def after(*commands, start=START):
    """Return the outcome of the last of several commands."""
    for command in commands:
        outcome = run(start, command, LIMITS)
        start = outcome.session
    return outcome


SESSIONS = [
    (["cd b", "pwd", "cat c"], "three\n"),
    (["cd b", "cd -", "pwd"], f"{HOME}\n"),
    (["x=5; export y=6", "echo $x $y"], "5 6\n"),
    (['f() { for i in 1 2; do echo "$1$i"; done | tac; }', "f q", "declare -f f > /dev/null; f w"], "w2\nw1\n"),
    (["declare -A m; m[k]=v; l=(1 2 3)", "echo ${m[k]} ${l[1]} ${#l[@]}"], "v 2 3\n"),
    (["set -u", "echo $none"], "bash: none: unbound variable\n"),
    (["shopt -s expand_aliases; alias say='echo hi'", "say"], "hi\n"),
    (["readonly r=1", "r=2"], "bash: r: readonly variable\n"),
    (["pushd b", "popd; pwd"], f"~\n{HOME}\n"),
    (["false", "echo $?"], "1\n"),
    (["exit 3", "echo $?"], "3\n"),
    (["exec 3> out; echo kept >&3", "cat out"], "kept\n"),
    (["chmod 600 a; echo more >> a", "stat -c %a a; cat a"], "600\none\ntwo\nmore\n"),
    (["ln -s a l; echo new > l", "cat a; readlink l"], "new\na\n"),
    (["ln -s p q; ln -s q p", "cat p"], "cat: ELOOP: too many levels of symbolic links, open '/home/user/p'\n"),
    (["cp -r b d; rm -r b", "find . -type f | sort"], "./a\n./d/c\n"),
    (["mv a b/z; ls b | wc -l", "cat nowhere/x"], "cat: nowhere/x: No such file or directory\n"),
    (["echo x > /dev/null; cat /dev/null", "diff <(seq 2) <(seq 2) && ls /tmp"], "\n"),
    (["mkdir -p d/e; ln -s .. d/up; echo 1 > d/e/f", "ls -R d"], "d:\ne\nup\n\nd/e:\nf\n"),
    (["ls -R nowhere", "ls -1R b"], "b:\nc\n"),
    (["grep -c . *", "for f in *; do [ -d $f ] && echo $f; done"], "b\n"),
]


@pytest.mark.parametrize(("commands", "output"), SESSIONS)
def test_commands_follow_each_other_as_in_one_shell(commands, output):
    outcome = after(*commands)
    assert (outcome.printed if outcome.printed else outcome.errors) == output


def test_a_session_is_not_changed_by_what_follows_and_equal_states_are_equal_values():
    assert after("rm -r *").session.files.paths == ("/", "/dev", "/dev/null", "/home", HOME, "/tmp")
    assert after("cat a").output == "one\ntwo\n"
    both = after("echo 1 > x", "echo 2 > y").session, after("echo 2 > y", "echo 1 > x").session
    assert both[0] == both[1]
    assert both[0] != after("echo 1 > x", "echo 3 > y").session
    # A command that writes nothing copies nothing.
    assert after("ls; cat a").session.files is START.files


LEAKS = [
    "date", "date +%s%N", "date -d tomorrow", "echo $RANDOM $SRANDOM", "echo $SECONDS $EPOCHSECONDS $EPOCHREALTIME",
    "echo $$ $BASHPID $PPID $!", "shuf -i 1-1000", "shuf -e a b c d e f g h", "shuf -rn 3 a b", "mktemp", "sort -R a",
    "awk 'BEGIN { print rand(), srand(), rand(), systime() }'", "awk 'BEGIN { srand(); print rand() }'",
    "ls -la --full-time", "ls -lt", "stat a", "stat -c '%y %Y %i' a", "find . -mmin -1 -newer a",
    "printf '%(%c)T' -1", "hostname; whoami; id; uname -a; tty; groups", "env; printenv; set; declare -p",
    "time sleep 9", "touch n; stat n", "jq -n 'now, (now | localtime | mktime), $ENV, env'",
    "shuf --random-source=a -i 1-99", "ulimit -a; times; history", "cat <(date) >(date)",
    "TZ=Asia/Tokyo date; LC_ALL=de_DE date", "RANDOM=4; echo $RANDOM; RANDOM=; echo $RANDOM",
]  # fmt: skip
TRY = """
import os, time
os.environ.update(TZ=%r, SECRET="leaked")
time.tzset()
from tsr_gym_envs.shell.files import HOME, beginning
from tsr_gym_envs.shell.session import Session, ShellLimits, run
session = Session(beginning({f"{HOME}/a": "one\\ntwo\\n", f"{HOME}/b/c": "three\\n"}, {}))
for command in %r:
    outcome = run(session, command, ShellLimits(), 7)
    session = outcome.session
    print(repr(outcome[1:]), session.draws)
"""


def test_another_process_at_another_time_gives_the_same_results():
    first = run_python(TRY % ("Asia/Tokyo", LEAKS), hash_seed="1")
    assert first == run_python(TRY % ("UTC", LEAKS), hash_seed="2")
    assert "leaked" not in first
    assert str(time.localtime().tm_year) not in first or time.localtime().tm_year == 2024


def test_random_numbers_continue_from_the_state_and_depend_on_its_seed():
    once = run(START, "echo $RANDOM", LIMITS, 1)
    twice = run(once.session, "echo $RANDOM", LIMITS, 1)
    assert once.printed != twice.printed
    assert twice == run(once.session, "echo $RANDOM", LIMITS, 1)
    assert once.printed != run(START, "echo $RANDOM", LIMITS, 2).printed
    assert after("RANDOM=3; echo $RANDOM").printed == after("echo $RANDOM", "RANDOM=3; echo $RANDOM").printed


OUTSIDE = [
    *sorted(ABSENT), "wget http://localhost", "ssh x", "nc -l 1", "python3 -c 1", "perl -e 1",
    "sqlite3 /etc/passwd .tables", "cat /etc/passwd", "cat /proc/self/environ", "ls /proc /sys /root",
    "cat < /etc/hostname", "echo x > /dev/tcp/1.1.1.1/80", "source /etc/profile", "echo ~root/*", "cd /proc",
    "jq -n 'input_filename, $__prog_args'", "jq -n 'import \"a\" as a; 1'",
    "awk 'BEGIN { system(\"cat /etc/passwd\"); print ENVIRON[\"SECRET\"] }'",
    "awk 'BEGIN { getline x < \"/etc/passwd\"; print x }'",
    "sed -n '1r /etc/passwd' a; sed '1e cat /etc/passwd' a; sed 's/x/id/e' a", "find / -name passwd",
    "echo $((__import__('os').getpid()))", "a=([__import__]=1); echo ${a[().__class__]} $((().__class__))",
    "[[ -e /etc/passwd ]] && echo there", "test -d /proc && echo there", "xargs -a /etc/passwd", "file /bin/sh",
    "base64 /etc/passwd",
]  # fmt: skip


@pytest.mark.parametrize("command", OUTSIDE)
def test_nothing_outside_is_reached(command, monkeypatch):
    monkeypatch.setenv("SECRET", "leaked")
    try:
        outcome = run(START, command, LIMITS)
    except Refused:
        return
    assert not any(word in outcome.output for word in ("root:", "leaked", "there", str(os.getpid()), "PATH=/root"))
    assert outcome.session.files.paths[:2] == START.files.paths[:2]


def test_the_librarys_builtins_open_and_evaluate_nothing():
    module = vars(closed_library().load("interpreter.expansion"))
    for name in ("open", "eval", "exec", "compile", "input"):
        with pytest.raises(OSError, match="nothing outside"):
            module["__builtins__"][name]("1")
    with pytest.raises(ImportError, match="no module"):
        module["__builtins__"]["__import__"]("subprocess")


STOPPED = [
    "seq 1000000000", "printf '%1000000000d' 1", "printf '%*d' 1000000000 1", "echo {1..100000000}", "f() { f; }; f",
    "echo {a..z}{a..z}{a..z}{a..z}", "a=xxxxxxxx; while true; do a=$a$a; done", "while true; do :; done",
    ":(){ :|:& };:", "for ((;;)); do x=1; done", "until false; do true; done", "echo $((2 ** 99999999))",
    "echo $((1 << 99999999))", "sed ':a; s/^/x/; ta' a", "sed ':a; ba' a", "jq -n '[range(1e9)] | length'",
    "jq -n '\"x\" * 1000000000'", "jq -n 'reduce range(1e9) as $i (0; .+1)'", "x='eval \"$x\"'; eval \"$x\"",
    "echo 'source s' > s; source s", "echo 'bash t; bash t' > t; bash t",
    "for i in $(seq 900); do cp -r . /tmp/$i; cat a a a a a > b/$i; done",
    "cat a > big; for i in $(seq 40); do cat big big > c; mv c big; done", "expand -t 99999999 <<< $'\\tx'",
    "x=$(seq 9000); echo ${x//[0-9]/$x}", "awk 'BEGIN { for (i = 0; i < 1e9; i++) x = x \"y\"; print x }'",
    "awk 'BEGIN { printf \"%1000000000d\", 1 }'", "n=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; [[ $n =~ (a+)+b ]]",
    "grep -E '(a|a)*b' <<< aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "sed -E 's/(a*)*$/x/' <<< aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab",
    "awk '/^(a?){30}a{30}$/' <<< aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "x=$(printf 'a%.0s' $(seq 3000)); grep -E 'a*a*a*a*b' <<< $x",
    "shopt -s extglob; x=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; echo ${x##+(+(a))b}",
    "jq -n '\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\" | test(\"(a+)+b\")'", "echo \udc80", "echo \ud800 > x",
    "cat a\0b", "echo " + "x" * 100_001, "(" * 3000, "{ " * 2000 + "echo", "echo " + "$(" * 2000,
]  # fmt: skip


@pytest.mark.parametrize("command", STOPPED, ids=range(len(STOPPED)))
def test_a_command_without_measure_is_stopped(command):
    start = time.process_time()
    try:
        outcome = run(START, command, LIMITS)
    except Refused:
        pass
    else:
        # The syntax is refused, or the command ended itself.
        assert not outcome.is_command or len(outcome.output) < 100
    # Half a second on a free core; far more would be a hang.
    assert time.process_time() - start < 10


OTHERS = [
    "yes", "head -c 1G /dev/zero", "printf 'caf\\xc3\\xa9\\xff' > x; cat x", "cat /dev/urandom", "rm -rf /",
    "rm -rf /* /.*; pwd; ls", "mkfs; dd if=/dev/zero of=/dev/sda; kill -9 1; shutdown now", "echo <<<", "((",
    "a\nb\nc", "é ü ñ 漢字 🙂", "echo '", "\t", "exec ls; exit 9; ls",
]  # fmt: skip


@pytest.mark.parametrize("command", OTHERS, ids=range(len(OTHERS)))
def test_other_hostile_commands_have_results(command):
    outcome = run(START, command, LIMITS)
    assert outcome == run(START, command, LIMITS)


def test_the_limits_are_settings():
    for limits, command in (
        (LIMITS._replace(max_steps=50), "ls"),
        (LIMITS._replace(max_commands=2), "echo 1; echo 2; echo 3"),
        (LIMITS._replace(max_output=10), "seq 9"),
        (LIMITS._replace(max_bytes=1000), "seq 300 > x"),
        (LIMITS._replace(max_bytes=1000), "x=$(seq 300)"),
    ):
        with pytest.raises(Refused, match="stopped"):
            run(START, command, limits)
        assert run(START, command, LIMITS).status == 0


def test_limits_do_not_depend_on_the_caller():
    def deep(depth, command):
        return deep(depth - 1, command) if depth else run(START, command, LIMITS)

    for command in ("[" * 300, "jq -n 'def f: f; f'", "echo " + "$(echo " * 15 + "x" + ")" * 15):
        assert deep(0, command) == deep(300, command)
