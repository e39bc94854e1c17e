"""The models that `het_tf.models` describes."""

from het_tf.zoo.models.autoint import AutoInt
from het_tf.zoo.models.base import ClickModel
from het_tf.zoo.models.dcn import DCNv2
from het_tf.zoo.models.deepfm import DeepFM
from het_tf.zoo.models.din import DIN
from het_tf.zoo.models.dlrm import DLRM
from het_tf.zoo.models.graphsage import GraphSAGE, LinkGraphSAGE, LinkLoss
from het_tf.zoo.models.index import Index
from het_tf.zoo.models.multi_task import PLE, MMoE
from het_tf.zoo.models.sasrec import SASRec
from het_tf.zoo.models.two_tower import TwoTower, mixed_negatives
from het_tf.zoo.models.wide_deep import WideDeep
from het_tf.zoo.models.xdeepfm import XDeepFM

__all__ = [
    "DIN",
    "DLRM",
    "PLE",
    "AutoInt",
    "ClickModel",
    "DCNv2",
    "DeepFM",
    "GraphSAGE",
    "Index",
    "LinkGraphSAGE",
    "LinkLoss",
    "MMoE",
    "SASRec",
    "TwoTower",
    "WideDeep",
    "XDeepFM",
    "mixed_negatives",
]
