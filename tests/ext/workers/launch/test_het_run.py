"""`het run` on one machine: what ranks get, who is named when one fails, and that nothing is left."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from launch_lib import Launch, Launches, alive, until

from het_tf.ext.ps.python import programs

pytestmark = pytest.mark.slow
LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


@pytest.mark.parametrize("how", ["script", "program", "module"])
def test_ranks_get_their_variables(run: Launches, how: str) -> None:
    script = run.script("""
        note("began", [dict(os.environ), sys.argv[1:]])
        print(f"hello from {rank}")
    """)
    words = {"script": [script], "program": [sys.executable, script], "module": ["-m", script.stem]}[how]
    done = run("--nproc", 2, "--timeout", 7, *words, "--epochs", "3").end()
    ranks = []
    for rank in (0, 1):
        variables, arguments = done.note("began", rank)["value"]
        assert arguments == ["--epochs", "3"]
        for prefix in ("", "HET_"):
            assert [variables[f"{prefix}{name}"] for name in LAUNCHER] == [str(rank), "2", str(rank), "2"]
        assert (variables["HET_RESTART"], variables["HET_WORKERS_TIMEOUT"]) == ("0", "7")
        assert "TF_CPP_MIN_LOG_LEVEL" not in variables or "TF_CPP_MIN_LOG_LEVEL" in os.environ
        ranks.append((variables["HET_RUN_ID"], variables["HET_PS"], variables["HET_RUN_SECRET"]))
    assert ranks[0] == ranks[1] and len(ranks[0][2]) == 32
    assert ranks[0][2] not in done.out + done.err
    assert not Path(ranks[0][1].removeprefix("unix://")).exists(), "the store outlives the job"
    assert sorted(done.out.splitlines()) == ["[1] hello from 1", "hello from 0"]
    assert done.err.startswith(f"het run: runs the parameter server of this job at {ranks[0][1]} (")


@pytest.mark.parametrize("given", ["--rdzv", "HET_PS"])
def test_a_store_that_is_given_is_used(run: Launches, store, given: str) -> None:
    script = run.script("note('began', os.environ['HET_PS'])")
    words = ["--rdzv", store.address] if given == "--rdzv" else []
    done = run("--nproc", 2, *words, script, **({} if words else {"HET_PS": store.address})).end()
    assert (done.note("began", 1)["value"], done.err) == (store.address, "")


def test_one_rank_needs_no_store(run: Launches) -> None:
    script = run.script("note('began', os.environ.get('HET_PS')); print(sys.stdin.read() == '')")
    done = run(script).end()
    assert (done.note("began", 0)["value"], done.out, done.err) == (None, "True\n", "")


def named(job: Launch, rank: int, why: str, process: int | None = None) -> None:
    """The launcher ends, and says that a rank was the first to fail, and of what."""
    process = process or job.note("began", rank)["pid"]
    job.end(1)
    assert f"het run: rank {rank} (process {process} on " in job.err, job.err
    assert f"failed first: {why}" in job.err, job.err


LOST = "raise ConnectionError('rank 1 has ended, but this rank waits for it in collective gradient')"


def test_the_first_failure_is_named_with_its_traceback(run: Launches) -> None:
    """Rank 0 fails of it, after it, and is not named."""
    script = run.script("""
        def read():
            raise ValueError("the data is bad here")
        if rank == 1:
            note("began")
            read()
        wait("began", [1])
        gone(1)
        raise RuntimeError("rank 1 is lost")
    """)
    job = run("--nproc", 2, script)
    line = next(i for i, line in enumerate(script.read_text().splitlines(), 1) if "raise Value" in line)
    named(job, 1, f"exit status 1: ValueError: the data is bad here ({script.name}, line {line})\n  Trace")
    told = job.err.partition("failed first: ")[2]
    assert told.endswith("  ValueError: the data is bad here\n") and "rank 1 is lost" not in told
    assert "RuntimeError: rank 1 is lost" in job.err, "what rank 0 says passes through"


BEHIND = [
    ('raise OSError("the disk is full")', 1, "OSError: the disk is full"),
    ("pass", 0, "ConnectionError: rank 1 has ended, but this rank waits for it"),  # it ends too soon
]


@pytest.mark.parametrize(("end", "first", "why"), BEHIND)
def test_a_rank_that_ends_behind_those_it_has_left(run: Launches, end: str, first: int, why: str) -> None:
    """Python closes a program slower than the error of the others comes."""
    script = run.script(f"""
        note("began")
        wait("began", [0, 1])
        if rank == 0:
            {LOST}
        gone(0)
        {end}
    """)
    named(run("--nproc", 2, script), first, f"exit status 1: {why}")


def test_of_ranks_that_end_at_once_the_cause_is_named(run: Launches) -> None:
    script = run.script(f"""
        note("began")
        wait("go", [9])
        if rank == 0:
            {LOST}
        raise OSError("the disk of rank 1 is full")
    """)
    job = run("--nproc", 2, script)
    processes = [job.note("began", rank)["pid"] for rank in (0, 1)]
    job.process.send_signal(signal.SIGSTOP)  # it sees both ends in one look
    (run.folder / "go.9.0").touch()
    until(lambda: not any(map(alive, processes)), "the end of both ranks")
    job.process.send_signal(signal.SIGCONT)
    named(job, 1, "exit status 1: OSError: the disk of rank 1 is full", processes[1])


def test_a_killed_rank_ends_all_and_their_children(run: Launches) -> None:
    """Rank 0 ignores SIGTERM, and has a child: SIGKILL must reach its group."""
    script = run.script("""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen(["sleep", "1000"])
        note("began", child.pid)
        wait()
    """)
    job = run("--nproc", 2, script)
    first, second = job.note("began", 0), job.note("began", 1)
    os.kill(second["pid"], signal.SIGKILL)
    named(job, 1, "killed by SIGKILL\n")
    for one in (first, second):
        assert not alive(one["pid"])
        until(lambda one=one: not alive(one["value"]), "the end of a rank's child")


def test_a_stopped_rank_is_the_cause(run: Launches) -> None:
    script = run.script("""
        note("began")
        if rank == 0:
            wait("stopped", [1])
            sys.exit("rank 1 is silent")
        wait()
    """)
    job = run("--nproc", 2, script)
    process = job.note("began", 1)["pid"]
    os.kill(process, signal.SIGSTOP)
    (run.folder / "stopped.1.0").touch()
    job.end(1)
    assert f"het run: rank 1 (process {process} on " in job.err
    assert " is stopped (SIGSTOP), and is killed; then rank 0 (" in job.err
    assert "failed first: exit status 1: rank 1 is silent\n" in job.err
    assert not alive(process)


# No more often than asked: test_nodes.py.
def test_all_ranks_begin_anew(run: Launches) -> None:
    """The store outlives the restart; the run has another id, so that no rank meets one of before."""
    script = run.script("""
        note("began", [os.environ["HET_RUN_ID"], os.environ["HET_PS"]])
        wait("began", [0, 1])
        if restart == 0:
            wait() if rank == 0 else print("once")
            sys.exit(7)
        print(f"rank {rank} is done")
    """)
    job = run("--nproc", 2, "--max-restarts", 2, "--log-dir", "logs", script).end()
    values = {(rank, of): job.note("began", rank, of)["value"] for rank in (0, 1) for of in (0, 1)}
    assert len({store for _, store in values.values()}) == 1
    assert values[0, 0][0] == values[1, 0][0] != values[0, 1][0] == values[1, 1][0]
    assert "failed first: exit status 7\n  log: logs/1.log\nhet run: all ranks begin anew (1 of 2" in job.err
    assert job.out == "rank 0 is done\n"
    logs = [(run.folder / f"logs/{rank}.log").read_text() for rank in (0, 1)]
    assert logs == ["rank 0 is done\n", "once\nrank 1 is done\n"], "each restart goes behind the former"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 1), (signal.SIGINT, 130)])
def test_signals_reach_all_ranks(run: Launches, number: signal.Signals, status: int) -> None:
    """Each has time to save: it ends by itself."""
    script = run.script(f"""
        def save(*_):
            note("saved")
            sys.exit()
        signal.signal({int(number)}, save)
        note("began")
        wait()
    """)
    job = run("--nproc", 2, "--max-restarts", 3, script)
    processes = [job.note("began", rank)["pid"] for rank in (0, 1)]
    job.process.send_signal(number)
    job.end(status)
    assert f"het run: ended by {number.name}" in job.err
    assert [job.note("saved", rank)["pid"] for rank in (0, 1)] == processes


def test_nothing_is_left_of_a_killed_launcher(run: Launches) -> None:
    script = run.script("""
        child = subprocess.Popen(["sleep", "1000"])
        note("began", [child.pid, os.environ["HET_PS"]])
        wait()
    """)
    job = run("--nproc", 2, script)
    notes = [job.note("began", rank) for rank in (0, 1)]
    job.process.kill()
    for one in notes:
        for process in (one["pid"], one["value"][0]):
            until(lambda process=process: not alive(process), "the end of a rank and of its child")
    store = Path(notes[0]["value"][1].removeprefix("unix://"))
    until(lambda: not store.parent.exists(), "the end of the store")


BAD_INPUT = [
    (["--nproc", "0", "x.py"], {}, 2, "'0' is not a whole number of 1 or more"),
    (["--nnodes", "2:1", "x.py"], {}, 2, "'2:1' is not MIN or MIN:MAX"),
    (["--nnodes", "two", "x.py"], {}, 2, "'two' is not MIN or MIN:MAX"),
    (["--rdzv-id", "a b", "x.py"], {}, 2, "'a b' is not a word of letters"),
    (["--timeout", "0", "x.py"], {}, 2, "'0' is not a number of seconds"),
    ([], {}, 1, "there is no program; write `het run"),
    (["x.py"], {}, 1, "there is no script x.py"),
    (["no_program"], {}, 1, "no_program is no program that can be executed, on PATH"),
    (["here"], {}, 1, "here is no program that can be executed; a Python script runs by `python here`"),
    (["--nnodes", "2", "--rdzv-id", "a", "true"], {}, 1, "several nodes meet at a store: start one"),
    (["--nnodes", "2", "--rdzv", "redis://127.0.0.1:1", "true"], {}, 1, "--nnodes without --rdzv-id"),
    (["--rdzv", "redis://127.0.0.1:1", "true"], {}, 1, "connect to 127.0.0.1:1: Connection refused"),
    (["--rdzv", "http://a", "true"], {}, 1, "write redis://"),
    (["true"], {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2", "HET_RUN_ID": "a"}, 1, "rank 0 of horovodrun"),
    (["true"], {"HET_RANK": "0", "HET_WORLD_SIZE": "1", "HET_RUN_ID": "a"}, 1, "rank 0 of het run,"),
    (["true"], {"HET_RANK": "0", "HOROVOD_RANK": "1"}, 1, "HET_RANK is '0' and HOROVOD_RANK is '1'"),
    (["true"], {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_NAMESPACE": "1"}, 1,
     "mpirun has started 4 processes, of which each would run a job of its own"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "variables", "status", "said"), BAD_INPUT)
def test_bad_input(run: Launches, words: list[str], variables: dict[str, str], status: int, said: str):
    (run.folder / "here").touch()
    done = run(*words, **variables).end(status)
    assert said in done.err and "Traceback" not in done.err


def test_a_store_without_the_module_is_refused(run: Launches) -> None:
    path = run.folder / "plain"
    command = [programs.find_server(), "--port", "0", "--unixsocket", str(path), "--save", ""]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=run.folder)
    try:
        until(path.exists, "the socket")
        assert "has not loaded the het module" in run("--rdzv", f"unix://{path}", "true").end(1).err
    finally:
        server.kill()
        server.wait()
