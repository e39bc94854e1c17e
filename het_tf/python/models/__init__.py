"""The models that `het_tf.models` describes."""

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
