"""Product ids that never repeat: a seeded bijection from row numbers to "B0" and eight letters or digits."""

from tsr_gym.seeds import derive_seed

LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
HALF = len(LETTERS) ** 4
ROUNDS = 4


def asin_of(seed: int, row: int) -> str:
    """Return the id of a row; different rows below 36**8 have different ids.

    A Feistel network: each round adds to one half of the number a value that depends on the other half only, which can
    be taken away again, so no two numbers meet.

    >>> len({asin_of(0, row) for row in range(1000)})
    1000
    """
    left, right = divmod(row, HALF)
    for key in _keys(seed):
        left, right = right, (left + _mixed(right ^ key)) % HALF
    return "B0" + _digits(left) + _digits(right)


def _keys(seed: int) -> tuple[int, ...]:
    whole = derive_seed("webshop", "asins", seed)
    return tuple((whole >> (15 * number)) & 0x7FFF for number in range(ROUNDS))


def _mixed(value: int) -> int:
    """Return 32 well mixed bits (the finaliser of MurmurHash3)."""
    value = ((value ^ (value >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    value = ((value ^ (value >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return value ^ (value >> 16)


def _digits(value: int) -> str:
    digits = ""
    for _ in range(4):
        value, digit = divmod(value, len(LETTERS))
        digits = LETTERS[digit] + digits
    return digits
