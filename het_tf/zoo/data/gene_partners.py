"""Genes that papers name together, in the order of the papers: sequences for models of the next item."""

from __future__ import annotations

import numpy as np

from het_tf.zoo.data.examples import Description, Field, Int64Array, Splits
from het_tf.zoo.data.gene_papers import GENES, PAPERS, read_pairs
from het_tf.zoo.data.histories import histories
from het_tf.zoo.data.making import positives

MOST = 10
"""Papers with more genes are left out: they list a genome, and tell little about pairs of genes."""


def gene_partners(history: int = 20) -> Splits:
    """Loads the next gene that each gene is named with, and the genes that it was named with before.

    Each ordered pair of different genes of one paper is an event: the first gene meets the second, its
    partner. Papers with one gene have none, and those with more than ten (`MOST`) are left out. Papers are in
    the order of PubMed's numbers, so by time: events of the first eight tenths of all papers are the training
    part, those of the ninth tenth valid, those of the last test.

    Args:
      history: L, the most partners of the sequence "history".

    Returns:
      Three `Examples` in the order of time, all of label 1: categorical gene and partner (46,898 ids each);
      the sequence history, int64 `[N, L]`, which shares the ids of partner: the gene's partners in earlier
      papers of all parts, the oldest first. And their description, whose item is the partner.

    Raises:
      RuntimeError: if the data can be neither found nor downloaded (see `debian.fetch_package`).
      ValueError: if `history` is not positive.
    """
    gene, partner, paper = _events(*read_pairs())
    sequence = histories(gene, paper, partner, np.ones(len(gene), np.bool_), history)
    examples = positives({"gene": gene, "partner": partner}, {"history": sequence})
    description = Description(
        "gene_partners",
        (Field("gene", GENES), Field("partner", GENES)),
        sequences=(Field("history", GENES, length=history, shares="partner"),),
        labels=("a paper names both genes",),
        item=("partner",),
    )
    bounds = np.searchsorted(paper, [0, PAPERS * 8 // 10, PAPERS * 9 // 10, PAPERS])
    train, valid, test = (examples.take(slice(*bounds[n : n + 2])) for n in range(3))
    return Splits(train, valid, test, description)


def _events(gene: Int64Array, paper: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """First gene, second gene and paper of each event, in the order of papers."""
    order = np.argsort(paper, kind="stable")
    gene, paper = gene[order], paper[order]
    count = np.bincount(paper)
    few = (count > 1) & (count <= MOST)
    first_of = np.append(0, np.cumsum(count))[paper]
    places = np.flatnonzero(few[paper])
    repeats = count[paper[places]]
    left = np.repeat(places, repeats)
    step = np.arange(len(left)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    right = first_of[left] + step
    other = left != right
    left, right = left[other], right[other]
    return gene[left], gene[right], paper[left]
