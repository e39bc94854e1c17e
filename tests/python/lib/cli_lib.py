"""For the tests of het-ps and het-ckpt: runs a command in this process."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable


class Done:
    """The result of a command."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err


def run(name: str, main: Callable[[list[str]], int], words: tuple[object, ...], status: int) -> Done:
    """Runs `NAME WORDS` and checks its exit status."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            got = main([str(word) for word in words])
        except SystemExit as end:
            got = end.code
    done = Done(got, out.getvalue(), err.getvalue())
    assert got == status, f"{name} {words}: {got}\n{done.out}\n{done.err}"
    assert "Traceback" not in done.err
    return done
