"""The commands `het ckpt`."""

from het_tf.ext.checkpoint.python.cli import inspect, merge, verify
from het_tf.ext.checkpoint.python.cli.view import View
from het_tf.python.cli import JSON, Group, Options, answer, arg
from het_tf.python.files import local
from het_tf.python.show import bar, number, say, size

HET = Group("""\
Shows, checks and merges checkpoints of het_tf.
None needs TensorFlow.

  het ckpt inspect runs/ctr
      show the newest checkpoint in a directory
  het ckpt verify runs/ctr/ckpt-00000012
      read every byte of it; exit status 1 on a fault
  het ckpt merge full runs/ctr/ckpt-00000012
      write it and its bases as one full checkpoint

A PATH is a checkpoint, or a directory: then its newest checkpoint. An increment
includes the rows of all its bases.
`het ckpt COMMAND --help` explains each.""")

_PATH = arg("path", type=local, metavar="PATH", help="a checkpoint, or a directory of checkpoints")


@HET.command(
    "inspect",
    "show tables, rows, files, bases and dense weights, by the manifest",
    _PATH,
    JSON,
    more="--json has every field, file and tensor.",
)
def show_checkpoint(options: Options) -> int:
    """Het ckpt inspect."""
    found = inspect.take(View.open(options.path))
    answer(options, found, "\n".join(inspect.lines(found)))
    return 0


@HET.command(
    "verify",
    "check every checksum, that each row is once and in the right file, and that floats are finite",
    _PATH,
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


def _checked(view: View, what: str) -> View:
    """Checks a view before it is rewritten: a new checksum would hide damage."""
    with bar(f"checksums of {what}") as (begin, advance):
        begin(verify.total_bytes(view.chain))
        faults = verify.checksums(view.chain, advance)
    if faults:
        raise ValueError("\n".join(faults))
    return view


@HET.command(
    "merge",
    "write a checkpoint and the increments on it as one checkpoint",
    arg("out", type=local, metavar="OUT", help="the new checkpoint; must not exist"),
    arg("inputs", type=local, metavar="IN", nargs="+", help="checkpoints, in any order"),
    JSON,
    more="The bases of a single IN are read from its directory. Several must build on one another; without a"
    " full one among them the result is an increment. The dense weights are those of the newest.",
)
def write_merged(options: Options) -> int:
    """Het ckpt merge."""
    view = _checked(View(merge.chain_of(options.inputs)), "the inputs")
    with bar("files") as (begin, advance):
        begin(len(view.manifest.files))
        document = merge.merge(options.out, view, advance)
    rows = ", ".join(
        f"{table['name']} {number(table['rows'])} rows"
        + (f" and {number(table['removed'])} removals" if table["removed"] else "")
        for table in document["tables"]
    )
    kind = f"an increment on {document['base']['name']}" if document["base"] else "full"
    names = ", ".join(one.path.name for one in view.chain)
    answer(options, document, f"{options.out}: {kind}, from {names}: {rows}")
    return 0
