"""Wrote what lies beside it, with TensorFlow and Keras 2.15: a model and Adam after two steps."""

from pathlib import Path

import numpy as np
import tensorflow as tf

here = Path(__file__).parent
keras = tf.keras
ids = keras.Input((2,), dtype="int64", name="ids")
rows = keras.layers.Embedding(4, 2, name="item")(ids)
model = keras.Model(
    ids, keras.layers.Dense(1, name="head")(keras.layers.Flatten(name="flat")(rows)), name="m"
)
item = model.get_layer("item")
item.set_weights([np.arange(8, dtype="float32").reshape(4, 2)])
model.get_layer("head").set_weights([np.full((4, 1), 0.5, "float32"), np.zeros(1, "float32")])
model.compile(keras.optimizers.Adam(0.125), "mse")
model.fit(np.array([[0, 1], [2, 3]]), np.ones((2, 1)), batch_size=2, epochs=2, verbose=0)
model.save(here / "model.h5")
model.save_weights(here / "weights")  # a checkpoint of TensorFlow
momentums, velocities = (getattr(model.optimizer, name)[0].numpy() for name in ("_momentums", "_velocities"))
answers = model.predict(np.array([[3, 0]]), verbose=0)
np.savez(here / "expected.npz", rows=item.get_weights()[0], m=momentums, v=velocities, answers=answers)
