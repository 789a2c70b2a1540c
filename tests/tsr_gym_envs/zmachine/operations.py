"""What a child is asked in tests: to answer, to fail, to hang, to end."""

import os
import time


def operations():
    return {
        **{"pid": os.getpid, "add": add, "hang": hang, "end": end, "fail": fail, "missing": missing, "hash": words},
        **{"play": play, "shot": shot, "unloaded": unloaded},
    }


def add(one, other):
    return one + other


def play(loading, waiting, answer):
    """Answer after loading, and waiting without using the processor."""
    time.sleep(loading)
    yield
    time.sleep(waiting)
    return answer


def hang():
    yield
    while True:
        pass


def end(status):
    yield
    os._exit(status)


def shot(number):
    yield
    os.kill(os.getpid(), number)
    time.sleep(60)


def unloaded():
    os._exit(3)
    yield


def fail():
    raise ValueError("a fault of the library")


def missing():
    import jericho.no_such_module  # noqa: F401


def words():
    return list({"one", "two", "three", "four"})
