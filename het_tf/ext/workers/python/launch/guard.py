"""Kills the ranks of a launcher that has died. A script of its own, not for import.

    python -I -S guard.py < PIPE

The launcher holds the writing end of the pipe. A rank writes "+GROUP" into it before it becomes its program;
the launcher writes "-GROUP" when nothing of the group is left. At the end of the pipe no launcher is there
any more, and what is left of its groups is killed: also the processes that a rank has started, which
PR_SET_PDEATHSIG would not reach.
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    """Reads until the launcher has ended."""
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        (groups.add if line[0] == "+" else groups.discard)(group)
    for group in groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
