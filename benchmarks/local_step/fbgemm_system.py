"""FBGEMM's table-batched embeddings on the CPU: ids are row numbers, and nothing is hashed."""

from __future__ import annotations

import fbgemm_gpu
import torch
import workload
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)

OPTIMIZERS = {
    "sgd": EmbOptimType.EXACT_SGD,
    "adagrad": EmbOptimType.EXACT_ADAGRAD,
    "row_wise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD,
}


class System:
    version = f"FBGEMM {fbgemm_gpu.__version__}, PyTorch {torch.__version__}"

    def __init__(self, rows: int, dim: int, optimizer: str, threads: int) -> None:
        torch.set_num_threads(threads)
        self._table = SplitTableBatchedEmbeddingBagsCodegen(
            [(rows, dim, EmbeddingLocation.HOST, ComputeDevice.CPU)],
            optimizer=OPTIMIZERS[optimizer],
            learning_rate=0.01,
            device=torch.device("cpu"),
        )
        weights = self._table.split_embedding_weights()[0]
        for ids, values in workload.initial_rows(rows, dim):
            weights[ids[0] : ids[-1] + 1] = torch.from_numpy(values)
        self._ids = [torch.from_numpy(ids) for ids in workload.pool(rows)]
        self._offsets = torch.arange(workload.IDS + 1)  # bags of one id
        self._gradient = torch.from_numpy(workload.gradient(dim))

    def lookup(self, number: int) -> None:
        with torch.no_grad():
            self._table(self._ids[number], self._offsets)

    def train(self, number: int) -> None:
        self._table(self._ids[number], self._offsets).backward(self._gradient)
