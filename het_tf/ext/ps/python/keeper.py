"""Runs one server for as long as the process that asked for it lives. A script of its own, not for import.

    python -I -S keeper.py PARENT-PID DIRECTORY keep|remove GRACE-SECONDS PROGRAM ARGUMENT...

The server's settings come on standard input. The first line on standard output is the server's process id;
the server's own output goes to DIRECTORY/log.

A killed parent cannot stop its server, and a server must not outlive its job. PR_SET_PDEATHSIG is not enough:
it fires when the *thread* that started the server ends. So the keeper, which has one thread, sets that signal
for its own death and watches the parent: when the parent is gone, or SIGTERM comes, it stops the server, by
force after the grace, and removes a private directory. If the server ended by itself and the parent lives,
the directory stays: the parent reads the log.
"""

import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1
WATCH_SECONDS = 0.2


def die_with_keeper() -> None:
    """Runs in the new process before exec. Safe because the keeper has one thread."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main() -> int:
    """Returns the server's exit status."""
    parent, directory, afterwards, grace, *command = sys.argv[1:]
    stopped = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: stopped.append(True))
    status = 127
    try:
        os.umask(0o077)
        with open(os.path.join(directory, "log"), "ab") as log:
            # The server inherits the lock and holds it until it ends.
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            server = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=die_with_keeper)
        print(server.pid, flush=True)
        os.close(1)
        while server.poll() is None and not stopped and os.getppid() == int(parent):
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(WATCH_SECONDS)
        if server.poll() is None:
            server.terminate()
            end = time.monotonic() + float(grace)
            while server.poll() is None and time.monotonic() < end:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    server.wait(WATCH_SECONDS)
            if server.poll() is None:
                server.kill()
        status = server.wait()
    except BlockingIOError:
        sys.exit(f"another server works in {directory}; give each a directory of its own")
    except OSError as error:
        sys.exit(str(error))
    finally:
        # Also after a signal: its sender may be killed before it can tidy up.
        if afterwards == "remove" and (stopped or os.getppid() != int(parent)):
            shutil.rmtree(directory, ignore_errors=True)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
