"""Runs the command het in this process."""

import contextlib
import io
from types import SimpleNamespace

from het_tf.python import cli


def het(*words: object, status: int = 0) -> SimpleNamespace:
    """Runs `het WORDS` and checks its exit status; what it wrote is in `out` and `err`."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            got = cli.main([str(word) for word in words])
        except SystemExit as end:
            got = end.code
    done = SimpleNamespace(out=out.getvalue(), err=err.getvalue())
    assert got == status, f"het {words}: {got}\n{done.out}\n{done.err}"
    assert "Traceback" not in done.err
    return done
