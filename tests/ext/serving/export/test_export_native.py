"""The native export: rows in files that are mapped, read by the op HetServe."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import saving_lib
import tensorflow as tf
from export_lib import fill, one_table, run_alone, serve

import het_tf
from het_tf.ext.serving.python.export import native
from het_tf.ext.serving.python.export.formats import Native
from het_tf.ext.serving.python.export.rows import Source
from het_tf.python.session import native as library

pytestmark = saving_lib.MARKS

keras = tf.keras


ALONE = """
import json, sys
import tensorflow as tf
tf.load_op_library(sys.argv[1])
answer = tf.saved_model.load(sys.argv[2]).signatures["serving_default"]
print(json.dumps(answer(ids=tf.constant(json.loads(sys.argv[3]), tf.int64))["ids"].numpy().tolist()))
print("het_tf" in sys.modules)
maps = [line.split() for line in open("/proc/self/maps") if line.rstrip().endswith(".het")]
print([line[1] for line in maps])
"""


def test_a_moved_copy_is_served_by_the_library_alone(rng, tmp_path):
    model = one_table(3)
    fill("item", np.arange(10), rng)
    het_tf.export(model, tmp_path / "first", Native(), verbose=False)
    shutil.copytree(tmp_path / "first", tmp_path / "elsewhere" / "m")
    shutil.rmtree(tmp_path / "first")
    ids = [3, 7, 1234]
    said = run_alone(ALONE, str(library.LIBRARY), str(tmp_path / "elsewhere" / "m"), json.dumps(ids))
    rows, imported, mapped = said.strip().splitlines()[-3:]
    np.testing.assert_array_equal(np.float32(json.loads(rows)), het_tf.Table("item").lookup(ids))
    assert imported == "False"
    assert mapped == "['r--s']"  # one copy for all processes, read-only


def test_a_model_that_is_replaced_before_its_first_request(rng, tmp_path):
    """Defect: it answers with its own dense weights and the rows of the other export."""
    model = one_table(3)
    fill("item", np.arange(4), rng)
    het_tf.export(model, tmp_path / "m", Native(), verbose=False)
    old = serve(tmp_path / "m")
    het_tf.export(model, tmp_path / "m", Native(), overwrite=True, verbose=False)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"has no table in 'rows-\w{8}-000\.het'"):
        old(ids=np.arange(4))


def write(folder: Path, rng: np.random.Generator) -> Path:
    """A serving file of the ids 0 to 9, rows.het, and its follow.json."""
    if "item" not in het_tf.tables():
        one_table(3)
    fill("item", np.arange(10), rng)
    folder.mkdir(exist_ok=True)
    native.write(folder / "rows.het", Source(het_tf.TableConfig("item", 3), ""), Native())
    describe(folder)
    return folder / "rows.het"


def describe(folder: Path, file: str = "rows.het", table: str = "item") -> None:
    fields = {"dense": None, "max_age": None, "max_skew": None, "stale": "serve"}
    (folder / native.FILE).write_text(json.dumps({"tables": [{"name": table, "file": file}], **fields}))


def raw(ids: Any, folder: Path, dim: int = 3, files: Any = ("rows.het",), path: Any = None) -> Any:
    ids, hints = [tf.constant(ids, tf.int64)], [tf.zeros([0, dim])]
    path = tf.constant(str(folder / native.FILE) if path is None else path)
    return library.ops.het_serve(ids=ids, hints=hints, path=path, ticket=[], files=files)[0]


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
    assert [node.op for node in graph.graph.as_graph_def().node].count("HetServe") == 1
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
    with pytest.raises(OSError, match=r"rows\.het"):
        write(folder, rng)
    assert (folder / "rows.het").read_bytes() == content, "nothing is overwritten"
    with pytest.raises(tf.errors.NotFoundError, match=r"none/follow\.json.*copy or move it as a whole"):
        raw([1], tmp_path / "none")
    (folder / "cut.het").write_bytes(content[:-64])
    describe(folder, "cut.het")
    with pytest.raises(tf.errors.DataLossError, match=r"cut\.het is damaged.*copy it again"):
        raw([1], folder, files=["cut.het"])
    (folder / native.FILE).write_text("{}")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"follow\.json is not one of a native export"):
        raw([1], folder)
    describe(folder, table="other")
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"has the rows of table 'item', and .*'other'"):
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
