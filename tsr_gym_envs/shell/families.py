"""Families of parts of tasks: what is asked, its files, a plan that solves it, and the conditions of the checker."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tsr_gym_envs.shell.files import HOME
from tsr_gym_envs.shell.names import LEVELS, NAMES, WORDS


class Wanted(NamedTuple):
    """What a file is to be.

    Attributes:
        path: Its absolute path.
        content: Its text, without regard to blanks at the ends of lines; None if the file must not exist.
        mode: Its permissions; None for any.
    """

    path: str
    content: str | None
    mode: int | None = None


class Condition(NamedTuple):
    """A condition of the checker: files, or what a command prints in the final state.

    Attributes:
        files: What files are to be.
        command: A command that is run in a copy of the files; None for none.
        prints: What it is to print.
        is_stated: Whether the task states it; the others are the checker's alone.
    """

    files: tuple[Wanted, ...] = ()
    command: str | None = None
    prints: str = ""
    is_stated: bool = True


class Part(NamedTuple):
    """A part of a task.

    Attributes:
        sentence: What is asked.
        contents: The texts of its files by path from the home folder, in the order in which they were drawn.
        plan: Commands in the home folder that fulfil its conditions.
        conditions: What must be true at the end.
        guesses: Plausible commands that are wrong, made of the words of the sentence.
    """

    sentence: str
    contents: dict[str, str]
    plan: tuple[str, ...]
    conditions: tuple[Condition, ...]
    guesses: tuple[str, ...] = ()


class Draw:
    """The random choices of a task; names are handed out once."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self._names = [NAMES[place] for place in rng.permutation(len(NAMES))]

    def name(self) -> str:
        """Return a name that this task does not have yet."""
        return self._names.pop()

    def number(self, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`."""
        return int(self.rng.integers(low, high + 1))

    def among(self, items: Sequence[Any]) -> Any:
        """Return an item."""
        return items[int(self.rng.integers(len(items)))]

    def words(self, num: int) -> list[str]:
        """Return different words."""
        return [WORDS[place] for place in self.rng.permutation(len(WORDS))[:num]]


def _file(path: str, content: str | None, mode: int | None = None) -> Wanted:
    return Wanted(f"{HOME}/{path}", content, mode)


def _becomes(path: str, content: str) -> tuple[Condition, ...]:
    return (Condition((_file(path, content),)),)


def _lines(rows: Sequence[str]) -> str:
    return "".join(f"{row}\n" for row in rows)


def _log(draw: Draw, level: str) -> list[str]:
    """Return the lines of a log, some of them of a level."""
    levels = [level, *(draw.among(LEVELS) for _ in range(draw.number(4, 9)))]
    order = draw.rng.permutation(len(levels))
    return [f"{draw.number(10, 23)}:{draw.number(10, 59)} {levels[place]} {draw.among(WORDS)}" for place in order]


def count(draw: Draw) -> Part:
    """Count the lines of a level in a log."""
    log, out, level = f"{draw.name()}/{draw.name()}.log", f"{draw.name()}.txt", draw.among(LEVELS)
    rows = _log(draw, level)
    return Part(
        f"Write the number of lines of {log} that contain {level} to {out}.",
        {log: _lines(rows)},
        (f"grep -c {level} {log} > {out}",),
        _becomes(out, f"{sum(1 for row in rows if level in row)}\n"),
        guesses=(f"grep {level} {log} > {out}", f"wc -l {log} > {out}", f"grep -c {level} {log} > {log}"),
    )


def select(draw: Draw) -> Part:
    """Copy the lines of a level from a log."""
    log, out, level = f"{draw.name()}/{draw.name()}.log", f"{draw.name()}.txt", draw.among(LEVELS)
    rows = _log(draw, level)
    return Part(
        f"Write the lines of {log} that contain {level} to {out}, in their order.",
        {log: _lines(rows)},
        (f"grep {level} {log} > {out}",),
        _becomes(out, _lines([row for row in rows if level in row])),
        guesses=(f"grep -v {level} {log} > {out}", f"cp {log} {out}", f"grep {level} {log} > {log}"),
    )


def total(draw: Draw) -> Part:
    """Add a column of a CSV file up."""
    table, out, words = f"{draw.name()}.csv", f"{draw.name()}.txt", draw.words(6)
    rows = {word: (draw.number(2, 99), draw.number(2, 99)) for word in words[: draw.number(3, 6)]}
    column = draw.number(2, 3)
    return Part(
        f"Write the sum of column {column} of {table} to {out}.",
        {table: _lines([f"{word},{first},{second}" for word, (first, second) in rows.items()])},
        (f"awk -F, '{{ s += ${column} }} END {{ print s }}' {table} > {out}",),
        _becomes(out, f"{sum(row[column - 2] for row in rows.values())}\n"),
        guesses=(f"cut -d, -f{column} {table} > {out}", f"awk -F, '{{ s += $1 }} END {{ print s }}' {table} > {out}"),
    )


def unique(draw: Draw) -> Part:
    """Sort the lines of a file and drop repeated ones."""
    source, out, words = f"{draw.name()}.txt", f"{draw.name()}.txt", draw.words(5)
    rows = [draw.among(words) for _ in range(draw.number(4, 9))]
    return Part(
        f"Write the lines of {source} to {out}, sorted and each only once.",
        {source: _lines(rows)},
        (f"sort -u {source} > {out}",),
        _becomes(out, _lines(sorted({*rows}))),
        guesses=(f"uniq {source} > {out}", f"sort {source} > {out}", f"sort -u {source} > {source}"),
    )


def configure(draw: Draw) -> Part:
    """Change a setting of a configuration."""
    file, keys = f"{draw.name()}/{draw.name()}.conf", draw.words(draw.number(3, 5))
    values = {key: draw.number(1, 99) for key in keys}
    key, value = draw.among(keys), draw.number(100, 999)
    return Part(
        f"Set {key} to {value} in {file}.",
        {file: _lines([f"{name}={old}" for name, old in values.items()])},
        (f"sed -i 's/^{key}=.*/{key}={value}/' {file}",),
        _becomes(file, _lines([f"{name}={old}" for name, old in {**values, key: value}.items()])),
        guesses=(f"echo {key}={value} > {file}", f"echo {key}={value} >> {file}"),
    )


def rewrite(draw: Draw) -> Part:
    """Replace a word in every CSV file of a folder."""
    folder, (old, new, *others) = draw.name(), draw.words(6)
    texts = {
        f"{folder}/{draw.name()}.{end}": [[old, *(draw.among([old, *others]) for _ in range(3))] for _ in range(2)]
        for end in ("csv", "csv", "txt")
    }
    contents = {path: _lines([",".join(row) for row in rows]) for path, rows in texts.items()}
    after = {path: text.replace(old, new) for path, text in contents.items() if path.endswith(".csv")}
    return Part(
        f"Replace every {old} by {new} in the .csv files of {folder}.",
        contents,
        (f"sed -i 's/{old}/{new}/g' {folder}/*.csv",),
        (Condition(tuple(_file(path, text) for path, text in after.items())),),
        guesses=(f"sed -i 's/{old}/{new}/' {folder}/*.csv", f"sed -i 's/{old}/{new}/g' {folder}/*"),
    )


def permit(draw: Draw) -> Part:
    """Set the permissions of a file."""
    file, mode = f"{draw.name()}/{draw.name()}.sh", draw.among((0o600, 0o640, 0o700, 0o750, 0o755))
    text = f"echo {draw.among(WORDS)}\n"
    return Part(
        f"Give {file} the permissions {mode:o}.",
        {file: text},
        (f"chmod {mode:o} {file}",),
        (Condition((_file(file, text, mode),)),),
        guesses=(f"chmod +x {file}", f"chmod {mode:o} {file.partition('/')[0]}"),
    )


def rename(draw: Draw) -> Part:
    """Change the ending of all files with another one."""
    folder, new = draw.name(), draw.among(("bak", "old", "md"))
    contents = {f"{folder}/{draw.name()}.{end}": f"{draw.among(WORDS)}\n" for end in ("txt", "txt", "csv")}
    moved = {path: path[:-3] + new for path in contents if path.endswith(".txt")}
    wanted = [_file(path, None) for path in moved] + [_file(moved[path], contents[path]) for path in moved]
    return Part(
        f"Rename every .txt file of {folder} so that it ends with .{new}.",
        contents,
        (f'for f in {folder}/*.txt; do mv "$f" "${{f%.txt}}.{new}"; done',),
        (Condition(tuple(wanted)),),
        guesses=(f"mv {folder}/*.txt {folder}/*.{new}", f'for f in {folder}/*.txt; do cp "$f" "$f.{new}"; done'),
    )


def clean(draw: Draw) -> Part:
    """Remove the empty files of a folder."""
    folder = draw.name()
    contents = {
        f"{folder}/{draw.name()}": text for text in ("", f"{draw.among(WORDS)}\n", "", f"{draw.number(2, 9)}\n")
    }
    return Part(
        f"Remove every empty file of {folder}.",
        contents,
        (f"find {folder} -type f -empty | xargs rm",),
        (Condition(tuple(_file(path, None) for path, text in contents.items() if not text)),),
        guesses=(f"rm {folder}/*", f"rm -r {folder}"),
    )


def resolve(draw: Draw) -> Part:
    """Resolve a conflict of two versions."""
    file, words, side = f"{draw.name()}/{draw.name()}", draw.words(4), draw.number(0, 1)
    first, upper, lower, last = words
    ours, theirs = "<" * 7, ">" * 7
    marked = [first, f"{ours} ours", upper, "=======", lower, f"{theirs} theirs", last]
    cuts = (f"/^=======/,/^{theirs}/d", f"/^{ours}/d"), (f"/^{ours}/,/^=======/d", f"/^{theirs}/d")
    return Part(
        f"Resolve the conflict in {file}: keep the {('upper', 'lower')[side]} side.",
        {file: _lines(marked)},
        (f"sed -i -e '{cuts[side][0]}' -e '{cuts[side][1]}' {file}",),
        _becomes(file, _lines([first, (upper, lower)[side], last])),
        guesses=(f"sed -i -e '{cuts[1 - side][0]}' -e '{cuts[1 - side][1]}' {file}", f"sed -i '/^=/d' {file}"),
    )


def repair(draw: Draw) -> Part:
    """Repair a script whose test fails."""
    folder, (right, wrong, word) = draw.name(), draw.among((("+", "-", "sum"), ("*", "+", "product")))
    script, test, first, second = f"{folder}/run.sh", f"{folder}/test.sh", draw.number(3, 9), draw.number(3, 9)
    results = {"+": lambda a, b: a + b, "*": lambda a, b: a * b}
    check = f'[ "$(bash {script} {first} {second})" = {results[right](first, second)} ] && echo pass || echo fail\n'
    return Part(
        f"{script} must print the {word} of its two arguments: repair it, so that `bash {test}` prints pass.",
        {script: f"# Prints the {word}.\necho $(( $1 {wrong} $2 ))\n", test: check},
        (f"sed -i 's/1 {wrong} /1 {right} /' {script}",),
        (
            Condition(command=f"bash {test}", prints="pass\n"),
            # A script that prints the test's number alone passes the test.
            Condition(command=f"bash {script} 17 25", prints=f"{results[right](17, 25)}\n", is_stated=False),
        ),
        guesses=(f"echo echo {results[right](first, second)} > {script}", f"bash {test} > {script}"),
    )


def restore(draw: Draw) -> Part:
    """Bring a file back to an earlier version of its history."""
    repo, file, words = draw.name(), draw.name(), draw.words(6)
    num = draw.number(3, 4)
    version = draw.number(1, num - 1)
    texts = [_lines(words[place : place + 2]) for place in range(num)]
    contents = {f"{repo}/.store/{place + 1}": text for place, text in enumerate(texts)}
    contents |= {f"{repo}/.store/head": f"{num}\n", f"{repo}/{file}": texts[-1]}
    return Part(
        f"{repo}/.store has every version of {repo}/{file} by number, and head has the number of the present version: "
        f"go back to version {version}, in {repo}/{file} and in head.",
        contents,
        (f"cp {repo}/.store/{version} {repo}/{file}", f"echo {version} > {repo}/.store/head"),
        (*_becomes(f"{repo}/{file}", texts[version - 1]), *_becomes(f"{repo}/.store/head", f"{version}\n")),
        guesses=(f"mv {repo}/.store/{version} {repo}/{file}", f"cp {repo}/{file} {repo}/.store/{version}"),
    )


def archive(draw: Draw) -> Part:
    """Move the logs of a folder into a new one."""
    folder, new = draw.name(), draw.name()
    contents = {f"{folder}/{draw.name()}.{end}": f"{draw.among(WORDS)}\n" for end in ("log", "log", "txt")}
    logs = [path for path in contents if path.endswith(".log")]
    moved = [_file(f"{folder}/{new}/{path.rpartition('/')[2]}", contents[path]) for path in logs]
    return Part(
        f"Make the folder {folder}/{new} and move every .log file of {folder} into it.",
        contents,
        (f"mkdir {folder}/{new}", f"mv {folder}/*.log {folder}/{new}/"),
        (Condition((*moved, *(_file(path, None) for path in logs))),),
        guesses=(f"mv {folder}/*.log {folder}/{new}", f"cp {folder}/*.log {folder}/{new}", f"rm {folder}/*.log"),
    )


def merge(draw: Draw) -> Part:
    """Join two tables that are not sorted."""
    left, right, out = (f"{draw.name()}.csv" for _ in range(3))
    keys = [str(key) for key in draw.rng.permutation(90)[: draw.number(3, 5)] + 10]
    rows = {key: (draw.among(WORDS), draw.number(1, 9)) for key in keys}
    other = [keys[place] for place in draw.rng.permutation(len(keys))]
    return Part(
        f"Join {left} and {right} on their first column into {out}, sorted by that column, with commas.",
        {left: _lines([f"{key},{rows[key][0]}" for key in keys]), right: _lines([f"{k},{rows[k][1]}" for k in other])},
        (f"sort {left} > /tmp/{left}", f"sort {right} > /tmp/{right}", f"join -t , /tmp/{left} /tmp/{right} > {out}"),
        _becomes(out, _lines([f"{key},{rows[key][0]},{rows[key][1]}" for key in sorted(keys)])),
        guesses=(f"join -t , {left} {right} > {out}", f"sort {left} > {left}", f"cat {left} {right} > {out}"),
    )


# The commands of the style "words", which a small model learns; the last names are those that a sentence holds.
VERBS = {
    "copy": "cp {0} {1}",
    "rename": "mv {0} {1}",
    "sort": "sort {0} > {1}",
    "count": "grep -c . {0} > {1}",
    "remove": "rm {0}",
    "protect": "chmod 600 {0}",
}


def _words_part(sentence: str, verb: str, draw: Draw, change: Callable[[str, str, list[str]], list[Wanted]]) -> Part:
    """Return a part of a few words, about a file and perhaps a new name."""
    first, second, rows = draw.name(), draw.name(), draw.words(draw.number(1, 4))
    names = sentence.count("{")
    guesses = tuple(form.format(first, second) for form in VERBS.values() if form.count("{") <= names)
    return Part(
        sentence.format(first, second),
        {first: _lines(rows)},
        (VERBS[verb].format(first, second),),
        (Condition(tuple(change(first, second, rows))),),
        guesses=guesses,
    )


def word_copy(draw: Draw) -> Part:
    """Copy a file."""
    return _words_part(
        "copy {} to {}", "copy", draw, lambda a, b, rows: [_file(a, _lines(rows)), _file(b, _lines(rows))]
    )


def word_rename(draw: Draw) -> Part:
    """Rename a file."""
    return _words_part("rename {} to {}", "rename", draw, lambda a, b, rows: [_file(a, None), _file(b, _lines(rows))])


def word_sort(draw: Draw) -> Part:
    """Sort a file into another one."""
    return _words_part(
        "sort {} into {}", "sort", draw, lambda a, b, rows: [_file(a, _lines(rows)), _file(b, _lines(sorted(rows)))]
    )


def word_count(draw: Draw) -> Part:
    """Count the lines of a file."""
    return _words_part(
        "count {} into {}", "count", draw, lambda a, b, rows: [_file(a, _lines(rows)), _file(b, f"{len(rows)}\n")]
    )


def word_remove(draw: Draw) -> Part:
    """Remove a file."""
    return _words_part("remove {}", "remove", draw, lambda a, b, rows: [_file(a, None)])


def word_protect(draw: Draw) -> Part:
    """Make a file private."""
    return _words_part("protect {}", "protect", draw, lambda a, b, rows: [_file(a, _lines(rows), 0o600)])


# By style, the families by the number of commands of their plans.
FAMILIES: dict[str, dict[Callable[[Draw], Part], int]] = {
    "sentences": {
        **dict.fromkeys((count, select, total, unique, configure, rewrite, permit, rename, clean, resolve, repair), 1),
        restore: 2,
        archive: 2,
        merge: 3,
    },
    "words": dict.fromkeys((word_copy, word_rename, word_remove, word_protect, word_sort, word_count), 1),
}
