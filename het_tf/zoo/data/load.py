"""`load`: loads a data set by its name on the command line."""

from __future__ import annotations

from het_tf.zoo.data.census_income import census
from het_tf.zoo.data.criteo_stream import CriteoLikeStream, criteo_like_description
from het_tf.zoo.data.criteo_tsv import criteo_splits
from het_tf.zoo.data.examples import Splits
from het_tf.zoo.data.gene_papers import gene_papers
from het_tf.zoo.data.gene_partners import gene_partners
from het_tf.zoo.data.movielens_100k import movielens

CRITEO_LIKE_ROWS = 1_000_000

_CHOICES = (
    "'census', 'movielens', 'gene_papers', 'gene_partners', 'criteo_like', 'criteo_like:ROWS' or "
    "'criteo:PATH'"
)


def load(
    name: str,
    seed: int = 0,
    cross_buckets: int | None = None,
    history: int | None = None,
    labels: int = 1,
) -> Splits:
    """Loads a data set by name.

    Args:
      name: "census"; "movielens"; "gene_papers"; "gene_partners"; "criteo_like", "criteo_like:ROWS" (ROWS in
        all, default 1,000,000: the first 80 % train, then 10 % valid and 10 % test); or
        "criteo:PATH".
      seed: of criteo_like's rows, and of gene_papers' left-out pairs; the other data sets are fixed.
      cross_buckets: for census and movielens, the size of each cross's id space; None for 64-bit hashes.
      history: for movielens and gene_partners, the most items of the sequence "history"; None: without it
        for movielens, 20 for gene_partners.
      labels: for census and movielens, 1 or 2 labels a row.

    Returns:
      `(train, valid, test, description)`; see the package's documentation.

    Raises:
      ValueError: if the data set does not exist, or an argument does not suit it.
      FileNotFoundError: if the file of criteo:PATH does not exist.
      RuntimeError: if data from a wheel or a Debian package can be neither found nor downloaded.
    """
    kind, colon, argument = name.partition(":")
    if history is not None and name not in ("movielens", "gene_partners"):
        raise ValueError(
            f"history is {history}, but {name!r} has no histories; 'movielens' and 'gene_partners' have, or "
            "give None."
        )
    if labels != 1 and name not in ("census", "movielens"):
        raise ValueError(f"labels is {labels}, but {name!r} has 1; 'census' and 'movielens' have 2.")
    if kind == "census" and not colon:
        return census(cross_buckets, labels)
    if kind == "movielens" and not colon:
        return movielens(cross_buckets, history, labels)
    if kind == "gene_papers" and not colon:
        return gene_papers(seed)
    if kind == "gene_partners" and not colon:
        return gene_partners(20 if history is None else history)
    if kind == "criteo_like":
        return _criteo_like(name, argument if colon else str(CRITEO_LIKE_ROWS), seed)
    if kind == "criteo":
        if not argument:
            raise ValueError(f"{name!r} names no file; give criteo:PATH with the path of Criteo's train.txt.")
        return criteo_splits(argument)
    raise ValueError(f"there is no data set {name!r}; give {_CHOICES}.")


def _criteo_like(name: str, rows: str, seed: int) -> Splits:
    digits = rows.replace("_", "")
    if not (digits.isascii() and digits.isdigit()) or int(digits) < 10:
        raise ValueError(
            f"{name!r}: ROWS is {rows!r}; give a whole number of 10 or more, as in criteo_like:1000000."
        )
    total = int(digits)
    tenth = total // 10
    train = total - 2 * tenth
    return Splits(
        CriteoLikeStream(train, seed),
        CriteoLikeStream(tenth, seed, train),
        CriteoLikeStream(tenth, seed, train + tenth),
        criteo_like_description(),
    )
