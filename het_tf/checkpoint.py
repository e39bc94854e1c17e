"""Checkpoints: tables and dense weights at one moment, in files for any number of servers.

    path = het_tf.checkpoint.save("ckpts", model, step=1000, keep=3)
    het_tf.checkpoint.restore("ckpts", model)                               # the newest
    het_tf.checkpoint.save("ckpts", model, step=2000, since="latest")       # what has changed

`checkpoints` and `latest` list a directory, `verify` compares a checkpoint with its checksums,
Under Horovod all ranks must call `save` and `restore`. See docs/checkpoints.md.
"""

from het_tf.ext.checkpoint.python.directory import checkpoints, latest
from het_tf.ext.checkpoint.python.model.restore import restore, verify
from het_tf.ext.checkpoint.python.model.save import save
from het_tf.python.gone import refuse

__getattr__ = refuse(__name__)
__all__ = ["checkpoints", "latest", "restore", "save", "verify"]
