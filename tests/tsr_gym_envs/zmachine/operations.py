"""What a child is asked in tests: to answer, to fail, to hang, to end."""

import os
import time


def operations():
    return {"pid": os.getpid, "add": add, "hang": hang, "end": end, "fail": fail, "missing": missing, "hash": words}


def add(one, other):
    return one + other


def hang(seconds):
    time.sleep(seconds)


def end():
    os._exit(3)


def fail():
    raise ValueError("a fault of the library")


def missing():
    import jericho.no_such_module  # noqa: F401


def words():
    return list({"one", "two", "three", "four"})
