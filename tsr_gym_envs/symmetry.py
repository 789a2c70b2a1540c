"""The eight rotations and reflections of a board."""


def symmetries(rows: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the eight rotations and reflections of a rectangle of characters.

    >>> len(set(symmetries(("ab", "cd"))))
    8
    """
    turned = tuple("".join(column) for column in zip(*rows, strict=True))
    views = []
    for view in (rows, turned):
        mirrored = tuple(row[::-1] for row in view)
        views += [view, mirrored, view[::-1], mirrored[::-1]]
    return views
