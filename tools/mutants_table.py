"""Makes random one-line mutants of het_tf/core and het_tf/ext and says which C++ tests kill which.

    tools/mutants_table.py --minutes 30        a piece: what is not yet known, until the time is over
    tools/mutants_table.py --report [--tests]  the table of what is known

All mutants are compiled at once (tools/mutation.py). A run of every suite, a file of tests, without a mutant
learns what each reaches; a mutant is tried against those alone. A test that fails, crashes or does not end
has killed it.

It works in build/mutants-table, a clone of HEAD with a build of its own: what is not committed is left out.
Results are appended to one file, of one state of the tests: after a change `--results` names another.
A mutant's identity is its text and place, not its line: the same seed draws the same mutants then.
"""

import argparse
import dataclasses
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutants import clone_head
from mutation import HEADER, Mutant, draw, find, rewrite

ROOT = Path(__file__).resolve().parent.parent
CLONE = ROOT / "build" / "mutants-table"
BUILD = CLONE / "build" / "release"
PLAN = CLONE / "build" / "plan.json"  # the drawn mutants and what suites reach, of the clone's commit
RESULTS = ROOT / "build" / "mutants_table.jsonl"
HEADER_NAME = "het_tf/core/mutant.h"
TARGETS = ("het_core", "het_ps", "het_capi")
SCALE = "0.01"  # of random schedules
MEMORY = 3 << 30  # bytes that a test may use: a mutant may allocate for ever
LONG = 1  # seconds from which on a suite ends with its first failure
HANGS = 2  # after so many suites that did not end, a mutant is known well enough
CRASHES = 5  # and a suite after so many crashes


# --- the clone ----------------------------------------------------------------------------------------
def run(command: list[str], log: Path | None = None) -> int:
    """The exit status of a command in the clone."""
    environment = {**os.environ, "CCACHE_BASEDIR": str(CLONE)}
    with open(log or os.devnull, "w") as out:
        return subprocess.run(
            command, cwd=CLONE, env=environment, stdout=out, stderr=subprocess.STDOUT
        ).returncode


def renew() -> None:
    """Makes the clone, or brings it to HEAD, and configures its build: -O1 for what is mutated."""
    clone_head(CLONE)
    with (CLONE / "CMakeLists.txt").open("a") as file:
        file.writelines(f"target_compile_options({target} PRIVATE -O1 -w)\n" for target in TARGETS)
    (CLONE / HEADER_NAME).write_text(HEADER)
    (CLONE / "build").mkdir(exist_ok=True)
    options = [
        f"-DPython3_EXECUTABLE={sys.executable}",
        "-DHET_INSTALL_IN_TREE=OFF",
        "-DHET_BUILD_GPU_OPS=OFF",
    ]
    if run(["cmake", "--preset", "release", *options], log := CLONE / "build" / "cmake.log"):
        raise RuntimeError(f"cmake could not configure {CLONE}; see {log}")


def candidates(areas: list[str]) -> Iterator[Mutant]:
    """Every mutant of the .cc files of the areas. A folder that is compiled as one file is read as one."""

    def wanted(name: str) -> bool:
        return name.endswith(".cc") and any(name.startswith(f"het_tf/{area}/") for area in areas)

    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        words, file = shlex.split(entry["command"]), Path(entry["file"])
        if not any(f"/{target}.dir/" in f"/{words[words.index('-o') + 1]}" for target in TARGETS):
            continue
        names = re.findall(r'#include "([^"]+)"', file.read_text()) if file.suffix == ".cxx" else [str(file)]
        if any(wanted(os.path.relpath(name, CLONE)) for name in names):
            yield from find(file, words[1 : words.index("-o")], CLONE, wanted)


def write(mutants: dict[int, Mutant]) -> None:
    """The clone's files with these mutants. A file that stays as it is keeps its time."""
    for file in sorted({m.file for m in mutants.values()}):
        path = CLONE / file
        text = subprocess.check_output(["git", "-C", str(CLONE), "show", f"HEAD:{file}"])
        of_file = [(number, m) for number, m in mutants.items() if m.file == file]
        text = b'#include "%b"\n#line 1\n' % HEADER_NAME.encode() + rewrite(text, of_file)
        if path.read_bytes() != text:
            path.write_bytes(text)


def build(mutants: dict[int, Mutant], targets: set[str], jobs: int) -> dict[int, Mutant]:
    """Builds the tests. The mutants without those that do not compile."""
    for attempt in range(6):
        write(mutants)
        log = CLONE / "build" / f"build-{attempt}.log"
        if not run(["ninja", "-C", str(BUILD), "-k", "0", "-j", str(jobs), *sorted(targets)], log):
            return mutants
        lines = re.findall(r"^(\S+?):(\d+):\d+: error: ", log.read_text(errors="replace"), re.MULTILINE)
        wrong = {(os.path.relpath(BUILD / file, CLONE), int(line)) for file, line in lines}
        kept = {
            number: m
            for number, m in mutants.items()
            if not any((m.file, line) in wrong for line in range(m.line, m.line + m.lines + 1))
        }
        if len(kept) == len(mutants):
            break
        emptied = {m.file for m in mutants.values()} - {m.file for m in kept.values()}
        subprocess.run(["git", "-C", str(CLONE), "checkout", "-q", "HEAD", "--", *emptied], check=True)
        print(f"  {len(mutants) - len(kept)} mutants in lines that do not compile are dropped", flush=True)
        mutants = kept
    raise RuntimeError(f"it does not compile; see {log}")


# --- suites ---------------------------------------------------------------------------------------------
@dataclass
class Suite:
    """The tests of one file, as ctest runs them."""

    name: str
    command: list[str]
    environment: dict[str, str]
    folder: str
    seconds: float = 0
    tests: list[str] = dataclasses.field(default_factory=list)
    reached: set[int] = dataclasses.field(default_factory=set)

    def run(
        self, variables: dict[str, str], limit: float, without: Iterable[str] = ()
    ) -> tuple[int | None, str]:
        """Its exit status, None if it did not come to an end, and what it printed."""
        excluded = "-" + ":".join(without) if without else ""
        words = [word + excluded * word.startswith("--gtest_filter=") for word in self.command]
        environment = {**os.environ, **self.environment, "HET_TEST_SCALE": SCALE, **variables}
        log = CLONE / "build" / "test.log"
        with log.open("w") as out:
            process = subprocess.Popen(
                [*words, "--gtest_brief=0", *["--gtest_fail_fast"] * (self.seconds > LONG)],
                cwd=self.folder,
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        end = time.monotonic() + limit
        try:
            while process.poll() is None and time.monotonic() < end and used_by(process.pid) < MEMORY:
                try:
                    process.wait(0.1)
                except subprocess.TimeoutExpired:
                    pass
            return process.returncode, log.read_text(errors="replace")
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)  # with the servers that it has started
            except ProcessLookupError:
                pass
            process.wait()

    def killers(self, number: int) -> tuple[list[str], bool]:
        """The tests that fail with a mutant, and whether all came to an end. After a crash the rest runs."""
        killed: set[str] = set()
        ran: list[str] = []
        for _ in range(CRASHES):
            status, text = self.run({"HET_MUTANT": str(number)}, 10 * self.seconds + 3, ran)
            now, failed = tests_in(text, "RUN     "), tests_in(text, " FAILED ")
            killed.update(failed)
            if status == 0 or (failed and " ran. (" in text):
                return sorted(killed), True
            killed.update(now[-1:] or [f"{self.name} as a whole"])
            ran += now
            if status is None or not now or set(self.tests) <= set(ran):
                break
        return sorted(killed), status is not None


def used_by(process: int) -> int:
    """Bytes of memory; 0 if there is no such process."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def tests_in(text: str, word: str) -> list[str]:
    return list(dict.fromkeys(re.findall(rf"^\[ {word} \] ([A-Za-z][\w/]*\.[\w/]+)", text, re.MULTILINE)))


def suites(pattern: str) -> tuple[list[Suite], set[str]]:
    """Suites whose names the pattern finds, and their programs; one not yet built has no command."""
    listed = json.loads(subprocess.check_output(["ctest", "--show-only=json-v1"], cwd=BUILD))["tests"]
    found, programs = {}, set()
    for test in listed:
        properties = {one["name"]: one["value"] for one in test["properties"]}
        name = re.sub(r"_\d+$", "", test["name"])  # a shard of it
        (label,) = set(properties["LABELS"]) - {"waits"}
        if label in ("threads", "exact") or name.startswith("fuzz/") or not re.search(pattern, name):
            continue
        programs.add(label)
        variables = dict(line.split("=", 1) for line in properties["ENVIRONMENT"] if "GTEST_" not in line)
        command = test.get("command", [])
        if not command or any(word.startswith("--gtest_filter") for word in command):
            found[name] = Suite(name, command, variables, properties["WORKING_DIRECTORY"])
    return list(found.values()), programs


def learn(suite: Suite) -> bool:
    """Runs a suite without a mutant: its tests, its time and what it reaches. False: it fails."""
    reached = CLONE / "build" / "reached"
    reached.unlink(missing_ok=True)
    begin = time.monotonic()
    status, text = suite.run({"HET_MUTANTS_REACHED": str(reached)}, 600)
    suite.seconds = time.monotonic() - begin
    suite.tests = tests_in(text, "RUN     ")
    if reached.exists():
        suite.reached = {int(line) for line in reached.read_text().split()}
    return status == 0 and bool(suite.tests)


# --- the whole ------------------------------------------------------------------------------------------
def plan(options: argparse.Namespace) -> tuple[dict[int, Mutant], list[Suite]]:
    """The mutants, built, and what each suite reaches; as it was, unless HEAD or options have changed."""
    head = subprocess.check_output(["git", "-C", str(ROOT), "rev-parse", "HEAD"], text=True).strip()
    key = [head, options.seed, options.count, options.area, options.suites]
    if PLAN.exists() and (kept := json.loads(PLAN.read_text()))["key"] == key:
        chosen = [Suite(**{**one, "reached": set(one["reached"])}) for one in kept["suites"]]
        return {int(number): Mutant(**one) for number, one in kept["mutants"].items()}, chosen
    renew()
    found = list(candidates(options.area))
    mutants = dict(enumerate(draw(found, options.seed, options.count)))
    print(f"{len(mutants)} of {len(found)} mutants are compiled ...", flush=True)
    mutants = build(mutants, suites(options.suites)[1], options.jobs)
    chosen = []
    for suite in suites(options.suites)[0]:
        if not suite.command:  # a program of its own, which is no GoogleTest
            continue
        if learn(suite):
            chosen.append(suite)
        else:
            print(
                f"  {suite.name} fails without a mutant and is left out; see {CLONE / 'build' / 'test.log'}"
            )
    chosen.sort(key=lambda suite: suite.seconds)
    as_words = [{**dataclasses.asdict(suite), "reached": sorted(suite.reached)} for suite in chosen]
    of_number = {number: dataclasses.asdict(m) for number, m in mutants.items()}
    PLAN.write_text(json.dumps({"key": key, "mutants": of_number, "suites": as_words}))
    return mutants, chosen


def load(path: Path) -> tuple[dict[str, dict[str, Any]], dict[str, list[str]]]:
    """What a file of results knows: mutants with the tests that killed them, by suite; tests by suite."""
    mutants: dict[str, dict[str, Any]] = {}
    tests: dict[str, list[str]] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        record = json.loads(line)
        if "suite" in record:
            tests[record["suite"]] = record["tests"]
        else:
            one = mutants.setdefault(record["id"], {**record, "killers": {}})
            one["text"] = record["text"]
            one["killers"] |= record["killers"]
    return mutants, tests


def piece(options: argparse.Namespace) -> None:
    """Tries mutants, one after the other, until the time is over."""
    end = time.monotonic() + options.minutes * 60
    mutants, chosen = plan(options)
    known, tests = load(options.results)
    options.results.parent.mkdir(parents=True, exist_ok=True)
    with options.results.open("a") as out:
        for suite in chosen:
            if tests.get(suite.name) != suite.tests:
                print(json.dumps({"suite": suite.name, "tests": suite.tests}), file=out, flush=True)
        for number, mutant in mutants.items():
            done = known.get(mutant.id, {"killers": {}, "hangs": 0})
            left = [s for s in chosen if number in s.reached and s.name not in done["killers"]]
            if done.get("hangs", 0) >= HANGS or (mutant.id in known and not left):
                continue
            killers, hangs = {}, done.get("hangs", 0)
            for suite in left:
                killers[suite.name], ended = suite.killers(number)
                hangs += not ended
                if hangs >= HANGS:
                    break
            record = {"id": mutant.id, "text": str(mutant), "hangs": hangs, "killers": killers}
            print(json.dumps(record), file=out, flush=True)
            if time.monotonic() > end:
                print("the time is over; the next piece goes on")
                return
    print("every mutant is known")


def plain(test: str) -> str:
    """A test without its parameters: that of every row of a table."""
    suite, _, case = test.partition(".")
    parts = suite.split("/")
    return f"{parts[0] if parts[-1].isdigit() else parts[-1]}.{case.partition('/')[0]}" if case else test


def report(path: Path, each_test: bool) -> str:
    """The table: by suite, or by test, how many mutants it kills and how many it kills alone; survivors."""
    mutants, tests = load(path)
    killed: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    survivors, unreached = [], []
    for one in mutants.values():
        of_suite = {suite: of for suite, of in one["killers"].items() if of}
        of_test = {plain(test) for of in of_suite.values() for test in of}
        killers = of_test if each_test else set(of_suite)
        killed.update(killers)
        if len(killers) == 1 and one["hangs"] < HANGS:
            alone.update(killers)
        if not killers:
            (survivors if one["killers"] else unreached).append(one["text"])
    names = {plain(test) for of in tests.values() for test in of} if each_test else set(tests)
    rows = sorted(names | set(killed), key=lambda name: (-alone[name], -killed[name], name))
    dead = len(mutants) - len(survivors) - len(unreached)
    return "\n".join(
        [
            f"{len(mutants)} mutants: {dead} killed, {len(survivors)} survive, {len(unreached)} not reached",
            f"{'killed':>7} {'alone':>6}",
            *(f"{killed[name]:7} {alone[name]:6}  {name}" for name in rows),
            *(["survivors", *(f"  {text}" for text in sorted(survivors))] if survivors else []),
            *(["not reached", *(f"  {text}" for text in sorted(unreached))] if unreached else []),
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--report", action="store_true", help="only the table of what is known")
    parser.add_argument("--tests", action="store_true", help="with --report: by test, not by suite")
    parser.add_argument("--minutes", type=float, default=30, help="of this piece; a build may make it longer")
    parser.add_argument("--count", type=int, default=400, help="mutants that are drawn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--area", nargs="*", default=["core", "ext"], help="folders of het_tf")
    parser.add_argument("--suites", default="", help="of ctest, by a regular expression; all")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("-j", "--jobs", type=int, default=2, help="compilers side by side")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and a test that runs ends, too
    if not options.report:
        piece(options)
    print(report(options.results, options.tests))
    return 0


if __name__ == "__main__":
    sys.exit(main())
