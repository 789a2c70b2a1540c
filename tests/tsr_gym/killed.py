"""Code that is stopped at any of its lines, as a kill stops a process."""

import sys


class Killed(BaseException):
    """No handler of errors catches it, as none catches a kill."""


def killed_at(number, do, names):
    """Do something and stop it before the given line of the files of these names; return whether it came that far."""
    lines = 0

    def trace(frame, event, arg):
        nonlocal lines
        if not frame.f_code.co_filename.endswith(names):
            return None
        if event == "line":
            lines += 1
            if lines == number:
                raise Killed
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        do()
    except Killed:
        return True
    finally:
        sys.settrace(before)
    return False
