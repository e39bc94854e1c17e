"""Models for ranking, retrieval and graphs.

They are built from the description of a data set:

    train, valid, test, description = het_tf.data.load("census")
    model = het_tf.models.WideDeep(description)
    model.adapt(train)                                  # the scale of the numeric columns
    model.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True))
    model.fit(train.to_tf(128, shuffle=True), epochs=4)

All are Keras models with the inputs of `description.inputs()`. Rankers return logits, float32 `[B, 1]`, or
one for each label (MMoE, PLE); TwoTower and SASRec return vectors, and make an `Index` to search. Their
docstrings have papers and equations, docs/models.md an example of each.

The embedding side is pluggable: "het" reads rows from tables of het_tf, which train them by their own
optimizers; "keras" is `keras.layers.Embedding`, trained by the compiled optimizer: the rest of the model is
the same.

`GraphSAGE` and `LinkGraphSAGE` are models of graphs (`het_tf.data.Graph`), with the same two sides.
"""

from het_tf.zoo.models import *  # noqa: F403
from het_tf.zoo.models import __all__ as __all__
