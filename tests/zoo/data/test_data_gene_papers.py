"""Gene-paper pairs: what is left out, the other genes of a paper, and how the package is fetched."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import numpy as np
import pytest

from het_tf.zoo.data import PADDING, Splits, by_time, debian, gene_papers, gene_partners, load
from het_tf.zoo.data import gene_papers as module_function
from het_tf.zoo.data import gene_partners as partners_function
from het_tf.zoo.data.debian import PackageFile, fetch_package

module = __import__("sys").modules[module_function.__module__]
partners = __import__("sys").modules[partners_function.__module__]


def small_pairs() -> tuple[np.ndarray, np.ndarray]:
    """Gene and paper of each pair: 300 papers of 1 to 7 genes."""
    rng = np.random.default_rng(1)
    pairs = [(gene, paper) for paper in range(300) for gene in rng.permutation(40)[: paper % 7 + 1]]
    gene, paper = np.array(pairs, np.int64).T
    return gene, paper


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "read_pairs", small_pairs)
    monkeypatch.setattr(module, "LEFT_OUT", 4)
    monkeypatch.setattr(module, "PAPERS", 300)
    monkeypatch.setattr(partners, "read_pairs", small_pairs)
    monkeypatch.setattr(partners, "PAPERS", 300)
    monkeypatch.setattr(partners, "MOST", 5)


def test_every_pair_is_in_one_part(small: None) -> None:
    splits = gene_papers(seed=3)
    found = [
        pair
        for part in splits[:3]
        for pair in zip(*(part.categorical[name].tolist() for name in ("gene", "paper")), strict=True)
    ]
    assert sorted(found) == sorted(zip(*map(np.ndarray.tolist, small_pairs()), strict=True))
    train = set(splits.train.categorical["paper"].tolist())
    for part in (splits.valid, splits.test):
        papers = part.categorical["paper"]
        assert len(part) > 40 and len(np.unique(papers)) == len(papers)
        assert set(papers.tolist()) <= train, "a paper that is asked about has other genes"
    again, other = gene_papers(seed=3), gene_papers(seed=4)
    np.testing.assert_array_equal(splits.test.categorical["paper"], again.test.categorical["paper"])
    assert set(splits.test.categorical["paper"]) != set(other.test.categorical["paper"])


@pytest.mark.parametrize("length", [1, 3, 8])
def test_others_are_training_genes_of_the_paper(small: None, length: int) -> None:
    splits = gene_papers(others=length)
    train = {paper: set() for paper in range(300)}
    for gene, paper in zip(
        splits.train.categorical["gene"].tolist(), splits.train.categorical["paper"].tolist(), strict=True
    ):
        train[paper].add(gene)
    for part in splits[:3]:
        columns = (part.categorical["gene"], part.categorical["paper"], part.sequences["others"])
        for gene, paper, others in zip(*(column.tolist() for column in columns), strict=True):
            real = [one for one in others if one != PADDING]
            assert len(set(real)) == len(real) and set(real) <= train[paper] - {gene}
            assert len(real) == min(length, len(train[paper] - {gene}))
            assert others == real + [PADDING] * (length - len(real))
    (field,) = splits.description.histories
    assert (field.shares, field.length) == ("gene", length)


def test_bad_arguments(small: None) -> None:
    with pytest.raises(ValueError, match="others is 0"):
        gene_papers(others=0)
    with pytest.raises(ValueError, match="there is no data set 'gene_papers:5'"):
        load("gene_papers:5")


# --- by time ------------------------------------------------------------------------------------------------


def sorted_pairs(splits: Splits, number: int) -> list[tuple[int, int]]:
    columns = splits[number].categorical
    return sorted(zip(columns["gene"].tolist(), columns["paper"].tolist(), strict=True))


@pytest.mark.parametrize("count", [1, 7, 300])
def test_periods_follow_each_other_and_lose_nothing(small: None, count: int) -> None:
    splits = gene_papers()
    periods = by_time(splits, "paper", count)
    assert len(periods) == count and all(one.description is splits.description for one in periods)
    for number in range(3):
        together = [pair for period in periods for pair in sorted_pairs(period, number)]
        assert sorted(together) == sorted_pairs(splits, number)
    for number, period in enumerate(periods):
        for part in period[:3]:
            papers = part.categorical["paper"]
            assert ((papers * count // 300) == number).all()
            whole = splits[0].categorical["paper"]
            if part is period.train:
                np.testing.assert_array_equal(papers, whole[whole * count // 300 == number])


@pytest.mark.parametrize(
    ("field", "count", "message"),
    [
        ("year", 2, r"field is 'year'; give a categorical field that has a size: one of \['paper', 'period'"),
        ("others", 2, "field is 'others'"),
        ("paper", 0, "count is 0; give the number of periods, .* an integer from 1 to 300"),
        ("paper", 301, "count is 301"),
    ],
)
def test_periods_that_there_are_not(small: None, field: str, count: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        by_time(gene_papers(), field, count)


def expected_events(length: int) -> list[list[tuple[int, int, tuple[int, ...]]]]:
    """Gene, partner and history of the events of each part, as slow as can be."""
    genes: dict[int, list[int]] = {}
    for gene, paper in zip(*map(np.ndarray.tolist, small_pairs()), strict=True):
        genes.setdefault(paper, []).append(gene)
    parts: list[list[tuple[int, int, tuple[int, ...]]]] = [[], [], []]
    met: dict[int, list[int]] = {}
    for paper in range(300):
        pairs = [(a, b) for a in genes[paper] for b in genes[paper] if a != b and len(genes[paper]) <= 5]
        parts[0 if paper < 240 else 1 if paper < 270 else 2] += [
            (a, b, tuple(met.get(a, [])[-length:])) for a, b in pairs
        ]
        for a, b in pairs:
            met.setdefault(a, []).append(b)
    return parts


@pytest.mark.parametrize("length", [1, 20])
def test_partners_are_those_of_earlier_papers(small: None, length: int) -> None:
    splits = gene_partners(history=length)
    for part, expected in zip(splits[:3], expected_events(length), strict=True):
        assert len(part) == len(expected) > 20
        found = zip(
            part.categorical["gene"], part.categorical["partner"], part.sequences["history"], strict=True
        )
        assert [
            (int(gene), int(partner), tuple(int(one) for one in past if one != PADDING))
            for gene, partner, past in found
        ] == expected
    (field,) = splits.description.histories
    assert (field.shares, field.length, splits.description.item) == ("partner", length, ("partner",))


def test_partners_by_name(small: None) -> None:
    assert load("gene_partners").train.sequences["history"].shape[1] == 20
    assert load("gene_partners", history=3).train.sequences["history"].shape[1] == 3
    with pytest.raises(ValueError, match="history is 0"):
        load("gene_partners", history=0)


@pytest.mark.long
def test_the_real_file() -> None:
    """Its counts are those of the package."""
    splits = load("gene_papers")
    assert sum(len(part) for part in splits[:3]) == 1_793_637
    sizes = {field.name: field.size for field in splits.description.categorical}
    assert (sizes["paper"], sizes["gene"]) == (754_859, 46_898)
    count = np.bincount(np.concatenate([part.categorical["paper"] for part in splits[:3]]))
    assert count.min() == 1 and (count == 1).sum() == 493_704
    assert 13_000 < len(splits.test) < 13_300


# --- packages -----------------------------------------------------------------------------------------------

CONTENT = b"pairs"
FILE = PackageFile("r-pairs", "1.0-1", "usr/share/pairs.sqlite", hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake apt-get whose download dpkg-deb unpacks, in a directory that is all of PATH except the shell."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name, line in (
        ("apt-get", "echo deb > r-pairs_1.0-1_all.deb"),
        ("dpkg-deb", f"/bin/mkdir -p usr/share && printf {CONTENT.decode()} > usr/share/pairs.sqlite"),
    ):
        program = folder / name
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("HET_DATA_DIR", str(tmp_path / "cache"))
    return folder


def test_a_package_is_unpacked_once(tools: Path, tmp_path: Path) -> None:
    path = fetch_package(FILE)
    assert path == tmp_path / "cache/r-pairs-1.0-1/pairs.sqlite" and path.read_bytes() == CONTENT
    assert os.listdir(path.parent) == ["pairs.sqlite"]
    (tools / "apt-get").unlink()
    assert fetch_package(FILE) == path
    path.write_bytes(b"damaged")
    with pytest.raises(RuntimeError, match="there is no apt-get here"):
        fetch_package(FILE)


@pytest.mark.parametrize(
    ("program", "line", "message"),
    [
        (
            "apt-get",
            "echo E: no network >&2; exit 100",
            r"failed \(E: no network\).*apt-get download r-pairs",
        ),
        ("dpkg-deb", "exit 2", "dpkg-deb -x .* failed"),
        ("dpkg-deb", "exit 0", "has another usr/share/pairs.sqlite than expected"),
    ],
)
def test_one_error_with_the_line_that_gets_it(tools: Path, program: str, line: str, message: str) -> None:
    (tools / program).write_text(f"#!/bin/sh\n{line}\n")
    with pytest.raises(RuntimeError, match=message) as raised:
        fetch_package(FILE)
    assert "\n" not in str(raised.value)
    assert debian.GENE_PAPERS.package == "r-bioc-org.hs.eg.db"
