"""Every bad input: the error names the argument, the value and the remedy, and nothing has changed."""

import contextlib
import json
import math
import os
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from rules_lib import keras, learn
from tools_lib import python

import het_tf
from het_tf.optimizers import Adagrad, RowWiseAdagrad
from het_tf.python import library, versions
from het_tf.python.session import native

pytestmark = [pytest.mark.usefixtures("fresh")]

PACKAGE = Path(het_tf.__file__).resolve().parent


def embedding(dim=4, name="t", **more):
    return het_tf.keras.Embedding(dim, name=name, **more)


# --- configurations -------------------------------------------------------------------------------

BAD = [
    (dict(dim=0), r"dim is 0; give an integer from 1 to 65536"),
    (dict(dim=-3), r"dim is -3"),
    (dict(dim=4.0), r"dim is 4.0; give an integer"),
    (dict(dim=True), r"dim is True"),
    (dict(dim=70000), r"dim is 70000"),
    (dict(dim=None), r"dim is None"),
    (dict(optimizer="adma"), r'optimizer is \'adma\'; give one of "sgd", .*"ftrl".*het_tf.optimizers'),
    (dict(optimizer=keras.optimizers.Adam()), r"optimizer is .*give one of"),
    (dict(optimizer={"name": "adam", "learning_rate": "fast"}), r"learning_rate is 'fast'"),
    (dict(initializer="glorot"), r'initializer is \'glorot\'; give one of "zeros"'),
    (dict(cache=100), r"cache is 100; give a het_tf.Cache, such as het_tf.Cache\(rows=.*or None"),
    (dict(cache={"rows": 100}), r"cache is \{'rows': 100\}; give a het_tf.Cache"),
    (dict(seed=-1), r"seed is -1"),
    (dict(seed=2**64), r"seed is 18446744073709551616"),
    (dict(l2=-1.0), r"l2 is -1"),
    (dict(l2=float("nan")), r"l2 is -?nan"),
    (dict(max_norm=0.0), r"max_norm is 0.0; it must be > 0, or None"),
    (dict(optimizer="ftrl", max_norm=1.0), r"max_norm does not go with optimizer 'ftrl'"),
    (dict(combiner="max"), r"combiner is 'max'; give one of \('sum', 'mean', 'sqrtn'\), or None"),
    (dict(padding_id=2**63), r"padding_id is 9223372036854775808"),
    (dict(max_sequence_length=0), r"max_sequence_length is 0"),
    (dict(max_sequence_length=3, combiner="sum"), r"max_sequence_length is 3 with combiner 'sum'"),
    (dict(table="a\0b"), r"a table's name"),
]

OF_KERAS = [
    ((1000, 16), {}, r"Embedding\(1000, 16\) has the arguments of keras.* write Embedding\(16\)"),
    ((1000,), dict(output_dim=16), r"Embedding\(1000, 16\) has the arguments of keras.* write"),
    ((4,), dict(mask_zero=True, padding_id=7), r"padding_id is 7, but mask_zero says 0; give one of the two"),
    ((4,), dict(initializer="zeros", embeddings_initializer="ones"),
     r"initializer is 'zeros', but embeddings_initializer says Constant"),
    ((4,), dict(name="t", weights=[np.ones((3, 4))]),
     r'weights .*: het_tf.Table\("t"\).assign\(range\(len\(rows\)\), rows\)'),
    ((4,), dict(embeddings_regularizer=keras.regularizers.L2(0.25)), r"L2, .*write l2=0.25, which"),
    ((4,), dict(embeddings_regularizer="l2"), r"L2, .*write l2=0.01, which"),
    ((4,), dict(embeddings_constraint=keras.constraints.MaxNorm(3)), r"MaxNorm, .*write max_norm=3, the"),
    ((4,), dict(lora_rank=2), r"lora_rank .*leave it out"),
]  # fmt: skip


def test_arguments_of_keras_embedding_are_taken(caplog):
    """Would catch: an argument that has another meaning here, and one that is dropped without a word."""
    more = {"input_length": 3, "embeddings_initializer": "ones"}
    made = het_tf.keras.Embedding(input_dim=1000, output_dim=2, mask_zero=True, name="t", **more)
    assert [record.getMessage() for record in caplog.records] == [
        "het_tf.keras.Embedding 't': input_dim is ignored: a table has no size, and every id is legal",
        "het_tf.keras.Embedding 't': input_length is ignored: ids may have any length",
    ]
    ids = np.array([[5, 0]])
    np.testing.assert_array_equal(made(ids), [[[1, 1], [0, 0]]])
    np.testing.assert_array_equal(made.compute_mask(ids), [[True, False]])
    normal = keras.initializers.RandomNormal(1.0, 0.5)
    made = het_tf.keras.Embedding(2, mask_zero=False, embeddings_initializer=normal)
    assert repr(made.tables[0].initializer) == repr(het_tf.initializers.RandomNormal(1.0, 0.5))
    assert made.get_config()["features"]["features"][0]["padding_id"] is None


def test_attributes_of_keras_embedding_say_what_to_write():
    layer = het_tf.keras.Embedding(2, name="t")
    for name in ("embeddings", "input_dim"):
        words = rf"no attribute '{name}': .*het_tf.Table\('t'\).to_numpy\(\)"
        with pytest.raises(AttributeError, match=words):
            getattr(layer, name)
    with pytest.raises(AttributeError, match=r"no attribute 'embedings'$"):
        layer.embedings  # noqa: B018
    with pytest.raises(RuntimeError, match=r"het_tf.Table\(name\) reads and assigns"):
        layer.set_weights([np.ones((3, 2))])


def test_a_sequential_model_without_an_input_says_what_to_write():
    """Would catch: ids that Keras has made float32, which holds no id above 2**24."""
    model = keras.Sequential([het_tf.keras.Embedding(2, name="t"), keras.layers.Flatten()])
    with pytest.raises(ValueError, match=r'keras.Sequential\(\[keras.Input\(shape, dtype="int64"\), ...\]\)'):
        model(np.array([[2**40, 2**40 + 1]]))


BAD_CACHES = [
    (dict(policy="fifo"), r'cache.policy is .fifo.; it must be "lru" or "lfu"'),
    (dict(staleness=-1), r"cache.staleness is -1; it must be a number of updates >= 0"),
    (dict(staleness=1.5), r"cache.staleness is 1.5"),
    (dict(staleness=het_tf.Bounds(-2, 0)), r"cache.staleness.pull is -2"),
    (dict(staleness=het_tf.Bounds(0, -2)), r"cache.staleness.push is -2"),
    (dict(staleness=het_tf.Bounds(0, "unbounded")), r'.push is "unbounded"; it must be a n.*math.inf'),
    (dict(rows=-1), r"cache.rows is -1; it must be an integer from 0 to 4294967294"),
    (dict(rows=2**32 - 1), r"cache.rows is 4294967295"),
    (dict(bytes=0), r"cache.bytes is 0; it must be an integer from 1"),
    (dict(bytes=2.5), r"cache.bytes is 2.5"),
    (dict(bytes=1 << 20, rows=5), r"cache.bytes is 1048576, and cache.rows is 5;.*one of the two"),
    (dict(rows={}), r"cache.rows is \{\}; give a dict from the name of each table"),
    (dict(rows={"item": None}), r"cache.rows is \{'item': None\}; give a dict"),
    (dict(rows={1: 5}), r"cache.rows is \{1: 5\}; give a dict from the name"),
    (dict(rows={"item": 5, "user": -1}), r"table 'user': cache.rows is -1; it must be an integer from 0"),
    (dict(rows={"item": 5}, bytes=9), r"table 'item': cache.bytes is 9, and cache.rows is 5"),
    (dict(wire="fp16"), r'cache.wire is \'fp16\'; it must be "float32", "float16", "int8" or "int4"'),
    (dict(push_max_age=0), r"cache.push_max_age is 0; it must be a number of seconds from 0.01"),
    (dict(push_max_age="1s"), r'cache.push_max_age is "1s"; it must be a number of seconds'),
    (dict(push_max_age=1, device="gpu"), r'cache.push_max_age is 1.0 with device="gpu".*device="cpu"'),
    (dict(checks="notified me"), r'cache.checks is .notified me.; it must be "asked" or "notified"'),
    (dict(device="cuda"), r'cache.device is \'cuda\'; give "cpu" .* "gpu" .* or "auto"'),
    (dict(device=1), r"cache.device is 1"),
    (dict(rows=0, device="gpu"), r'cache.rows is 0 with device="gpu".*give rows or bytes'),
    (dict(rows=0, device="auto"), r'cache.rows is 0 with device="gpu"'),
]


ELSEWHERE = [
    (lambda: het_tf.Bounds(0, None), r"Bounds\(push=...\) is None; give a number of updates"),
    (lambda: het_tf.optimizers.SGD(-0.1), "learning_rate is -0.1; it must be >= 0"),
    (lambda: het_tf.optimizers.SGD(float("inf")), "learning_rate is inf"),
    (lambda: het_tf.optimizers.SGD(None), "learning_rate is None; give a number"),
    (lambda: het_tf.optimizers.Adam(beta_1=-1), "^optimizer 'adam': parameter 'beta_1' is -1; give a"),
    (lambda: het_tf.optimizers.SGD(momentum="x"), "momentum=.* is 'x'"),
    # NaN as a root, first steps larger than AdaGrad's, 0 / 0; optimizer_create_test.cc has all bounds.
    (lambda: Adagrad(initial_accumulator=-0.5), "'initial_accumulator' is -0.5.*; give a value from 0 to"),
    (lambda: Adagrad(decay_steps=0.5), "'decay_steps' is 0.5.*; give a value from 1 to"),
    (lambda: Adagrad(epsilon=0), "'epsilon' is 0.*; give a value from 1e-30 to"),
    (lambda: het_tf.initializers.RandomUniform(2, 1), "exchange them"),
    (lambda: het_tf.initializers.RandomNormal(0, -1), "stddev is -1"),
    (lambda: het_tf.TableConfig("", 4), "non-empty string"),
    (lambda: het_tf.FeatureConfig("t"), "table is 't'; give a het_tf.TableConfig"),
    (lambda: het_tf.keras.EmbeddingCollection({}), "features is empty"),
    (lambda: het_tf.keras.EmbeddingCollection({"a": 3}), r"features\['a'\] is 3"),
    (lambda: het_tf.keras.EmbeddingCollection(7), "features is 7"),
    (lambda: het_tf.keras.EmbeddingCollection(
        [het_tf.FeatureConfig(het_tf.TableConfig("t", dim)) for dim in (4, 5)]),
     r"two tables have the name 't'.*different names"),
    (lambda: het_tf.init(gradient_scale="avg"), "gradient_scale is 'avg'"),
    (lambda: het_tf.init(threads=0), "threads is 0"),
    (lambda: het_tf.namespace(3).__enter__(), "namespace is 3"),
    (lambda: het_tf.Table(None), "name is None; give the name of a table"),
    (lambda: het_tf.Table(3), "name is 3; give the name of a table"),
]  # fmt: skip
CALLS = [
    *((partial(embedding, **given), ValueError, f"(?s){words}") for given, words in BAD),
    *((partial(het_tf.Cache, **given), ValueError, words) for given, words in BAD_CACHES),
    *((partial(het_tf.keras.Embedding, *of, **more), TypeError, words) for of, more, words in OF_KERAS),
    *((call, ValueError, words) for call, words in ELSEWHERE),
]


@pytest.mark.parametrize(("call", "error", "words"), CALLS, ids=[words for *_, words in CALLS])
def test_bad_arguments(call, error, words):
    with pytest.raises(error, match=words):
        call()
    assert het_tf.tables() == []


def test_a_cache_is_a_value():
    bounded = het_tf.Cache(staleness=het_tf.Bounds(np.int64(5), math.inf))
    assert het_tf.Cache.from_config(json.loads(json.dumps(bounded.get_config()))) == bounded
    assert bounded != het_tf.Cache(staleness=5)
    cache = het_tf.Cache(rows=np.int64(7), staleness=3.0, policy="lru")
    assert cache == het_tf.Cache(policy="lru", staleness=3, rows=7) and cache != het_tf.Cache(rows=7)
    assert het_tf.Cache.from_config(cache.get_config()) == cache
    assert len({cache, het_tf.Cache.from_config(cache.get_config())}) == 1
    with pytest.raises(AttributeError):
        cache.rows = 8


# --- two tables of one name, and names that are long -----------------------------------------------


@pytest.mark.parametrize(("change", "words"), [
    *((change, r"table 't' exists with another spec: [a-z_.]+ is .*wanted.*het_tf.reset\(\)") for change in (
        dict(dim=5),
        dict(optimizer="adam"),
        dict(optimizer=RowWiseAdagrad(epsilon=1e-3)),
        dict(initializer="zeros"),
        dict(seed=1),
        dict(cache=het_tf.Cache(rows=10)),
    )),
    (dict(optimizer=RowWiseAdagrad(0.2)), "learning_rate 0.1, but is declared again with 0.2"),
])  # fmt: skip
def test_two_tables_of_one_name_in_two_layers(change, words):
    optimizer = RowWiseAdagrad(0.1)
    first = embedding(table="t", name="first", optimizer=optimizer)
    with pytest.raises(ValueError, match=words):
        embedding(**{"table": "t", "name": "second", "optimizer": optimizer, **change})
    embedding(table="t", name="third", optimizer=optimizer)
    assert first(tf.constant([1])).shape == (1, 4)


def test_long_names_are_short_in_messages():
    """Defect: 300 characters of a name, once in Python's part of a message and once in the core's."""
    long = "user_" + "x" * 290 + "_last"
    short = r"'user_x{25}'\.\.\.'x{10}_last' \(300 characters\)"
    feature = het_tf.FeatureConfig(het_tf.TableConfig("t", 4))
    with pytest.raises(ValueError, match=f"feature {short}: ids are float32"):
        het_tf.keras.EmbeddingCollection({long: feature})({long: np.ones(2, "float32")})
    layer = embedding(table=long)
    with pytest.raises(ValueError, match=f"table {short} exists with another spec") as raised:
        embedding(8, table=long)
    assert long not in str(raised.value) and layer.tables[0].name == long


def test_a_search_over_dims_leaves_the_name_out():
    """Defect: the message of the second trial says nothing that helps a search, as tuners make it."""
    first = embedding(name="user")
    with pytest.raises(ValueError, match=r"'user' exists with another spec: dim.*leave the name out if"):
        embedding(8, name="user")
    het_tf.reset()  # what the message offers, too
    for dim in (4, 8, 4):
        assert het_tf.keras.Embedding(dim)(tf.constant([1])).shape == (1, dim)
    del first


# --- ids and weights (see also test_inputs.py) ----------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16", "bool", "complex64"])
def test_ids_that_are_no_integers(dtype):
    with pytest.raises(ValueError, match=f'ids are {dtype}.*keras.Input.*dtype="int64"'):
        embedding()(tf.cast([1, 0], dtype))


def test_sparse_ids_without_a_combiner():
    with pytest.raises(ValueError, match="sparse and there is no combiner"):
        embedding()(tf.sparse.from_dense([[1, 2]]))


# --- memory ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def memory(more):
    """The core's memory ends `more` bytes above what is held now."""
    native.call("HetSetAllocLimit", native.call_int("HetAllocatedBytes") + more)
    try:
        yield
    finally:
        native.call("HetSetAllocLimit", 2**63 - 1)


@pytest.mark.parametrize("more_options", [{}, {"cache": het_tf.Cache(rows=100_000)}])
def test_memory_ends_while_a_table_grows(more_options):
    """The step fails with RESOURCE_EXHAUSTED, no row changes, and the next one works."""
    layer = embedding(16, optimizer=het_tf.optimizers.SGD(1.0), initializer="zeros", **more_options)
    ids = tf.range(20000, dtype=tf.int64)

    def step(ids):
        learn(layer, lambda: layer(ids))

    step(ids[:10])
    with memory(100_000), pytest.raises(tf.errors.ResourceExhaustedError, match="out of memory"):
        step(ids)
    np.testing.assert_array_equal(het_tf.Table("t").lookup([0, 9, 10, 19999])[:, 0], [-1, -1, 0, 0])
    assert het_tf.Table("t").size == 10
    step(ids)
    np.testing.assert_array_equal(het_tf.Table("t").lookup([0, 9, 10, 19999])[:, 0], [-2, -2, -1, -1])


def test_memory_ends_outside_of_a_step():
    embedding(16)
    table = het_tf.Table("t")
    with memory(1000), pytest.raises(MemoryError, match="out of memory"):
        table.assign(np.arange(20000), np.zeros((20000, 16)))
    table.clear()
    table.assign(np.arange(20000), np.ones((20000, 16)))
    assert table.size == 20000


# --- what the first use of a name refuses ----------------------------------------------------------


def use_in_a_process(paths, code="import het_tf; het_tf.tables()", **variables):
    # Not in the source tree: Python looks into the current directory first.
    environment = {"PYTHONPATH": os.pathsep.join(map(str, paths)), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = python("-c", code, status=None, cwd=paths[0], **environment, **variables)
    return done.returncode, done.stdout, (done.stderr.strip() or "nothing").splitlines()[-1]


def version(number):
    """A module that het_tf can register its classes in."""
    return f"__version__ = {number!r}\nclass saving: get_custom_objects = dict"


MISSING = "raise ImportError('No module named x')"
WORKS = "works with TensorFlow >=2.16,<2.22 and Keras >=3.10,"


VERSIONS = [
    ({"tensorflow": MISSING}, {},
     "needs TensorFlow (or KERAS_BACKEND=torch or jax), which does not import (No module named x)"),
    ({"tensorflow": version("2.15.1")}, {}, f"{WORKS} not TensorFlow 2.15.1"),
    ({"tensorflow": version("2.22.0")}, {}, f"{WORKS} not TensorFlow 2.22.0"),
    ({"keras": MISSING}, {}, f"{WORKS} but Keras does not import (No module named x)"),
    ({"keras": version("2.15.0")}, {}, f"{WORKS} not Keras 2.15.0"),
    ({"keras": version("3.9.2")}, {}, f"{WORKS} not Keras 3.9.2"),
    ({}, {"TF_USE_LEGACY_KERAS": "1"},
     f"{WORKS} not Keras 2 (tf-keras), which TF_USE_LEGACY_KERAS=1 chooses"),
]  # fmt: skip


@pytest.mark.parametrize(("modules", "variables", "words"), VERSIONS)
@pytest.mark.parametrize("code", ["import het_tf; het_tf.tables()", "import het_tf.keras"])
def test_other_versions_are_refused_by_one_line(tmp_path, code, modules, variables, words):
    for name, source in {"tensorflow": version("2.16.2"), "keras": version("3.10.0"), **modules}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(source)
    status, _, line = use_in_a_process([tmp_path, PACKAGE.parent], code, **variables)
    pip = "pip install " + ("tensorflow-cpu==2.21.0" if "tensorflow" in modules else "'keras>=3.10'")
    unset = "unset TF_USE_LEGACY_KERAS; " if variables else ""
    assert status != 0 and line == f"ImportError: het_tf {words}; run: {unset}{pip}"


def test_the_wheel_asks_for_the_versions_that_work():
    project = (versions.TREE / "pyproject.toml").read_text()
    between = ">={},<{}".format(*versions.TENSORFLOW)
    for asked in (f"keras>={versions.KERAS}", f"tensorflow{between}", f"tensorflow-cpu{between}"):
        assert f'"{asked}"' in project


def test_the_native_library_is_broken(tmp_path, monkeypatch):
    with monkeypatch.context() as outside:
        outside.setattr(versions, "TREE", None)
        missing = r"^het_tf's native library .*/none\.so is missing; run: make wheel in het_tf's source tree"
        with pytest.raises(ImportError, match=missing):
            library.load(tmp_path / "none.so")
    (tmp_path / "libhet_tf.so").write_bytes(b"no library")
    monkeypatch.setattr(native, "LIBRARY", tmp_path / "libhet_tf.so")
    with pytest.raises(ImportError, match=r"native library does not load \(.*\); run: make -C .* build"):
        library.load(native.LIBRARY)


def test_a_cpu_that_the_library_was_not_built_for(monkeypatch):
    monkeypatch.setattr(versions, "plugin_march", lambda path: "x86-64-v3")
    monkeypatch.setattr(versions, "cpu_lacks", lambda march: ["avx2", "bmi1"])
    words = r"built for x86-64-v3, but this CPU lacks avx2, bmi1; run: .*MARCH="
    with pytest.raises(ImportError, match=words):
        library.load(native.LIBRARY)


def test_the_package_and_the_doctor_import_nothing_else(tmp_path):
    """A copy of the Python files, without a library."""
    ignored = shutil.ignore_patterns("lib", "core", "kernels", "ops", "__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "het_tf", ignore=ignored)
    code = "import sys, het_tf.doctor; print(sorted({'tensorflow', 'keras', 'numpy'} & set(sys.modules)))"
    assert use_in_a_process([tmp_path], code) == (0, "[]\n", "nothing")
