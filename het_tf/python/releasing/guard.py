"""The process of `het-publish guard`: tests each candidate on a labelled sample before followers serve it.

It follows into live files of its own, in which a candidate comes into force as a released version does with
other followers: when all rows have reached its cut. Then the sample is predicted, with exactly these dense
weights and with rows of the cut or newer. No other candidate comes into force meanwhile.
"""

import os
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from het_tf.python.following import dense, native
from het_tf.python.following import target as targets
from het_tf.python.following.follow import catch_up
from het_tf.python.following.target import LIVE, Target
from het_tf.python.ps.address import parse
from het_tf.python.ps.client import Client
from het_tf.python.ps.errors import ServerError
from het_tf.python.publishing.versions import History, Version, Versions
from het_tf.python.releasing.condition import METRICS, Condition
from het_tf.python.releasing.sample import Predictor, Sample

Say = Callable[[str], None]

_WAIT = 0.25  # seconds between two looks
_PATIENCE = 10.0  # seconds that a candidate's rows may take before a line says why


def copy_of(directory: Path) -> Path:
    """Returns a copy of a SavedModel for the guard, DIRECTORY.guard: hard links, without live files.

    It is made once, and again when the model was exported anew.
    """
    directory = directory.absolute()
    copy = directory.with_name(directory.name + ".guard")
    description = Path("assets", targets.FILE)
    try:
        if (copy / description).read_bytes() == (directory / description).read_bytes():
            return copy
    except FileNotFoundError:
        pass
    targets.read(directory)
    beside = copy.with_name(f".{copy.name}.tmp")
    shutil.rmtree(beside, ignore_errors=True)
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(directory, beside, copy_function=_link, ignore=shutil.ignore_patterns(LIVE))
    beside.rename(copy)
    return copy


def _link(source: str, to: str) -> None:
    try:
        os.link(source, to)
    except OSError:  # another file system, or one without links
        shutil.copy2(source, to)


class Guard:
    """Releases candidates, or holds them.

    Args:
      target: The guard's copy of the SavedModel.
      client: The parameter server.
      sample, predictor: The sample, and the model that predicts it.
      conditions: A candidate that meets one is held.
      say: Prints a line.
    """

    def __init__(
        self,
        target: Target,
        client: Client,
        sample: Sample,
        predictor: Predictor,
        conditions: Sequence[Condition],
        say: Say,
    ) -> None:
        self._target, self._client, self._sample = target, client, sample
        self._predictor, self._conditions, self._say = predictor, conditions, say
        self._versions = Versions(client, target.namespace)
        self._history = History()
        self._judged = 0  # the newest version that was released or held

    def next(self, seconds: float) -> Version | None:
        """Returns the newest candidate that was not judged; waits about so long for one."""
        catch_up(self._versions, self._history, seconds, self._say)
        self._history.forget(10)
        newest = max(self._history.released, default=0)
        waiting = [n for n in self._history.versions if n > max(newest, self._judged)]
        return self._history.versions[max(waiting)] if waiting else None

    def judge(self, version: Version, follower: native.Follower, ended: Callable[[], bool]) -> bool | None:
        """Releases a candidate, or holds it. Returns whether it was released; None: `ended` came first."""
        number = version.number
        try:
            follower.offer(version, dense.bring(self._client, self._target, version))
        except (ValueError, LookupError) as error:
            self._judged = number
            self._say(f"version {number} is held: {error}")
            return False
        if not self._in_force(number, follower, ended):
            return None
        predictions = self._predictor.predictions()
        names = dict.fromkeys(one.metric for one in self._conditions)
        values = {name: METRICS[name](self._sample.labels, predictions) for name in names}
        found = ", ".join(f"{name} {value:.6g}" for name, value in values.items())
        found += f" of {len(predictions):,} examples"
        self._judged = number
        met = [str(one) for one in self._conditions if one.holds(values[one.metric])]
        if met:
            self._say(f"version {number} is held: {found}; hold if {', '.join(met)}")
            return False
        try:
            self._versions.decide("release", lambda history: releasable(history, number), why=found)
        except LookupError as error:
            self._say(f"version {number} is not released: {error}")
            return False
        self._say(f"version {number} is released: {found}")
        return True

    def _in_force(self, number: int, follower: native.Follower, ended: Callable[[], bool]) -> bool:
        begin, told = time.monotonic(), False
        while (status := follower.status())["version"] != number:
            if ended():
                return False
            if not told and time.monotonic() > begin + _PATIENCE:
                told = True
                errors = dict.fromkeys(one["error"] for one in status["partitions"] if one["error"])
                why = "; ".join([*errors, *([status["flip_error"]] if status["flip_error"] else [])])
                self._say(f"version {number} waits for its rows{': ' * bool(why)}{why}")
            time.sleep(_WAIT / 10)
        dense.clean(self._target.live, [dense.name(self._history.versions[number])])
        return True


def releasable(history: History, number: int) -> int:
    """Returns `number` if this version can be released. LookupError: it cannot."""
    newest = max(history.released, default=0)
    if number not in history.versions:
        kept = ", ".join(map(str, history.versions)) or "none"
        raise LookupError(f"there is no version {number}; kept are {kept}")
    if number in history.released:
        raise LookupError(f"version {number} is released already")
    if number < newest:
        raise LookupError(f"version {newest} is released, which is newer; `het-publish rollback` goes back")
    return number


def run(
    directory: Path,
    address: str,
    sample: Sample,
    conditions: Sequence[Condition],
    output: str | None,
    once: bool,
    ended: Callable[[], bool],
    say: Say,
) -> bool:
    """Guards until `ended`.

    Args:
      directory: A SavedModel that can be followed.
      address: The parameter server; the login needs a publisher's rights.
      sample: See `Guard`.
      conditions: See `Guard`.
      output: See `Predictor`.
      once: End after one candidate.
      ended: Asked about four times a second.
      say: Prints a line.

    Returns:
      Whether the last candidate was released.

    Raises:
      ValueError: The directory cannot be followed, or the sample does not suit the model.
      RuntimeError, ConnectionError, OSError: As `native.opened`.
    """
    target = targets.read(copy_of(directory))
    predictor = Predictor(target.directory, sample, output, 4096)
    released = False
    options = native.Options(keep_undo=0)
    with native.opened(target, address, options) as follower, Client(parse(address), 0.0) as client:
        guard = Guard(target, client, sample, predictor, conditions, say)
        say(f"{directory} is guarded: hold if {', '.join(map(str, conditions))}")
        trouble = ""
        while not ended():
            try:
                version = guard.next(_WAIT)
                judged = guard.judge(version, follower, ended) if version else None
                trouble = ""
            except (ServerError, OSError) as error:
                if str(error) != trouble:
                    say(f"{error}; it is tried again")
                trouble = str(error)
                time.sleep(_WAIT)
                continue
            if judged is not None:
                released = judged
                if once:
                    break
    return released
