"""Names of a board's squares, as in chess."""


def square(row: int, column: int) -> str:
    """Return a square's name: a letter for the column, then the row, counted from 1 at the top left.

    >>> square(0, 0), square(2, 1), square(0, 27)
    ('a1', 'b3', 'ab1')
    """
    letters = ""
    column += 1
    while column:
        column, letter = divmod(column - 1, 26)
        letters = chr(ord("a") + letter) + letters
    return f"{letters}{row + 1}"
