"""The set-up scripts: what is missing is one clear line that names the remedy."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"
BASICS = ("awk", "bash", "cat", "dirname", "env", "grep", "mkdir", "rm", "sed", "tail", "tee")


@pytest.fixture
def machine(tmp_path):
    """A PATH with nothing but the basics, and a function that adds programs to it."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in BASICS:
        (programs / name).symlink_to(shutil.which(name))

    def add(name, script):
        (programs / name).write_text(f"#!{shutil.which('bash')}\n{script}\n")
        (programs / name).chmod(0o755)

    def run(*command):
        how = {"cwd": tmp_path, "env": {"PATH": str(programs)}, "timeout": 600}
        return subprocess.run([str(part) for part in command], capture_output=True, text=True, **how)

    add("python3.11", f'exec {sys.executable} "$@"')
    run.add = add
    return run


def errors(done):
    return [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("error: ")]


LACKS = '[ "${{@: -1}}" != {} ] && echo installed'
MISSING = {
    "a package": ("system_packages.sh python3.11", LACKS.format("g++"), r"apt-get install g\+\+$"),
    "a compiler on another system": ("system_packages.sh python3.11", "", r"g\+\+ is missing.*Remedy"),
    "Python": ("system_packages.sh python3.99", "", "python3.99 is missing"),
    "this Python": ("make_venv.sh python3.9 venv", "", "Python 3.9.2"),
}


@pytest.mark.parametrize("missing", MISSING)
def test_what_is_missing_is_named_with_its_remedy(machine, missing):
    command, dpkg, message = MISSING[missing]
    if dpkg:
        machine.add("dpkg-query", dpkg)
        machine.add("id", "echo 1000")
    machine.add("python3.9", 'if [ "$1" = -V ]; then echo Python 3.9.2; else exit 1; fi')
    done = machine(*f"{TOOLS}/{command}".split())
    assert done.returncode == 1
    (error,) = errors(done)
    assert re.search(message, error)


def test_missing_packages_are_installed_with_sudo(machine, tmp_path):
    """And those that are there need neither root nor apt."""
    machine.add("id", "echo 1000")
    for dpkg in ("echo installed", LACKS.format("ninja-build")):
        machine.add("dpkg-query", dpkg)
        done = machine(TOOLS / "system_packages.sh", "python3.11")
        assert done.returncode == 0, done.stderr
        machine.add("sudo", f'echo "$@" >>{tmp_path}/sudo')
    assert (tmp_path / "sudo").read_text().splitlines()[-1].split()[-1] == "ninja-build"


@pytest.mark.slow
def test_an_environment_has_the_commands_and_stays_with_its_tree(machine, tmp_path):
    done = machine(TOOLS / "make_venv.sh", "python3.11", tmp_path / "venv")
    assert done.returncode == 0, done.stderr
    packages = os.pathsep.join(path for path in sys.path if "site-packages" in path)
    called = subprocess.run(
        [tmp_path / "venv/bin/het", "--help"], env={"PYTHONPATH": packages},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "usage: het " in called.stdout
    # `make wheel VENV=` of another tree sent that tree's Python to this one.
    venv, other = tmp_path / "venv", tmp_path / "other"
    (pth,) = venv.glob("lib/python3.11/site-packages/het_tf_tree.pth")
    assert pth.read_text() == f"{TOOLS.parent}\n"
    (other / "het_tf").mkdir(parents=True)
    (other / "het_tf/__init__.py").touch()
    pth.write_text(f"{other}\n")
    done = machine(TOOLS / "make_venv.sh", "python3.11", venv)
    assert done.returncode == 0 and pth.read_text() == f"{other}\n"
    assert f"{venv} is the environment of {other}, and stays so; rm {pth}" in done.stderr
    (other / "het_tf/__init__.py").unlink()  # a tree that is gone needs it no more
    assert machine(TOOLS / "make_venv.sh", "python3.11", venv).returncode == 0
    assert pth.read_text() == f"{TOOLS.parent}\n"


FAILED = [("--build", "the linker has said above", "missing"), ("-S", "apt-get install g\\+\\+", "linker")]


@pytest.mark.slow
@pytest.mark.parametrize(("fails", "told", "not_told"), FAILED)
def test_a_failed_build_names_what_failed(tmp_path, fails, told, not_told):
    """Defect: `make wheel` said "A missing compiler" of a library that did not link."""
    cmake = tmp_path / "cmake"
    cmake.write_text(f'#!/bin/sh\n[ "$1" != {fails} ]\n')
    cmake.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build", "--build-base", tmp_path / "build"],
        cwd=ROOT, env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HET_PORTABLE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    (error,) = errors(done)
    assert error.startswith(f"error: the native build failed: cmake {fails} ")
    assert re.search(told, error) and not_told not in error


@pytest.mark.parametrize(("options", "builds"), [((), True), (("-DHET_WERROR=ON",), False)])
def test_warnings_are_errors_where_somebody_asks(tmp_path, options, builds):
    """Defect: GCC 12 warns of its own headers for AVX-512, and `make build HET_MARCH=native` failed."""
    (tmp_path / "warns.cc").write_text("int f() { int unused; return 0; }\n")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(warns LANGUAGES CXX)\n"
        f"include({ROOT}/cmake/HetCompile.cmake)\n"
        "add_library(warns OBJECT warns.cc)\ntarget_link_libraries(warns PRIVATE het_flags)\n"
    )
    build = tmp_path / "build"
    subprocess.run(["cmake", "-S", tmp_path, "-B", build, *options], capture_output=True, check=True)
    done = subprocess.run(["cmake", "--build", build], capture_output=True, text=True, check=False)
    assert "unused" in done.stdout + done.stderr
    assert (done.returncode == 0) == builds


def make(*arguments, cwd=ROOT, env=None):
    if shutil.which("make") is None:
        pytest.skip("there is no make")
    outside = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    words, env = ["make", *map(str, arguments)], outside | (env or {})
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True)


def test_developers_and_ci_ask_for_errors_and_users_do_not():
    presets = json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]
    asks = {one["name"] for one in presets if one["cacheVariables"].get("HET_WERROR") == "ON"}
    assert asks == {"debug", "check", "threads", "fuzz"}
    assert "HET_WERROR" not in (ROOT / "setup.py").read_text()
    for ci in ("", "true"):
        assert ("-DHET_WERROR=ON" in make("-n", "build", f"CI={ci}", "-o", "setup").stdout) == bool(ci)


def test_second_make_does_no_setup_work():
    """The stamp files of the environment that runs the tests are those that make looks for."""
    venv = Path(sys.prefix)
    if not list(venv.glob(".het-*")):
        pytest.skip("this environment was not made by `make setup`")
    done = make("-n", "venv", f"VENV={os.path.relpath(venv, ROOT)}")
    assert done.returncode == 0 and "make_venv.sh" not in done.stdout


def test_stage_shows_log_tail_and_remedy(machine, tmp_path):
    """And the output itself where that is asked for; either way with the status."""
    work = "for i in {1..99}; do echo line $i; done; echo 'error: x is missing. Remedy: y'; exit 7"
    machine.add("work", work)
    done = machine(TOOLS / "stage.sh", "work", "the work (because)", "work")
    assert done.returncode == 7
    assert done.stdout.splitlines() == ["==> the work (because)"]
    assert "line 99" in done.stderr and "line 1\n" not in done.stderr
    assert "error: x is missing. Remedy: y" in done.stderr
    assert "build/log/work.log" in done.stderr.splitlines()[-1]
    assert "line 1\n" in (tmp_path / "build" / "log" / "work.log").read_text()
    done = machine(TOOLS / "stage.sh", "--show", "work", "the work (because)", "work")
    assert done.returncode == 7 and "line 1\n" in done.stdout


def test_failed_stage_does_not_stop_others(tmp_path):
    """Defect: the first stage that fails ends `make test`, and hides the results of the others."""
    (tmp_path / "Makefile").write_text(
        f"all: first second third\nfirst third:\n\t@{TOOLS}/stage.sh $@ $@ true\n"
        f"second:\n\t@{TOOLS}/stage.sh second second false\ntest:\n\t@{TOOLS}/stages.sh all\n"
    )
    done = make("test", cwd=tmp_path)
    assert done.returncode != 0
    table = [line.split() for line in done.stdout.splitlines()]
    assert [line[::4] for line in table if line[:1] in (["first"], ["second"], ["third"])] == [
        ["first"], ["second", "FAILED"], ["third"],
    ]  # fmt: skip
    assert "FAILED: second (" in done.stderr
    (tmp_path / "Makefile").write_text((tmp_path / "Makefile").read_text().replace(" false", " true"))
    done = make("test", cwd=tmp_path)
    assert done.returncode == 0 and "FAILED" not in done.stdout + done.stderr


@pytest.mark.parametrize("goal", ["test-stages", "test-fast-stages", "test-all-stages"])
def test_all_test_stages_run_although_all_fail(tmp_path, goal):
    """Defect: a recipe has two stages of tests, and the second does not run where the first fails."""
    (tmp_path / "stage").write_text(
        '#!/bin/bash\n[ "$1" != --show ] || shift\necho "$1" >>"$NAMES"\n'
        '[[ "$1" =~ ^(system|horovod|servers|build.*|venv.*|notebooks-venv|wheel|portable)$ ]]\n'
    )
    (tmp_path / "stage").chmod(0o755)
    environments = ("venv", "venv220", "venvdocs", "venvrelease", "venvbackends")
    for name in environments:
        (tmp_path / name).mkdir()
    done = make(
        "--keep-going", goal, f"STAGE={tmp_path}/stage",
        *(f"{name.upper()}={tmp_path / name}" for name in environments),
        env={"NAMES": str(tmp_path / "names")},
    )  # fmt: skip
    assert done.returncode != 0
    built = re.compile("system|horovod|servers|build|venv|notebooks-venv|wheel|portable")
    ran = {name for name in (tmp_path / "names").read_text().split() if not built.match(name)}
    of_test = "check threads exact python"
    expected = {
        "test-stages": of_test,
        "test-fast-stages": "check python",
        "test-all-stages": f"{of_test} full redis8 het-ps-redis8 valkey het-ps-valkey python-long tf220"
        " symbols benchmarks notebooks previous instructions installed site backend-torch backend-jax",
    }[goal]
    assert ran == set(expected.split())


CHANGES = [
    ("HEAD", "docs/page.md", "test-documents"),
    ("HEAD", "het_tf/code.py", "test test-backends release-check"),
    ("no-such-commit", "docs/page.md", "test test-backends release-check"),
    ("", "docs/page.md", "test test-backends release-check"),
]


@pytest.mark.parametrize(("base", "file", "targets"), CHANGES)
def test_a_change_of_documents_alone_runs_what_can_see_it(tmp_path, base, file, targets):
    for name in (".ci/run", "het_tf/code.py", "docs/page.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    for command in ("init -q", "add -A", "-c user.name=A -c user.email=a@b commit -qm One"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    (tmp_path / file).write_text("changed")
    (tmp_path / "make").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "make").chmod(0o755)
    env = {**os.environ, "CI_BASE": base, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([tmp_path / ".ci/run"], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == targets.split()
