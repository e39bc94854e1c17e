"""The native export: rows in files that are mapped, read by the op HetServe."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import saving_lib
import tensorflow as tf
from export_lib import embedding_model, fill, run_alone, serve

import het_tf
from het_tf.ext.serving.python.export import native
from het_tf.ext.serving.python.export.formats import Native
from het_tf.ext.serving.python.export.rows import Source
from het_tf.python.session import native as library

pytestmark = saving_lib.MARKS

keras = tf.keras


def export(model: Any, path: Path, *, signatures: Any = None, overwrite: bool = False, **options: Any) -> Any:
    format = Native(**options)
    return het_tf.export(model, path, format, signatures=signatures, overwrite=overwrite, verbose=False)


def item_model(dim: int = 3, **options: Any) -> Any:
    table = het_tf.TableConfig("item", dim)
    return embedding_model(
        {"id": het_tf.FeatureConfig(table)}, {"id": keras.Input((), dtype="int64", name="id")}, **options
    )


def asset(path: Path) -> Path:
    (file,) = (path / "assets").glob("*.het")
    return file


# --- where it runs ------------------------------------------------------------------------------------------


ALONE = """
import json, sys
import tensorflow as tf
tf.load_op_library(sys.argv[1])
answer = tf.saved_model.load(sys.argv[2]).signatures["serving_default"]
print(json.dumps(answer(id=tf.constant(json.loads(sys.argv[3]), tf.int64))["id"].numpy().tolist()))
print("het_tf" in sys.modules)
maps = [line.split() for line in open("/proc/self/maps") if line.rstrip().endswith(".het")]
print([line[1] for line in maps])
"""


def test_a_moved_copy_is_served_by_the_library_alone(rng, tmp_path):
    model = item_model()
    fill("item", np.arange(10), rng)
    export(model, tmp_path / "first")
    shutil.copytree(tmp_path / "first", tmp_path / "elsewhere" / "m")
    shutil.rmtree(tmp_path / "first")
    ids = [3, 7, 1234]
    said = run_alone(ALONE, str(library.LIBRARY), str(tmp_path / "elsewhere" / "m"), json.dumps(ids))
    rows, imported, mapped = said.strip().splitlines()[-3:]
    np.testing.assert_array_equal(np.float32(json.loads(rows)), het_tf.Table("item").lookup(ids))
    assert imported == "False"
    assert mapped == "['r--s']"  # one copy for all processes, read-only


def test_a_new_export_at_the_old_path(rng, tmp_path):
    model = item_model()
    first = fill("item", np.arange(4), rng)
    export(model, tmp_path / "m")
    old = serve(tmp_path / "m")
    np.testing.assert_array_equal(old(id=np.arange(4))["id"], first)
    second = fill("item", np.arange(4), rng)
    export(model, tmp_path / "m", overwrite=True)
    np.testing.assert_array_equal(serve(tmp_path / "m")(id=np.arange(4))["id"], second)
    np.testing.assert_array_equal(old(id=np.arange(4))["id"], first)


# --- the op -------------------------------------------------------------------------------------------------


def write(folder: Path, rng: np.random.Generator, name: str = "item", dim: int = 3) -> Path:
    """A serving file of the ids 0 to 9, rows.het, and its follow.json."""
    if name not in het_tf.tables():
        table = het_tf.TableConfig(name, dim)
        embedding_model(
            {"id": het_tf.FeatureConfig(table)}, {"id": keras.Input((), dtype="int64", name="id")}, name
        )
    fill(name, np.arange(10), rng)
    folder.mkdir()
    native.write(folder / "rows.het", Source(het_tf.TableConfig(name, dim), ""), Native())
    describe(folder)
    return folder / "rows.het"


def describe(folder: Path, file: str = "rows.het", table: str = "item") -> None:
    fields = {"dense": None, "max_age": None, "max_skew": None, "stale": "serve"}
    text = json.dumps({"tables": [{"name": table, "file": file}], **fields})
    (folder / native.FILE).write_text(text)


def raw(ids: Any, folder: Path, dim: int = 3, files: Any = ("rows.het",), path: Any = None) -> Any:
    return library.ops.het_serve(
        ids=[tf.constant(ids, tf.int64)],
        hints=[tf.zeros([0, dim])],
        path=tf.constant(str(folder / native.FILE) if path is None else path),
        ticket=[],
        files=files,
    )[0]


def test_no_optimisation_computes_the_op_before_it_is_served(rng, tmp_path):
    """Ids and path are constants here, and still the rows are those of the file as it is when it runs."""
    folder = tmp_path / "m"
    write(folder, rng)
    first = het_tf.Table("item").lookup([1, 2])

    @tf.function
    def constants() -> Any:
        return raw([1, 2], folder) + 0.0

    graph = constants.get_concrete_function()
    np.testing.assert_array_equal(graph().numpy(), first)
    definition = graph.graph.as_graph_def()
    assert [node.op for node in definition.node].count("HetServe") == 1
    graphs = tf.Graph()
    with graphs.as_default():
        node = raw([1, 2], folder) + 0.0
    shutil.rmtree(folder)
    write(folder, rng)
    with tf.compat.v1.Session(graph=graphs) as session:
        np.testing.assert_array_equal(session.run(node), het_tf.Table("item").lookup([1, 2]))
    assert not np.array_equal(first, het_tf.Table("item").lookup([1, 2]))


def test_what_is_no_serving_file(rng, tmp_path):
    folder = tmp_path / "m"
    content = write(folder, rng).read_bytes()
    with pytest.raises(tf.errors.NotFoundError, match=r"none/follow\.json.*copy or move it as a whole"):
        raw([1], tmp_path / "none")
    (folder / "cut.het").write_bytes(content[:-64])
    describe(folder, "cut.het")
    with pytest.raises(tf.errors.DataLossError, match=r"cut\.het is damaged.*copy it again"):
        raw([1], folder, files=["cut.het"])
    (folder / native.FILE).write_text("{}")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"follow\.json is not one of a native export"):
        raw([1], folder)
    describe(folder)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"no table in 'other\.het'"):
        raw([1], folder, files=["other.het"])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"hint.*must be \[0, 3\]"):
        raw([1], folder, dim=4)
    with pytest.raises(tf.errors.InvalidArgumentError, match="string scalar"):
        raw([1], folder, path=[str(folder)])
    with pytest.raises(tf.errors.InvalidArgumentError, match="2 files for 1 features"):
        raw([1], folder, files=["rows.het", "rows.het"])
    assert raw([1], folder).shape == (1, 3)


def test_nothing_is_overwritten(rng, tmp_path):
    path = write(tmp_path / "m", rng)
    before = path.read_bytes()
    with pytest.raises(OSError, match=r"rows\.het"):
        native.write(path, Source(het_tf.TableConfig("item", 3), ""), Native())
    assert path.read_bytes() == before


def test_an_asset_of_another_export_is_refused(rng, tmp_path):
    model = item_model()
    export(model, tmp_path / "m")
    path = write(tmp_path / "other", rng, "other", 3)
    shutil.copy(path, asset(tmp_path / "m"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="has the rows of table 'other'"):
        serve(tmp_path / "m")(id=np.array([1]))
