"""`het run --check`, and the files of examples/deploy under launchers that are played."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import launch_lib
import pytest

from het_tf.ext.ps.python.redis_server import LocalServer
from het_tf.ext.workers.python import environments

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[4]
DEPLOY = ROOT / "examples/deploy"
PAGE = (ROOT / "docs/where-it-runs.md").read_text()
TRAIN = """
from het_tf.ext.workers.python import environments
print(repr(environments.find()))
"""
# A launcher of two nodes with two tasks each, or one where it is asked.
PLAYED = """#!{python}
import os, subprocess, sys
words = sys.argv[1:]
each = 1 if "--ntasks-per-node=1" in words or os.environ.get("TASKS") == "1" else 2
while words[0].startswith("-"):
    words = words[2 if words[0] in ("-np", "--host", "-x") else 1 :]
started = []
for rank in range(2 * each):
    slurm = {{"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "1", "SLURM_PROCID": rank, "SLURM_NTASKS": 2 * each,
        "SLURM_LOCALID": rank % each, "SLURM_NODEID": rank // each,
        "SLURM_STEP_TASKS_PER_NODE": f"{{each}}(x2)"}}
    mpi = {{f"OMPI_COMM_WORLD_{{name}}": value for name, value in
        (("RANK", rank), ("SIZE", 4), ("LOCAL_RANK", rank % 2), ("LOCAL_SIZE", 2))}}
    own = slurm if sys.argv[0].endswith("srun") else {{**mpi, "PMIX_NAMESPACE": "99"}}
    started.append(subprocess.Popen(words, env={{**os.environ, **{{n: str(v) for n, v in own.items()}}}}))
sys.exit(max(one.wait() for one in started))
"""


def check(*words: str, status: int = 0, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "het_tf", "run", *words], env=launch_lib.environment(**variables),
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


def test_what_a_process_finds(store: LocalServer) -> None:
    rank = {"HET_RANK": "1", "HET_WORLD_SIZE": "2", "HET_RUN_ID": "a", "HET_PS": store.address}
    found = check("--check", **rank).splitlines()
    assert found[:3] == [f"variable   {name}={rank[name]}" for name in [*rank][:3]]
    assert found[3] == "launcher   het run: rank 1 of 2, 0 of 1 on its node, run a"
    assert f"store      redis://127.0.0.1:{store.port} answers, and has the module het" in found
    assert found[-1].startswith("versions   het_tf ")


FAULTS = [
    (["--check", "--rdzv", "redis://127.0.0.1:1"], {}, "cannot connect to 127.0.0.1:1: Connection refus"),
    (["--check", "nowhere.py"], {}, "program    there is no script nowhere.py"),
    (["--check", "--nnodes", "2", "true"], {}, "job        --nnodes without --rdzv-id"),
    (["--check"], {"HET_RANK": "x"}, "launcher   HET_RANK is 'x'; it must be"),
]


@pytest.mark.parametrize(("words", "variables", "said"), FAULTS)
def test_faults(words: list[str], variables: dict[str, str], said: str) -> None:
    assert said in check(*words, status=1, **variables)


@pytest.fixture
def played(tmp_path: Path) -> Path:
    """A folder with a program, and launchers on its PATH."""
    (tmp_path / "bin").mkdir()
    for name, text in {
        "srun": PLAYED.format(python=sys.executable),
        "mpirun": PLAYED.format(python=sys.executable),
        "het": f'#!/bin/sh\nexec {sys.executable} -m het_tf "$@"\n',
        "python": f'#!/bin/sh\nexec {sys.executable} "$@"\n',
    }.items():
        path = tmp_path / "bin" / name
        path.write_text(text)
        path.chmod(0o755)
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def script(played: Path, name: str, **variables: str) -> list[str]:
    """Runs a script of examples/deploy. Returns its lines."""
    env = launch_lib.environment(**variables)
    env["PATH"] = f"{played / 'bin'}:{env['PATH']}"
    words = ["bash", DEPLOY / name]
    done = subprocess.run(words, env=env, cwd=played, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    commands = (DEPLOY / name).read_text().partition("set -e\n")[2]
    assert commands and commands in PAGE, "the page quotes the script"
    return done.stdout.splitlines()


def places(lines: list[str], launcher: str) -> list[environments.Process]:
    made = re.findall(r"Process\([^)]*\)", "".join(lines))  # ends of lines come when they like
    found = [eval(text, {"Process": environments.Process}) for text in made]
    assert {one.launcher for one in found} == {launcher} and len({one.run_id for one in found}) == 1
    return sorted(found, key=lambda one: one.rank)


def test_slurm_starts_the_ranks(played: Path, store: LocalServer) -> None:
    lines = script(played, "slurm.sh", HET_PS=store.address)
    for rank in (0, 1):
        assert f"launcher   Slurm: rank {rank} of 2, 0 of 1 on its node, run 7.1.0" in lines
    of_ranks = [(one.rank, one.local_rank, one.size, one.local_size) for one in places(lines, "Slurm")]
    assert of_ranks == [(0, 0, 4, 2), (1, 1, 4, 2), (2, 0, 4, 2), (3, 1, 4, 2)]


def test_slurm_starts_het_run(played: Path, store: LocalServer) -> None:
    """The job's name at the store is Slurm's."""
    variables = {"TASKS": "1", "SLURM_NNODES": "2", "SLURM_JOB_ID": "7"}
    script(played, "slurm-restarts.sh", HET_PS=store.address, **variables)
    logs = [(played / f"logs/7/{rank}.log").read_text() for rank in range(8)]
    found = places("".join(logs).splitlines(), "het run")
    assert [(one.rank, one.size, one.local_rank) for one in found] == [(n, 8, n % 4) for n in range(8)]
    assert found[0].run_id.startswith("7.1.0.")


def test_mpirun(played: Path) -> None:
    found = places(script(played, "mpi.sh", HET_PS="redis://nowhere:1"), "mpirun")
    assert [(one.rank, one.size) for one in found] == [(n, 4) for n in range(4)]


def test_kubernetes(store: LocalServer, run: launch_lib.Launches) -> None:
    yaml = pytest.importorskip("yaml", reason="there is no YAML parser")
    text = (DEPLOY / "train-job.yaml").read_text()
    job = yaml.safe_load(text)
    container: dict[str, Any] = job["spec"]["template"]["spec"]["containers"][0]
    given = {one["name"]: one["value"] for one in container["env"]} | {"HET_PS": store.address}
    assert job["spec"]["completionMode"] == "Indexed"
    assert given["HET_WORLD_SIZE"] == str(job["spec"]["parallelism"]) == str(job["spec"]["completions"])
    assert text[text.index("          command:") : text.index("          resources:")] in PAGE
    name = job["metadata"]["name"]
    pods = [{**given, "JOB_COMPLETION_INDEX": str(n), "HOSTNAME": f"{name}-{n}"} for n in range(4)]
    found = check("--check", **pods[3])
    assert f"launcher   Kubernetes: rank 3 of 4, 0 of 1 on its node, run {name}\n" in found
    assert container["command"][:2] == ["het", "run"]
    words = [*container["command"][2:-1], run.script(TRAIN)]
    started = [run(*words, **{**pod, "HET_WORLD_SIZE": "4"}) for pod in pods]
    ranks = places([one.end().out for one in started], "het run")
    assert [(one.rank, one.size) for one in ranks] == [(n, 4) for n in range(4)]


def test_the_page_quotes_a_cluster() -> None:
    found = environments.find({"TF_CONFIG": PAGE.partition("```json\n")[2].partition("\n")[0]})
    assert found is not None and (found.rank, found.size) == (1, 3)
