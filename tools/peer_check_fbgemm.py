"""Forward and backward through an FBGEMM table in host memory; run by tools/peers.sh --check."""

import fbgemm_gpu
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)

table = SplitTableBatchedEmbeddingBagsCodegen(
    [(1000, 4, EmbeddingLocation.HOST, ComputeDevice.CPU)],
    optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
    learning_rate=0.1,
    device=torch.device("cpu"),
)
table.split_embedding_weights()[0].fill_(1.0)
ids = torch.tensor([1, 2, 2, 999])
offsets = torch.arange(5)

losses = []
for _ in range(3):
    loss = (table(ids, offsets) ** 2).sum()
    losses.append(loss.item())
    loss.backward()  # the optimizer runs inside
print("FBGEMM", fbgemm_gpu.__version__, "PyTorch", torch.__version__, "loss", losses)
assert losses[-1] < losses[0]
