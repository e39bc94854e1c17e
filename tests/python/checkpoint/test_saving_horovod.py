"""Two ranks: het_tf.callbacks.Checkpoint saves what both have trained, and one process goes on from it."""

import textwrap

import horovod_lib
import numpy as np
import pytest
import tensorflow as tf
from saving_lib import everything, make_model, predictions

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(horovod_lib.missing()), reason=horovod_lib.missing() or "there is Horovod"),
]

# push_bound: each rank holds back what it has trained; pull_bound 0: in the end rank 0 reads what there is.
PROGRAM = textwrap.dedent("""
    import sys, warnings
    import horovod.tensorflow as hvd
    import numpy as np
    import het_tf, saving_lib
    hvd.init()
    het_tf.init(hvd=hvd)
    warnings.simplefilter("error", het_tf.TablesNotSavedWarning)
    directory = sys.argv[1]
    model = het_tf.horovod.distribute(
        saving_lib.make_model("sgd", cache=het_tf.Cache(rows=64, pull_bound=0, push_bound=50))
    )
    ids, labels = saving_lib.data(seed=hvd.rank())
    saves = [het_tf.callbacks.Checkpoint(directory + "/x.weights.h5", save_weights_only=True),
             het_tf.callbacks.Checkpoint(directory + "/x.keras")]
    model.fit(ids, labels, batch_size=16, epochs=2, verbose=0, shuffle=False,
              callbacks=[het_tf.callbacks.Broadcast(), *saves])
    het_tf.horovod.flush_all()
    found = {**saving_lib.everything(), "predictions": saving_lib.predictions(model)}
    if hvd.rank() == 0:
        np.savez(directory + "/found.npz", **found)
    print("rank ended")
""")


def test_two_ranks_save_and_one_process_restores(tmp_path, fresh):
    done = horovod_lib.launch("-c", PROGRAM, tmp_path)
    assert done.returncode == 0 and done.stdout.count("rank ended") == 2, done.stdout[-6000:]
    found = np.load(tmp_path / "found.npz")
    model = make_model("sgd")
    for name in ("x.weights.h5", "x.keras"):
        tf.keras.Model(model.input, model.output).load_weights(str(tmp_path / name))
        restored = everything()
        for column in ("ids", "clocks", "counts", "last_used", "rows"):
            np.testing.assert_array_equal(restored[column], found[column])
        np.testing.assert_allclose(predictions(model), found["predictions"], rtol=1e-4, atol=1e-6)
