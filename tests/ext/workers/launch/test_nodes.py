"""Several `het run` that meet at one store: ranks over nodes, failures, nodes that come and go."""

import os
import secrets
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from launch_lib import Launch, Launches, alive, until

from het_tf.ext.ps.python.address import parse
from het_tf.ext.ps.python.node import Node as Server
from het_tf.ext.ps.python.redis_server import LocalServer

pytestmark = pytest.mark.slow
Node = Callable[..., Launch]


@pytest.fixture
def node(run: Launches, store: LocalServer) -> Node:
    """Starts a node of one job; the first argument is the script."""
    job = secrets.token_hex(4)

    def start(script: object, *words: object, timeout: float = 2, job: str = job) -> Launch:
        return run("--rdzv", store.address, "--rdzv-id", job, "--timeout", timeout, *words, script)

    start.job = job  # type: ignore[attr-defined]
    return start


def keys(store: LocalServer, node: Node) -> list[str]:
    with Server.of(parse(store.address)) as server:
        return [key for key in server.scan(f"*{node.job}*") if not key.endswith(":round")]  # type: ignore[attr-defined]


@pytest.fixture
def train(run: Launches) -> Path:
    """A script that says how it began, and ends after `go`."""
    return run.script("""
        note("began", [os.environ["HET_RUN_ID"], os.environ["WORLD_SIZE"], os.environ["LOCAL_RANK"]])
        wait("go", [0])
    """)


def go(run: Launches, restart: int = 0) -> None:
    (run.folder / f"go.0.{restart}").touch()


def test_ranks_are_numbered_over_nodes(run: Launches, node: Node, train: Path, store: LocalServer) -> None:
    first = node(train, "--nproc", 3, "--nnodes", 2)
    until(lambda: keys(store, node), "the first node")
    second = node(train, "--nproc", 1, "--nnodes", 2)
    ranks = [first.note("began", rank) for rank in range(4)]
    assert len({one["value"][0] for one in ranks}) == 1
    assert [one["value"][1:] for one in ranks] == [["4", str(local)] for local in (0, 1, 2, 0)]
    go(run)
    first.end()
    second.end()
    assert keys(store, node) == []
    # The same id again, while the last word of the former job is still there.
    for path in run.folder.glob("began.*"):
        path.unlink()
    again = [node(train, "--nnodes", 2) for _ in range(2)]
    assert again[0].note("began", 1)["value"][0] != ranks[0]["value"][0]
    for one in again:
        one.end()


def test_a_failure_is_told_and_ends_ranks_on_all_nodes(run: Launches, node: Node) -> None:
    script = run.script("""
        note("began", os.environ["HET_RUN_ID"])
        wait("began", [0, 1])
        if rank == 1 and restart < 2:
            raise ValueError("the data is bad here")
        if restart < 2:
            wait()
    """)
    jobs = [node(script, "--nnodes", 2, "--max-restarts", 1) for _ in range(2)]
    for job in jobs:
        job.end(1)
        assert job.err.count("failed first: exit status 1: ValueError: the data is bad here") == 2
        assert job.err.count("het run: all ranks begin anew (1 of 1 failures)") == 1
    ids = [jobs[0].note("began", rank, restart)["value"] for restart in (0, 1) for rank in (0, 1)]
    assert ids[0] == ids[1] != ids[2] == ids[3]
    assert not any(alive(jobs[0].note("began", rank, of)["pid"]) for rank in (0, 1) for of in (0, 1))


@pytest.mark.parametrize("victim", [0, pytest.param(1, marks=pytest.mark.long)])
def test_a_node_that_dies_is_replaced(run, node: Node, train: Path, store: LocalServer, victim: int) -> None:
    """Also the one that leads."""
    words = (train, "--nnodes", 2, "--max-restarts", 1)
    jobs = [node(*words)]
    until(lambda: keys(store, node), "the first node")
    jobs.append(node(*words))
    ranks = [jobs[0].note("began", rank)["pid"] for rank in (0, 1)]
    jobs[victim].process.kill()
    until(lambda: not alive(ranks[victim]), "the end of the dead node's rank")
    jobs.append(node(*words))
    jobs[2].note("began", 0, 1)
    go(run, 1)
    jobs[2].end()
    assert "is lost: no sign of it for 2 s\n" in jobs[1 - victim].end().err


@pytest.mark.long
def test_a_job_goes_on_with_fewer_nodes(run: Launches, node: Node, train: Path) -> None:
    jobs = [node(train, "--nnodes", "1:2", "--max-restarts", 1) for _ in range(2)]
    jobs[0].note("began", 1)
    jobs[0].process.kill()
    assert jobs[1].note("began", 0, 1)["value"][1] == "1"
    go(run, 1)
    jobs[1].end()


def test_a_node_may_join(run: Launches, node: Node, train: Path) -> None:
    """All begin anew with it, which is no failure."""
    first = node(train, "--nnodes", "1:2")
    assert first.note("began", 0)["value"][1] == "1"
    second = node(train, "--nnodes", "1:2")
    assert first.note("began", 1, 1)["value"][1] == "2"
    go(run, 1)
    second.end()
    assert "het run: the node " in first.end().err and " has come\n" in first.err


def test_a_node_too_many_is_refused(run: Launches, node: Node, train: Path) -> None:
    first = node(train, "--nnodes", 1)
    first.note("began", 0)
    assert f"1 nodes are in job '{node.job}' (" in node(train, "--nnodes", 1).end(1).err  # type: ignore[attr-defined]
    go(run)
    first.end()


def test_nobody_joins(run: Launches, node: Node) -> None:
    alone = node("true", "--nproc", 3, "--nnodes", "2:4", "--join-timeout", "0.5").end(1)
    assert f"1 of 2 nodes have come to job '{node.job}' within --join-timeout 0.5 s: " in alone.err  # type: ignore[attr-defined]
    assert "with 3 processes; start `het run` with --rdzv-id" in alone.err


DIFFERENT = [
    (["--nnodes", "2:3"], "--nnodes differs between the nodes of job"),
    (["--nnodes", "2", "--max-restarts", "3"], "--max-restarts differs"),
    (["--nnodes", "2", "-m"], "the program differs"),
]


@pytest.mark.parametrize(("words", "said"), DIFFERENT)
def test_nodes_agree_on_their_arguments(run: Launches, node: Node, store: LocalServer, words, said) -> None:
    first = node("true", "--nnodes", 2)
    until(lambda: keys(store, node), "the first node")
    program = "false" if "-m" in words else "true"
    assert said in node(program, *(word for word in words if word != "-m")).end(1).err
    first.process.send_signal(signal.SIGINT)
    first.end(130)


def test_a_signal_to_one_node_ends_the_others(node: Node, train: Path) -> None:
    jobs = [node(train, "--nnodes", 2) for _ in range(2)]
    ranks = [jobs[0].note("began", rank)["pid"] for rank in (0, 1)]
    jobs[1].process.terminate()
    jobs[1].end(1)
    assert " was ended by SIGTERM\n" in jobs[0].end(1).err
    assert not any(map(alive, ranks))


@pytest.mark.long
def test_a_stopped_node_is_lost_and_ends_its_ranks_when_it_goes_on(node: Node, train: Path) -> None:
    jobs = [node(train, "--nnodes", 2) for _ in range(2)]
    ranks = [jobs[0].note("began", rank)["pid"] for rank in (0, 1)]
    os.kill(jobs[1].process.pid, signal.SIGSTOP)
    assert "is lost: no sign of it" in jobs[0].end(1).err
    os.kill(jobs[1].process.pid, signal.SIGCONT)
    jobs[1].end(1)
    assert not any(map(alive, ranks))
