"""Checkpoints: tables and dense weights of one moment, in files that any number of servers can load.

    path = het_tf.checkpoint.save("ckpts", model, step=1000, keep=3)
    het_tf.checkpoint.restore("ckpts", model)                               # the newest
    het_tf.checkpoint.save("ckpts", model, step=2000, since="latest")       # what has changed

`checkpoints` and `latest` look into a directory, `verify` compares a checkpoint with its checksums,
`read_manifest` says what is in it. Under Horovod all ranks call `save` and `restore`. docs/checkpoints.md is
the guide.
"""

from het_tf.python.checkpoint.directory import checkpoints, latest
from het_tf.python.checkpoint.manifest import Manifest, read_manifest
from het_tf.python.checkpoint.model.restore import restore, verify
from het_tf.python.checkpoint.model.save import save

__all__ = ["Manifest", "checkpoints", "latest", "read_manifest", "restore", "save", "verify"]
