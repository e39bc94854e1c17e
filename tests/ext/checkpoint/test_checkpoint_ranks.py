"""What several ranks write: checkpoints, files of Keras, exports, versions; many cases in one launch."""

import math
import warnings
from functools import partial
from unittest import mock

import numpy as np
import pytest
import ranks
import saving_lib
import tensorflow as tf
from checkpoint_lib import fit, keras, model, tables, weights
from floats_lib import MODEL, assert_close
from ranks import refused
from rules_lib import learn
from safetensors.numpy import load as load_arrays

import het_tf
from het_tf import checkpoint
from het_tf.ext.checkpoint.python import reading
from het_tf.ext.checkpoint.python.model import dense
from het_tf.ext.checkpoint.python.ranks import Ranks
from het_tf.ext.ps.python import address
from het_tf.ext.ps.python.client import Client
from het_tf.ext.ps.python.partitions import positions
from het_tf.ext.serving.python.publishing import dense_store
from het_tf.ext.serving.python.publishing.versions import Versions
from het_tf.python.session import collective, native, settings
from het_tf.workers import broadcast, distribute, rank, size

pytestmark = [pytest.mark.slow, ranks.SERVER]


# --- checkpoints -------------------------------------------------------------------------------------------


def whole_model():
    made = distribute(model(whole=True))
    broadcast(made)
    return made


def train(made, begin, end):
    """Each rank has batches of its own."""
    fit(made, 1000 * rank() + begin, 1000 * rank() + end)
    het_tf.flush(all_ranks=True)


def state(made):
    """Rows and dense weights; the same on all ranks."""
    found = tables()["item"]
    found = {name: found[name] for name in ("ids", "clocks", "counts", "rows")}
    found |= {f"w{number}": one for number, one in enumerate(weights(made))}
    return found | {"applies": np.int64(het_tf.Table("item").updates)}


equal = np.testing.assert_equal  # found, expected, what


def save():
    """Two ranks train, save, go on; a second job of them continues from the checkpoint and ends equal."""
    made, place = whole_model(), ranks.place() / "c"
    train(made, 0, 4)
    with mock.patch.object(native, "call", side_effect=native.call) as call:
        path = checkpoint.save(place, made, step=4)
    calls = [one.args[0] for one in call.call_args_list]
    assert calls.count("HetSaveRows") == 8, "each rank writes half of the 16 files"
    assert calls.count("HetMarkDurable") == 1
    saved = state(made)
    train(made, 4, 7)
    later = state(made)
    train(made, 20, 22)
    assert checkpoint.restore(place, made).step == 4
    equal(state(made), saved, "restored")
    train(made, 4, 7)
    equal(state(made), later, "resumed")
    increment = checkpoint.save(place, made, step=7, since="latest", keep=1)
    assert checkpoint.checkpoints(place) == [path, increment]
    assert checkpoint.verify(increment).base is not None
    return later


def fail():
    """An error of one rank is raised on all, no rank waits, and the last checkpoint stays."""
    place = ranks.place() / "fail"
    made = whole_model()
    train(made, 0, 2)
    path = checkpoint.save(place, made, step=1)
    expected = state(made)
    last = size() - 1
    native_call = native.call

    def broken(function, error):
        def call(name, *arguments):
            if name == function and rank() == last:
                raise error
            return native_call(name, *arguments)

        return mock.patch.object(native, "call", call)

    theirs = "" if rank() == last else f"rank {last} could not "
    for function, error, what in (
        ("HetFlush", ConnectionError("no server"), "send what its caches held back: "),
        ("HetSaveRows", OSError(28, "No space left on device"), "write its share: "),
        ("HetSaveRows", MemoryError("out of memory"), "write its share: "),
    ):
        with broken(function, error), refused(type(error), theirs and theirs + what):
            checkpoint.save(place, made, step=2)
        collective.barrier()
        assert list(place.iterdir()) == [path], list(place.iterdir())
    no_answer = broken("HetFlush", TimeoutError("no answer"))
    with no_answer, refused(TimeoutError, theirs and theirs + "send what"):
        het_tf.flush(all_ranks=True)
    for function, what in (("HetStoreInfo", "read the checkpoint: damaged"), ("HetFlush", "send")):
        with broken(function, ValueError("damaged")), refused(ValueError, theirs and theirs + what):
            checkpoint.restore(place, made)
        equal(state(made), expected, function)
    with broken("HetLoadRows", ConnectionError("no server")), refused(ConnectionError, "given up half-way"):
        checkpoint.restore(place, made)
    gone = mock.patch.object(reading, "store_info", side_effect=ConnectionError("gone"))  # rank 0 commits
    with gone, refused(ConnectionError, "gone"):
        checkpoint.restore(place, made)
    checkpoint.restore(place, made)
    equal(state(made), expected, "restored at last")

    # Only rank 0: dense weights, the directory.
    no_space = mock.patch.object(dense, "write", side_effect=OSError(28, "No space left on device", "dense"))
    with no_space, refused(OSError, "" if rank() == 0 else "rank 0 could not end the save: "):
        checkpoint.save(place, made, step=2)
    (place.parent / "file").write_text("")
    collective.barrier()
    for error, words, call in (
        (NotADirectoryError, "is a file", partial(checkpoint.save, place.parent / "file")),
        (FileNotFoundError, "there is no checkpoint", partial(checkpoint.restore, place / "nowhere")),
        (ValueError, "give a later step", partial(checkpoint.save, place, step=1)),
        (ValueError, "different arguments", partial(checkpoint.save, place, step=5 + rank())),
    ):
        with refused(error, words):
            call(model=made)
    assert checkpoint.checkpoints(place) == [path]
    equal(state(made), expected, "in the end")


# --- files of Keras, exports, versions ---------------------------------------------------------------------


def keras_files():
    """het_tf.callbacks.Checkpoint writes files of Keras that have what both ranks have trained."""
    # push: a rank holds back what it has trained; pull 0: in the end rank 0 reads what there is.
    cache = het_tf.Cache(rows=64, staleness=het_tf.Bounds(0, 50), wire="float32")
    made = distribute(saving_lib.make_model("sgd", cache=cache))
    ids, labels = saving_lib.data(seed=rank())
    paths = [str(ranks.place() / name) for name in ("x.weights.h5", "x.keras")]
    saves = [het_tf.callbacks.Checkpoint(path, save_weights_only="h5" in path) for path in paths]
    with warnings.catch_warnings():
        warnings.simplefilter("error", het_tf.python.table.notes.TablesNotSavedWarning)
        made.fit(ids, labels, batch_size=16, epochs=2, verbose=0, shuffle=False, callbacks=saves)
    het_tf.flush(all_ranks=True)
    return {**saving_lib.everything(), "predictions": saving_lib.predictions(made)}


def export():
    """Rank 0 writes an export that has the rows of both ranks, and its error is one of both."""
    features = {"ids": het_tf.FeatureConfig(het_tf.TableConfig("item", 4))}
    layer = het_tf.keras.EmbeddingCollection(features, cache=het_tf.Cache(staleness=math.inf))
    ids = keras.Input((), dtype="int64", name="ids")
    made = keras.Model({"ids": ids}, layer({"ids": ids}))
    mine = {"ids": tf.constant([10 * rank(), 1], tf.int64)}  # which its cache holds back
    learn(layer, lambda: layer(mine, training=True)["ids"], reduce=True)
    path = ranks.place() / "export"
    assert (het_tf.export(made, path, verbose=False) is not None) == (rank() == 0)
    assert (path / "saved_model.pb").exists()  # whichever rank returns
    serve = tf.saved_model.load(str(path)).signatures["serving_default"]
    asked = tf.constant([0, 1, 10, 99], tf.int64)
    stored = het_tf.Table("item").lookup(asked.numpy(), stored=True)
    np.testing.assert_array_equal(serve(ids=asked)["ids"].numpy(), stored)
    assert het_tf.Table("item").size == 3
    # Only rank 0 has something in the way, and the other one does not wait for it.
    with refused((FileExistsError, RuntimeError), "exists"):
        het_tf.export(made, path if rank() == 0 else ranks.place() / "elsewhere")


def publish():
    """Versions while both ranks train, and one with what both held back; rank 0 alone writes."""
    made = distribute(saving_lib.make_model("sgd", cache=het_tf.Cache(rows=64, staleness=math.inf)))
    ids, labels = saving_lib.data(seed=rank())
    publisher = het_tf.callbacks.Publish(every=0.01, keep=1000)
    made.fit(ids, labels, batch_size=2, epochs=2, verbose=0, callbacks=[publisher])
    with Client(address.parse(settings.parameter_server())) as client:
        versions = Versions(client, "").last()
        assert len(versions) > 2 and versions[-1].cut == positions(client, "")
        collective.barrier()
        learn(made, lambda: made(ids[:4], training=True), reduce=True)
        collective.barrier()
        before = positions(client, "")
        collective.barrier()
        assert (het_tf.publish(made) is not None) == (rank() == 0)
        collective.barrier()
        there = Versions(client, "").last(1)[0]
        assert there.number == versions[-1].number + 1 and there.cut == positions(client, "") != before
        content = load_arrays(dense_store.fetch(client, there))
        for name, array in dense.values(dense.weights_of(made)).items():
            np.testing.assert_array_equal(content[name], array)


# --- launches ----------------------------------------------------------------------------------------------

ALONE = (fail, export, publish)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    yield from ranks.launched(tmp_path_factory.mktemp("ranks"), *ALONE, save, keras_files)


@pytest.mark.parametrize("case", ALONE)
def test_both_ranks_are_through(job, case):
    """The assertions are in the case."""
    job.values(case.__name__)


def test_one_process_restores_checkpoint_of_two_ranks(job, fresh):
    later = job.values("save")[0]
    made = model(whole=True)
    fit(made, 0, 1)
    found = checkpoint.restore(job.place / "c", made)
    assert found.step == 7 and found.base is not None and found.partitions == 64
    equal({**state(made), "applies": later["applies"]}, later, "restored")


def test_files_of_keras_have_what_both_ranks_have_trained(job, fresh):
    found, _ = job.values("keras_files")
    made = saving_lib.make_model("sgd")
    for name in ("x.weights.h5", "x.keras"):
        tf.keras.Model(made.input, made.output).load_weights(str(job.place / name))
        restored = saving_lib.everything()
        for column in ("ids", "clocks", "counts", "last_used", "rows"):
            np.testing.assert_array_equal(restored[column], found[column])
        assert_close(saving_lib.predictions(made), found["predictions"], MODEL)


# --- exchanges, with another rank that is played -----------------------------------------------------------


def test_the_first_ranks_result_and_shares(played):
    played.ranks, played.me, played.others = 3, 1, lambda value: [(["of rank 0"], [], "")] * 2
    assert Ranks().first("x", pytest.fail) == "of rank 0"
    assert Ranks().share([1, 2, 3, 4, 5]) == [2, 5]
    assert Ranks(alone=True).size == 1 and len(played.gathered) == 1


class DiskFull(OSError):
    pass


ERRORS = [(DiskFull("no space"), OSError), (FileNotFoundError("no file"), FileNotFoundError),
 (KeyboardInterrupt("key"), RuntimeError)]  # fmt: skip


@pytest.mark.parametrize(("error", "expected"), ERRORS)
def test_an_error_of_another_rank_has_its_type_and_a_key_here_is_told(played, error, expected):
    kinds = [cls.__name__ for cls in type(error).__mro__]
    played.others = lambda value: [([], kinds, str(error))]
    with pytest.raises(expected, match=f"rank 1 could not write: {error}"):
        Ranks().together("write", lambda: 3)
    with pytest.raises(KeyboardInterrupt):
        Ranks().together("wait", lambda: (_ for _ in ()).throw(KeyboardInterrupt()))
    assert len(played.gathered) == 2, "the other rank was told"
