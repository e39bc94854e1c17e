"""The command `het ckpt verify`."""

from het_tf.ext.checkpoint.python.cli import verify
from het_tf.python.cli import JSON, Group, Options, answer, arg
from het_tf.python.files import local
from het_tf.python.show import bar, say, size

HET = Group("""\
Checks checkpoints of het_tf. Does not need TensorFlow.

  het ckpt verify runs/ctr
      read every byte of the newest checkpoint in a directory; exit status 1
      on a fault
  het ckpt verify runs/ctr/ckpt-00000012
      the same of one checkpoint""")


@HET.command(
    "verify",
    "check every checksum, that each row is once and in the right file, and that floats are finite",
    arg("path", type=local, metavar="PATH", help="a checkpoint, or a directory of checkpoints"),
    JSON,
    more="Checks the bases of the checkpoint too.",
)
def check(options: Options) -> int:
    """Het ckpt verify."""
    with bar("bytes") as (begin, advance):
        chain, faults = verify.verify(options.path, advance, begin)
    for fault in faults:
        say(f"het ckpt: {fault}")
    files, total = sum(len(one.files) + bool(one.dense) for one in chain), verify.total_bytes(chain)
    builds = (
        f", which builds on {', '.join(one.path.name for one in chain[-2::-1])}," if len(chain) > 1 else ""
    )
    document = {"path": str(chain[-1].path), "files": files, "bytes": total, "faults": faults}
    if options.json or not faults:
        answer(options, document, f"{chain[-1].path}{builds} is sound: {files} files, {size(total)}")
    return bool(faults)
