"""Runs one server for as long as the process that asked for it lives. A script of its own, not for import.

    python -I -S keeper.py PARENT-PID DIRECTORY keep|remove GRACE-SECONDS PROGRAM ARGUMENT...

The server's settings come on standard input. The first line on standard output is the server's process id;
the server's own output goes to DIRECTORY/log.

A parent that is killed can stop nothing, and a server must not outlive its job. PR_SET_PDEATHSIG alone would
not do: it fires when the *thread* that started the server ends. So this process, which has one thread, asks
for the signal on its own death, and itself watches the parent: when the parent is gone, or SIGTERM comes, it
stops the server, by force after the grace, and removes the directory if that is private. Not where the server
ended by itself and the parent lives, which will want to read the log.
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
    """In the new process, before it becomes the server. The keeper has one thread, so this is safe."""
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
            # The server inherits the lock, and holds it for as long as it lives.
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
        # Also when it was told to stop: whoever told it may be killed before it can tidy up by itself.
        if afterwards == "remove" and (stopped or os.getppid() != int(parent)):
            shutil.rmtree(directory, ignore_errors=True)
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
