"""Pairs of papers and the human genes that they are about: 1,793,637 from PubMed, for retrieval."""

from __future__ import annotations

import functools
import sqlite3
from typing import Any

import numpy as np
import numpy.typing as npt

from het_tf.python.checks import whole
from het_tf.python.hashing import mix, salt
from het_tf.zoo.data.debian import GENE_PAPERS, fetch_package
from het_tf.zoo.data.examples import PADDING, Description, Field, Int64Array, Splits
from het_tf.zoo.data.making import positives

PAIRS, GENES, PAPERS = 1_793_637, 46_898, 754_859
LEFT_OUT = 20
"""One in this many papers with two or more genes gives a pair to the test part, and one to valid."""


def gene_papers(seed: int = 0, others: int = 8) -> Splits:
    """Loads pairs of a paper and a gene that it is about. The task: find the left-out gene of a paper.

    The genes are the items, the papers the users. Both are very skewed: half of the
    papers have one gene, and the 17,309 genes with a dozen papers or more have nearly all pairs. Every
    twentieth paper with two genes or more gives a random pair to the test part, another twentieth to the
    valid part; all other pairs train. So every paper in a test has other genes in training.

    Args:
      seed: selects the left-out pairs.
      others: L, the most entries of the sequence "others".

    Returns:
      Three `Examples`, shuffled by the seed, all of label 1: categorical paper (754,859 ids by PubMed's
      number, so by time), period (of the paper, 64 of equally many papers), gene (46,898 ids); the sequence
      others, int64 `[N, L]`, which shares the ids of gene: the paper's genes in the training part, except
      the pair's own. And their description, whose item is the gene.

    Raises:
      RuntimeError: if the data can be neither found nor downloaded (see `debian.fetch_package`).
      ValueError: if `others` is not positive.
    """
    whole("others", others, what="the most other genes of a paper")
    gene, paper = read_pairs()
    order = np.random.default_rng(seed).permutation(len(gene))
    gene, paper = gene[order], paper[order]
    part = _parts(paper, seed)
    sequence = _others(paper, gene, part == 0, others)
    categorical = {"paper": paper, "period": paper * 64 // PAPERS, "gene": gene}
    examples = positives(categorical, {"others": sequence})
    fields = (Field("paper", PAPERS), Field("period", 64), Field("gene", GENES))
    description = Description(
        "gene_papers",
        fields,
        sequences=(Field("others", GENES, length=others, shares="gene"),),
        labels=("the paper is about the gene",),
        item=("gene",),
    )
    train, valid, test = (examples.take(part == number) for number in range(3))
    return Splits(train, valid, test, description)


def _parts(paper: Int64Array, seed: int) -> npt.NDArray[np.int64]:
    """Returns the part of each pair (0 train, 1 valid, 2 test): the first pair of a paper may be left out."""
    _, first, count = np.unique(paper, return_index=True, return_counts=True)
    hashes = mix(np.arange(len(first), dtype=np.uint64) ^ salt("gene_papers", seed)) % np.uint64(LEFT_OUT)
    part = np.zeros(len(paper), np.int64)
    for number in (1, 2):
        part[first[(hashes == np.uint64(number)) & (count > 1)]] = number
    return part


def _others(paper: Int64Array, gene: Int64Array, kept: npt.NDArray[np.bool_], length: int) -> Int64Array:
    """Returns up to `length` other `kept` genes of each pair's paper, int64 `[N, length]`.

    The pairs of a paper form a ring, and each takes the ones after it.
    """
    places = np.flatnonzero(kept)
    places = places[np.argsort(paper[places], kind="stable")]
    papers, genes = paper[places], gene[places]
    begin = np.searchsorted(papers, paper, side="left")
    count = np.searchsorted(papers, paper, side="right") - begin
    own = begin.copy()  # left-out pairs take the whole ring
    own[places] = np.arange(len(places)) + 1
    available = count - kept
    steps = np.arange(length)
    ring = begin[:, None] + (own - begin)[:, None] % np.maximum(count, 1)[:, None]
    index = begin[:, None] + (ring - begin[:, None] + steps) % np.maximum(count, 1)[:, None]
    found = genes[np.minimum(index, len(genes) - 1)]
    return np.where(steps < available[:, None], found, PADDING)


@functools.cache
def read_pairs() -> tuple[Int64Array, Int64Array]:
    """Returns gene and paper of each pair, each numbered from 0 in the order of its number in the file.

    Raises:
      RuntimeError: if the file has other counts than the package's.
    """
    path = fetch_package(GENE_PAPERS)
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    try:
        rows: Any = connection.execute("SELECT _id, CAST(pubmed_id AS INTEGER) FROM pubmed")
        pairs = np.array(rows.fetchall(), np.int64)
    finally:
        connection.close()
    genes, gene = np.unique(pairs[:, 0], return_inverse=True)
    papers, paper = np.unique(pairs[:, 1], return_inverse=True)
    if (len(pairs), len(genes), len(papers)) != (PAIRS, GENES, PAPERS):
        raise RuntimeError(f"{path} has {len(pairs)} pairs, not {PAIRS}; remove it, and it is fetched again.")
    return gene.astype(np.int64), paper.astype(np.int64)
