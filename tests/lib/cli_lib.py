"""Runs the command het in this process."""

import contextlib
import io

from het_tf.python import cli


class Done:
    """The result of a command."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err


def het(*words: object, status: int = 0) -> Done:
    """Runs `het WORDS` and checks its exit status."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            got = cli.main([str(word) for word in words])
        except SystemExit as end:
            got = end.code
    done = Done(got, out.getvalue(), err.getvalue())
    assert got == status, f"het {words}: {got}\n{done.out}\n{done.err}"
    assert "Traceback" not in done.err
    return done
