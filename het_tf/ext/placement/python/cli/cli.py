"""The commands `het data`."""

import dataclasses
import textwrap
from typing import Any

from het_tf.ext.placement.python.cli.formats import FORMATS, format_of, open_samples
from het_tf.ext.placement.python.cli.profile import FieldFigures, Rows, profile
from het_tf.ext.placement.python.cli.samples import Samples
from het_tf.ext.placement.python.cli.split import split
from het_tf.ext.placement.python.placement import Placement
from het_tf.python.cli import JSON, Group, Options, answer, arg, at_least_1
from het_tf.python.files import local
from het_tf.python.show import bar, number, size

HET = Group("""\
Places samples: those with the same value of a field come to the same worker, so
that fewer rows of tables travel (docs/workers.md).

  het data fields train.tsv --workers 8
      show what each field would save; the first lines are enough
  het data shard train.tsv --by C24 --workers 8 --batch 128 --out placed
      write placed/part-00000-of-00008.tsv and so on, and placed/placement.json;
      the k-th 128 samples of all files are the k-th 1,024 of the stream.
      A rank reads its own file:
      het_tf.data.criteo(het_tf.workers.shard("placed"))
  het data shard day-*.parquet --by user --workers 4 --batch 1024 --out placed
  het data shard clicks.tfrecord --by user --workers 4 --batch 1024 --out placed

Files are Criteo's lines (also .gz), Parquet or CSV (.parquet, .csv; need
pyarrow; CSV is written as Parquet) or TFRecords of tf.train.Example (.tfrecord,
also .gz; needs TensorFlow); for other names give --format. Several files are
one stream, in the given order. Validate on samples that are not placed.""")

_WIDEST = 24
_WORTH = 0.8  # location is preferred if at most this share of the best field's rows travels
_FILES = (
    arg("files", type=local, nargs="+", metavar="FILE", help="files of samples, in the order of the stream"),
    arg("--format", choices=FORMATS, help="default: by the names"),
    arg("--part", choices=("all", "train", "valid", "test"), default="all",
        help="part of Criteo's lines, drawn by the line's number as in het_tf.data.criteo (%(default)s)"),
)  # fmt: skip


def _open(options: Options) -> Samples[Any]:
    return open_samples(options.format or format_of(options.files), options.files, options.part)


@HET.command(
    "fields",
    "show what placing by each field saves",
    *_FILES,
    arg("--workers", type=at_least_1, default=8, metavar="N", help="ranks of the job (%(default)s)"),
    arg("--batch", type=at_least_1, default=128, metavar="B",
        help="samples of a worker in a step (%(default)s)"),
    arg("--samples", type=at_least_1, default=100_000, metavar="M", help="samples to count (100,000)"),
    JSON,
    more="Deals the first samples to workers as they come, by each field and by location, with caches that"
    " hold all rows. s=0, s=100: rows that travel at staleness 0 and at a large one. lag: updates of others"
    " that a copy lacks when it is used again. first id: samples of the most frequent value. spilled:"
    " samples that go to another worker because their own has enough. by location: each sample goes to the"
    " worker that used most of its ids last.",
)  # fmt: skip
def fields(options: Options) -> int:
    """Het data fields."""
    samples = _open(options)
    reasons = samples.fields()
    names = [name for name, reason in reasons.items() if not reason]
    if not names:
        raise ValueError(f"{options.files[0]} has no field of one integer or string a sample")
    rows = next(samples.blocks(options.samples), None)
    if rows is None:
        raise ValueError(f"{options.files[0]} has no samples")
    columns = samples.columns(rows, names)
    with bar("fields") as (begin, advance):
        begin(len(names) + 1)
        plain, found = profile(columns, options.workers, options.batch, advance)
    samples.require_unchanged()
    count = len(next(iter(columns.values())))
    document = {"samples": count, "workers": options.workers, "batch": options.batch,
                "unplaced": dataclasses.asdict(plain), "by": [dataclasses.asdict(one) for one in found],
                "not_by": {name: reason for name, reason in reasons.items() if reason}}  # fmt: skip
    lines = _table(options, count, plain, found)
    for reason in dict.fromkeys(filter(None, reasons.values())):
        text = f"Not by {', '.join(name for name in reasons if reasons[name] == reason)}: each {reason}."
        lines += textwrap.wrap(text, 80)
    answer(options, document, "\n".join(lines))
    return 0


def _table(options: Options, count: int, plain: Rows, found: list[FieldFigures]) -> list[str]:
    few = plain.unique / 100  # rows of a batch; a share of fewer means nothing

    def saved(before: float, after: float, least: float = few) -> str:
        return f"{100 * (1 - after / before):8.1f}" if before > least else f"{'-':>8}"

    wide = max(len("by location"), min(_WIDEST, max(len(one.name) for one in found)))
    text = (
        f"{count:,} samples, {options.workers} workers of {options.batch} in a step. As samples come, a "
        f"batch has {plain.unique:.0f} rows: {plain.new:.0f} are new to the worker but not to all, "
        f"{plain.changed:.0f} were changed by another one since. A copy lacks {plain.lag:.1f} updates."
    )
    lines = [
        *textwrap.wrap(text, 80),
        "",
        f"{'':{wide}}{'':8}{'first id':>10}{'spilled':>9}  rows saved:   s=0   s=100     lag",
        f"{'field':{wide}}{'values':>8}{'%':>10}{'%':>9}{'%':>19}{'%':>8}{'%':>8}",
    ]
    skewed = False
    for one in found:
        above = (one.first or 0) > 1 / options.workers
        skewed |= above
        name = one.name if len(one.name) <= wide else one.name[: wide - 3] + "..."
        if one.distinct is None or one.first is None:
            of_field = f"{'by ' + name:{wide}}{'-':>8}{'-':>9} {'-':>9}"
        else:
            of_field = f"{name:{wide}}{number(one.distinct):>8}{100 * one.first:>9.1f}{'*' if above else ' '}"
            of_field += f"{100 * one.spilled:>9.1f}"
        lines.append(
            f"{of_field}{'':11}{saved(plain.exact, one.rows.exact)}"
            f"{saved(plain.bounded, one.rows.bounded)}{saved(plain.lag, one.rows.lag, 0.0)}"
        )
    lines.append("")
    if skewed:
        lines.append(f"* more than 1/{options.workers} of the samples have one id: the excess spills.")
    best = f"At a large bound {(name := _best(found))} saves most: het data shard --by {name}"
    shared = plain.bounded > few
    lines.append(best if shared else "Workers hardly share rows in this sample: no field saves any.")
    return lines


def _best(found: list[FieldFigures]) -> str:
    """The best field; or location, if it is better by enough to pay for its work on every rank."""
    field = next((one for one in found if one.distinct is not None), found[0])
    worth = found[0].rows.bounded <= _WORTH * field.rows.bounded
    return found[0].name if worth else field.name


@HET.command(
    "shard",
    "write one file a worker, whose k-th batches together are the k-th global batch",
    *_FILES,
    arg("--by", required=True, metavar="FIELD", help="field of one id a sample; or 'location'"),
    arg("--workers", type=at_least_1, required=True, metavar="N", help="ranks of the job"),
    arg("--batch", type=at_least_1, required=True, metavar="B",
        help="samples of a worker in a step; a global batch has N * B"),
    arg("--out", type=local, required=True, metavar="DIR", help="must not exist"),
    JSON,
    more="The directory appears when all of it is on disk. A last, incomplete global batch is left out. A"
    " worker takes the samples of each global batch whose field hashes to it; samples above its share go to"
    " workers that have too few. --by location, for data without a good field: it takes samples whose ids,"
    " in all fields of one integer or string, it used last.",
)  # fmt: skip
def shard(options: Options) -> int:
    """Het data shard."""
    samples = _open(options)
    placement = Placement(options.by, options.workers, options.batch)
    with bar(f"placing by {options.by}") as (begin, advance):
        begin(samples.total)
        pieces = split(samples, placement, options.out, advance)
    written = sum(one for _, one in pieces.files)
    count = pieces.samples // placement.samples
    document = {"directory": str(options.out), "global_batches": count, "samples": placement.samples,
                "workers": placement.workers, "bytes": written, "left_out": pieces.left_out}  # fmt: skip
    text = (
        f"{options.out}: {count:,} global batches of {placement.samples:,} samples in {placement.workers}"
        f" files, {size(written)}; {pieces.left_out:,} samples of an incomplete one were left out"
    )
    answer(options, document, text)
    return 0
