"""Click-through models, and graphs (public as `het_tf.models`), built from the description of a data set.

    train, valid, test, description = het_tf.data.load("census")
    model = het_tf.models.WideDeep(description)
    model.adapt(train)                                  # the scale of the numeric columns
    model.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True))
    model.fit(train.to_tf(128, shuffle=True), epochs=4)

All are Keras models from the inputs of `description.inputs()` to logits, float32 `[B, 1]`. The embedding
side is pluggable: "het" reads rows from tables of het_tf, which train them by their own optimizers; "keras"
is `keras.layers.Embedding`, trained by the compiled optimizer: the rest of the model is the same.

`GraphSAGE` and `LinkGraphSAGE` are models of graphs (`het_tf.data.Graph`), with the same two sides.
"""

from het_tf.python.models.aggregators import SageLayer
from het_tf.python.models.autoint import AutoInt, FieldAttention
from het_tf.python.models.base import ClickModel
from het_tf.python.models.blocks import Cross, FactorizationMachine, NumericVectors
from het_tf.python.models.dcn import DCNv2
from het_tf.python.models.deepfm import DeepFM
from het_tf.python.models.din import DIN, TargetAttention
from het_tf.python.models.dlrm import DLRM, PairwiseDots
from het_tf.python.models.embedding_side import EmbeddingSide, Part
from het_tf.python.models.graphsage import GraphSAGE, LinkGraphSAGE, LinkLoss
from het_tf.python.models.multi_task import PLE, Experts, MMoE, MultiTaskModel
from het_tf.python.models.wide_deep import WideDeep
from het_tf.python.models.xdeepfm import CompressedInteraction, XDeepFM

__all__ = [
    "DIN",
    "DLRM",
    "PLE",
    "AutoInt",
    "ClickModel",
    "CompressedInteraction",
    "Cross",
    "DCNv2",
    "DeepFM",
    "EmbeddingSide",
    "Experts",
    "FactorizationMachine",
    "FieldAttention",
    "GraphSAGE",
    "LinkGraphSAGE",
    "LinkLoss",
    "MMoE",
    "MultiTaskModel",
    "NumericVectors",
    "PairwiseDots",
    "Part",
    "SageLayer",
    "TargetAttention",
    "WideDeep",
    "XDeepFM",
]
