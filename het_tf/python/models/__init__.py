"""Models for ranking, retrieval and graphs (public as `het_tf.models`).

They are built from the description of a data set:

    train, valid, test, description = het_tf.data.load("census")
    model = het_tf.models.WideDeep(description)
    model.adapt(train)                                  # the scale of the numeric columns
    model.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True))
    model.fit(train.to_tf(128, shuffle=True), epochs=4)

All are Keras models from the inputs of `description.inputs()`. Rankers give logits, float32 `[B, 1]`, or one
for each label (MMoE, PLE); TwoTower and SASRec give vectors, and make an `Index` that is searched. Their
docstrings have papers and equations, docs/models.md an example of each.

The embedding side is pluggable: "het" reads rows from tables of het_tf, which train them by their own
optimizers; "keras" is `keras.layers.Embedding`, trained by the compiled optimizer: the rest of the model is
the same.

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
from het_tf.python.models.index import Index
from het_tf.python.models.multi_task import PLE, Experts, MMoE, MultiTaskModel
from het_tf.python.models.occurrences import Occurrences
from het_tf.python.models.sasrec import CausalBlock, SASRec
from het_tf.python.models.two_tower import Tower, TwoTower, mixed_negatives
from het_tf.python.models.wide_deep import WideDeep
from het_tf.python.models.xdeepfm import CompressedInteraction, XDeepFM

__all__ = [
    "DIN",
    "DLRM",
    "PLE",
    "AutoInt",
    "CausalBlock",
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
    "Index",
    "LinkGraphSAGE",
    "LinkLoss",
    "MMoE",
    "MultiTaskModel",
    "NumericVectors",
    "Occurrences",
    "PairwiseDots",
    "Part",
    "SASRec",
    "SageLayer",
    "TargetAttention",
    "Tower",
    "TwoTower",
    "WideDeep",
    "XDeepFM",
    "mixed_negatives",
]
