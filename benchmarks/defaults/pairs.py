"""Pairs with a long tail of rare ids: who took what, and pairs by chance.

packages    Debian's packages and what they require, from apt's lists.
genes       Genes and the papers about them, from a package of Debian; papers of 3 to 100 genes.
movies      MovieLens-100k in the order of time: the label is a rating of 4 or 5.

For packages and genes the label is whether the pair is real. A fifth of the pairs of each "who" is held out
for the test. For each pair there is one with another "what", drawn by its frequency in training to the power
of 0.75, in the same part: so frequencies alone say little.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

import het_tf
from het_tf.zoo.data.gene_papers import read_pairs
from het_tf.zoo.data.graph.packages import read_requirements

Int64Array = npt.NDArray[np.int64]
SOME_PAPERS = 50_000


@dataclasses.dataclass(frozen=True)
class Part:
    """Pairs: who and what int64 [N], label float32 [N]."""

    who: Int64Array
    what: Int64Array
    label: npt.NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Training and test pairs; `in_order`: training goes through them once, in their order."""

    train: Part
    test: Part
    in_order: bool = False

    @property
    def sizes(self) -> tuple[int, int]:
        """How many ids there are of who and of what."""
        return tuple(int(max(a.max(), b.max())) + 1 for a, b in zip(*self._columns(), strict=True))  # type: ignore[return-value]

    def _columns(self) -> list[tuple[Int64Array, Int64Array]]:
        return [(part.who, part.what) for part in (self.train, self.test)]


def make_pairs(name: str, seed: int) -> Pairs:
    """Returns the pairs of a data set; `seed` of the split and of the pairs by chance."""
    if name == "movies":
        train, valid, test, _ = het_tf.data.load("movielens")
        of = [
            Part(one.categorical["user"], one.categorical["item"], one.label) for one in (train, valid, test)
        ]
        both = (np.concatenate(columns) for columns in zip(*map(dataclasses.astuple, of[:2]), strict=True))
        return Pairs(Part(*both), of[2], in_order=True)
    if name == "packages":
        who, what = read_requirements()[1].T
    else:
        what, who = read_pairs()[::-1]
        genes = np.bincount(what)
        papers = np.flatnonzero((genes >= 3) & (genes <= 100))
        kept = np.isin(what, np.random.default_rng(0).choice(papers, SOME_PAPERS, replace=False))
        who, what = who[kept], what[kept]
    number = [np.unique(ids, return_inverse=True)[1].astype(np.int64) for ids in (who, what)]
    return _with_others(*number, np.random.default_rng(seed))


def _with_others(who: Int64Array, what: Int64Array, rng: np.random.Generator) -> Pairs:
    """Splits the pairs of each `who`, and adds a pair by chance to each."""
    order = rng.permutation(len(who))
    order = order[np.argsort(who[order], kind="stable")]
    count = np.bincount(who)
    place = np.arange(len(who)) - np.repeat(np.cumsum(count) - count, count)
    held = np.zeros(len(who), bool)
    held[order] = place >= np.repeat(count - count // 5, count)
    chance = np.cumsum(np.bincount(what[~held], minlength=what.max() + 1) ** 0.75)

    def part(chosen: npt.NDArray[np.bool_]) -> Part:
        others = np.searchsorted(chance, rng.random(chosen.sum()) * chance[-1], side="right")
        label = np.repeat(np.float32([1, 0]), len(others))
        return Part(np.tile(who[chosen], 2), np.concatenate([what[chosen], others]), label)

    return Pairs(part(~held), part(held))
