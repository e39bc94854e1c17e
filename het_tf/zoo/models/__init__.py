"""The models that `het_tf.models` describes."""

from het_tf.zoo.models.aggregators import SageLayer
from het_tf.zoo.models.autoint import AutoInt, FieldAttention
from het_tf.zoo.models.base import ClickModel
from het_tf.zoo.models.blocks import Cross, FactorizationMachine, NumericVectors
from het_tf.zoo.models.dcn import DCNv2
from het_tf.zoo.models.deepfm import DeepFM
from het_tf.zoo.models.din import DIN, TargetAttention
from het_tf.zoo.models.dlrm import DLRM, PairwiseDots
from het_tf.zoo.models.embedding_side import EmbeddingSide, Part
from het_tf.zoo.models.graphsage import GraphSAGE, LinkGraphSAGE, LinkLoss
from het_tf.zoo.models.index import Index
from het_tf.zoo.models.multi_task import PLE, Experts, MMoE, MultiTaskModel
from het_tf.zoo.models.occurrences import Occurrences
from het_tf.zoo.models.sasrec import CausalBlock, SASRec
from het_tf.zoo.models.two_tower import Tower, TwoTower, mixed_negatives
from het_tf.zoo.models.wide_deep import WideDeep
from het_tf.zoo.models.xdeepfm import CompressedInteraction, XDeepFM

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
