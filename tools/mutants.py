"""Breaks the code, one mutation of tests/mutants.toml at a time, and shows which tests notice.

    tools/mutants.py              every mutation
    tools/mutants.py ID ...       some
    tools/mutants.py --check      builds nothing: what the list replaces is there, and so are its tests

It works in build/mutants, a clone of HEAD with a build of its own: the caller's files stay as they are, and
what is not committed is not looked at. Run it by the Python that has TensorFlow (`make mutants` does).
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "mutants.toml"
CLONE = ROOT / "build" / "mutants"
LOGS = ROOT / "build" / "log" / "mutants"
PRESET = "release"
SCALE = "0.05"  # of random schedules, as in `make test`
SECONDS = 1200  # for one test


@dataclass(frozen=True)
class Test:
    """PROGRAM:Suite.Name, or PROGRAM:Suite.Name/Parameter, of GoogleTest; FILE::function of pytest."""

    text: str

    @property
    def program(self) -> str | None:
        return None if "::" in self.text else self.text.partition(":")[0]

    @property
    def name(self) -> str:
        return self.text.rpartition(":")[2]

    @property
    def command(self) -> list[str]:
        if self.program is None:
            return [sys.executable, "-m", "pytest", "-v", "-x", "-p", "no:cacheprovider", self.text]
        return [
            f"build/{PRESET}/tests/{self.program}",
            f"--gtest_filter={self.name}:*/{self.name}:*/{self.name}/*",
        ]

    def exists(self) -> bool:
        if self.program is None:
            file = ROOT / self.text.partition("::")[0]
            return file.exists() and f"def {self.name}(" in file.read_text()
        suite, case = self.name.partition("/")[0].split(".")
        words = re.compile(rf"^TEST(_F|_P)?\({suite},\s*{case}\)", re.MULTILINE)
        return any(words.search(path.read_text()) for path in (ROOT / "tests").rglob("*_test.cc"))

    def passes(self, log: Path) -> bool:
        """False: it failed or crashed. RuntimeError: it did not run, or did not end."""
        status = run(self.command, log)
        text = log.read_text(errors="replace")
        if status == 0 and re.search(r"^\[  PASSED  \] [1-9]|^=+ \d+ passed", text, re.MULTILINE):
            return True
        ran = r"^\[ RUN      \] |^tests/\S+::\S+ "
        if not status or not re.search(ran, text, re.MULTILINE):
            raise RuntimeError(f"{self.text} did not {'end' if status is None else 'run'}; see {log}")
        return False


@dataclass(frozen=True)
class Mutant:
    """One entry of the list."""

    id: str
    area: str
    breaks: str
    file: str
    before: str
    after: str
    tests: list[Test]

    def find(self, tree: Path) -> Path:
        """The file in which `before` occurs. LookupError: it occurs nowhere, or several times."""
        counts = {path: path.read_text().count(self.before) for path in sorted(tree.glob(self.file))}
        if sum(counts.values()) != 1:
            raise LookupError(
                f"{self.id}: `before` occurs {sum(counts.values())} times, not once, in {self.file} "
                f"({len(counts)} files); adapt tests/mutants.toml to what the code is now"
            )
        return next(path for path, count in counts.items() if count)

    def caught_by(self, jobs: int) -> list[bool]:
        """Makes the mutation, runs its tests and takes it back. Which of the tests have failed."""
        path = self.find(CLONE)
        text = path.read_text()
        try:
            path.write_text(text.replace(self.before, self.after))
            build(self.tests, jobs, LOGS / f"{self.id}.build.log")
            return [not test.passes(LOGS / f"{self.id}.{n}.log") for n, test in enumerate(self.tests)]
        finally:
            path.write_text(text)


def load() -> list[Mutant]:
    """All mutations."""
    entries = tomllib.loads(LIST.read_text())["mutant"]
    return [Mutant(**{**entry, "tests": [Test(test) for test in entry["tests"]]}) for entry in entries]


def check(mutants: list[Mutant]) -> list[str]:
    """What is wrong with the list, a line each."""
    faults = [] if len({mutant.id for mutant in mutants}) == len(mutants) else ["two mutations have one id"]
    for mutant in mutants:
        try:
            mutant.find(ROOT)
        except LookupError as error:
            faults.append(str(error))
        for test in mutant.tests:
            if not test.exists():
                faults.append(f"{mutant.id}: there is no {test.text}; name the test that is in its place")
    return faults


def run(command: list[str], log: Path, seconds: float | None = SECONDS) -> int | None:
    """The exit status of a command in the clone, whose output goes to `log`; None: its time was over."""
    environment = {**os.environ, "HET_TEST_SCALE": SCALE}
    with log.open("w") as out:
        process = subprocess.Popen(
            command, cwd=CLONE, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)  # with the servers that it has started
            process.wait()


def clone_head(clone: Path) -> None:
    """Makes a clone of the tree, or brings it to HEAD."""
    if not clone.exists():
        subprocess.run(["git", "clone", "-q", "--shared", "--no-checkout", str(ROOT), str(clone)], check=True)
    git = ["git", "-C", str(clone)]
    subprocess.run([*git, "fetch", "-q", str(ROOT), "HEAD"], check=True)
    subprocess.run([*git, "checkout", "-q", "--force", "--detach", "FETCH_HEAD"], check=True)


def renew() -> None:
    """Makes the clone, or brings it to HEAD, and configures its build."""
    clone_head(CLONE)
    if run(["cmake", "--preset", PRESET, f"-DPython3_EXECUTABLE={sys.executable}"], LOGS / "cmake.log", None):
        raise RuntimeError(f"cmake could not configure {CLONE}; see {LOGS / 'cmake.log'}")


def build(tests: list[Test], jobs: int, log: Path) -> None:
    """Builds what the tests need."""
    targets = sorted({test.program or "het_plugin" for test in tests})
    if run(["cmake", "--build", "--preset", PRESET, "-j", str(jobs), "--target", *targets], log, None):
        raise RuntimeError(f"it does not compile; see {log}")


def break_all(mutants: list[Mutant], jobs: int) -> int:
    """Makes each mutation and prints which tests have noticed. Returns how many were missed by one."""
    LOGS.mkdir(parents=True, exist_ok=True)
    renew()
    tests = list(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    print(f"building, and {len(tests)} tests on the code as it is ...", flush=True)
    build(tests, jobs, LOGS / "build.log")
    for test in tests:
        if not test.passes(LOGS / "unbroken.log"):
            raise RuntimeError(f"{test.text} fails without any mutation; see {LOGS / 'unbroken.log'}")
    missed = 0
    for mutant in mutants:
        begin = time.monotonic()
        caught = mutant.caught_by(jobs)
        missed += not all(caught)
        print(f"{mutant.id:16} {time.monotonic() - begin:4.0f} s  {mutant.area}: {mutant.breaks}")
        for test, noticed in zip(mutant.tests, caught, strict=True):
            print(f"{'':16} {'caught by' if noticed else 'NOT NOTICED BY'} {test.text}", flush=True)
    return missed


def main() -> int:
    """The exit status is whether a mutation was missed, or the list is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="of mutations; none: all")
    parser.add_argument("--check", action="store_true", help="only whether the list is true; builds nothing")
    parser.add_argument("-j", "--jobs", type=int, default=2, help="compilers side by side")
    arguments = parser.parse_args()
    mutants = load()
    if arguments.check:
        faults = check(mutants)
        print("\n".join(faults) or f"{len(mutants)} mutations: the code and the tests that they name exist")
        return bool(faults)
    if unknown := set(arguments.ids) - {mutant.id for mutant in mutants}:
        parser.error(f"no mutation {', '.join(unknown)}; there are: {', '.join(one.id for one in mutants)}")
    chosen = [mutant for mutant in mutants if not arguments.ids or mutant.id in arguments.ids]
    missed = break_all(chosen, arguments.jobs)
    print(
        f"{len(chosen) - missed} of {len(chosen)} mutations were caught by every test that is to catch them"
    )
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
