"""The number of workers divides gradients. Rates that change: tests/plugin/backends/test_training.py."""

import numpy as np
import pytest
import tensorflow as tf
from played_lib import Played
from rules_lib import embedding, learn, rows

import het_tf
from het_tf.python.session import settings

pytestmark = pytest.mark.usefixtures("fresh")


@pytest.mark.parametrize("scale, want", [("mean", -0.25), ("sum", -1.0)])
def test_gradients_are_scaled_by_the_number_of_workers(scale, want, monkeypatch):
    het_tf.init(gradient_scale=scale)
    # Past init(), which wants a real Horovod and a server for its ranks.
    monkeypatch.setattr(settings.current, "workers", Played(ranks=4))
    layer = embedding(het_tf.optimizers.SGD(1.0), initializer="zeros")
    learn(layer, lambda: layer(tf.constant([1])), reduce=True)
    np.testing.assert_allclose(rows([1]), [[want] * 4])
