"""Run-length text: a count before a character repeats it, in level rows and in solutions."""


def expand_runs(text: str, max_length: int) -> str:
    """Return the text with its runs written out.

    Raises:
        ValueError: A count is 0 or at the end, or the result is longer than `max_length`; the message begins with the
            column of the result where that happens, counted from 1.

    >>> expand_runs("3#2-$", 64)
    '###--$'
    """
    parts: list[str] = []
    length, count = 0, ""
    for glyph in text:
        if "0" <= glyph <= "9":
            # More digits than the limit has cannot come to an allowed count; they are not converted, only cut.
            count = (count + glyph)[: len(str(max_length)) + 1]
            continue
        run = int(count) if count else 1
        if not 1 <= run <= max_length - length:
            raise ValueError(
                f"column {length + 1}: wanted at most {max_length} columns in runs of 1 or more, got {run}"
            )
        parts.append(glyph * run)
        length += run
        count = ""
    if count:
        raise ValueError(f"column {length + 1}: wanted a character after the count {count}, got the end")
    return "".join(parts)
