"""What is an id (python/ids.py has the rule): one table of cases, the same at each door and on each backend.

Each case would catch a door that takes what another refuses, or that makes another id of it.
"""

import datetime
import decimal
import importlib.util

import numpy as np
import pytest
from backends_lib import BACKEND, DIM, array, invalid

import het_tf
from het_tf.ext.sizing.python.profile import Profiler

BIG = 2**63 + 1
OF_BIG = BIG - 2**64
TEXTS = ["7", "18446744073709551615"]  # text is text, also of digits: neither 7 nor a number
ROW = [[3, 7], [1, 2]]

# What is given -> its ids; a list of strings: the ids of these.
IDS = {
    "list": ([3, -7], [3, -7]),
    "tuple": ((3, 7), [3, 7]),
    "numpy in a list": ([np.int64(3), np.uint8(7)], [3, 7]),
    "rows": ([np.array([3, 7]), [1, 2]], ROW),
    "empty": ([], []),
    "two empty": ([[], []], [[], []]),
    "no objects": (np.array([], object), []),
    "no strings": (np.array([], "U3"), []),
    **{of: (np.array([3, -7], of), [3, -7]) for of in ("int8", "int16", "int32", "int64")},
    **{of: (np.array([3, 7], of), [3, 7]) for of in ("uint8", "uint16", "uint32")},
    "objects": (np.array([3, np.int32(-7)], object), [3, -7]),
    "rows of objects": (np.array([np.array([3, 7]), None, np.array([1, 2])], object)[::2], ROW),
    "unsigned": (np.array([BIG, 2**64 - 1], np.uint64), [OF_BIG, -1]),
    "unsigned in a list": ([BIG, 2**64 - 1], [OF_BIG, -1]),
    "large and negative": ([np.uint64(BIG), -7], [OF_BIG, -7]),
    "large objects": (np.array([BIG, -7], object), [OF_BIG, -7]),
    "text": (TEXTS, TEXTS),
    "np.str_": ([np.str_(one) for one in TEXTS], TEXTS),
    "bytes": ([one.encode() for one in TEXTS], TEXTS),
    "bytes of no text": ([b"\xff\0"], [b"\xff\0"]),
    "str and bytes": (["7", TEXTS[1].encode()], TEXTS),
    "array of text": (np.array(TEXTS), TEXTS),
    "array of bytes": (np.array(TEXTS, "S"), TEXTS),
    "objects of text": (np.array(TEXTS, object), TEXTS),
    "StringDType": (np.array(TEXTS, np.dtypes.StringDType()), TEXTS),
    "zeros at the end": (["a\0"], ["a\0"]),
    "unmasked": (np.ma.array([3, 7], mask=[False, False]), [3, 7]),
}

MISSING = r"fill or drop missing values"
# What is given -> what the message has.
REFUSED = {
    "floats": ([3.0, 7.0], r"hold 3\.0, a float; .*integers or strings"),
    "array of floats": (np.array([3.0, 7.0], "float32"), f"are float32; .*{MISSING}"),
    "NaN": (np.array([3, np.nan]), f"are float64; .*{MISSING}"),
    "no floats": (np.zeros(0), "are float64; "),
    "int and float": ([3, 7.0], r"hold 7\.0, a float; "),
    "bools": ([True, False], "hold True, a bool; "),
    "array of bools": (np.array([True, False]), "are bool; "),
    "int and bool": ([3, True], "hold True, a bool; "),
    "objects and bool": (np.array([3, True], object), "hold True, a bool; "),
    "int and None": ([3, None], f"hold None, a NoneType; .*{MISSING}"),
    "text and None": (np.array(["7", None], object), f"hold None, a NoneType; .*{MISSING}"),
    "masked": (np.ma.array([3, 7], mask=[False, True]), f"hold None, a NoneType; .*{MISSING}"),
    "text and int": (["7", 7], r"hold integers and strings, such as 7 and '7'; give one kind"),
    "beyond 64 bits": ([3, 2**64], rf"hold {2**64}; integers are from -2\*\*63 to 2\*\*64 - 1"),
    "below 64 bits": ([-(2**63) - 1], rf"hold {-(2**63) - 1}; integers are from"),
    "dates": ([datetime.date(2026, 1, 2)], r"hold datetime\.date\(2026, 1, 2\), a date; "),
    "array of dates": (np.array(["2026-01-02"], "datetime64[D]"), r"are datetime64\[D\]; "),
    "decimals": ([decimal.Decimal(3)], r"hold Decimal\('3'\), a Decimal; "),
    "complex": (np.array([1j]), "are complex128; "),
    "record": (np.array([(3,)], [("a", "i8")]), "are .*'a'.*; "),
    "set": ({3}, "hold .3., a set; "),
    "None": (None, "hold None, a NoneType; "),
    "several lengths": ([[1, 2], [3]], "hold lists of several lengths; give them "),
    "surrogate": (["\ud800"], "make no tensor: .*(UTF|utf)-8"),
}


def columns():
    """The same of columns of pandas and Arrow; Polars, DuckDB and Spark give the latter's types."""
    import pandas as pd
    import pyarrow as pa

    text, rows, integers = pa.array(TEXTS), pa.array(ROW), pa.array([3, 7])
    views = [pa.string_view(), pa.binary_view(), pa.large_string(), pa.binary(), pa.large_binary()]
    ids = {str(one): (pa.array(TEXTS).cast(pa.binary()).cast(one), TEXTS) for one in views}
    ids |= {
        "chunks": (pa.chunked_array([[3], [7]]), [3, 7]),
        "uint64": (pa.array([BIG], pa.uint64()), [OF_BIG]),
        "dictionary": (text.dictionary_encode(), TEXTS),
        "dictionary of int": (integers.dictionary_encode(), [3, 7]),
        "list": (rows, ROW),
        "list_view": (pa.array(ROW, pa.list_view(pa.int64())), ROW),
        "fixed list": (pa.array(ROW, pa.list_(pa.int64(), 2)), ROW),
        "list of dictionary": (pa.ListArray.from_arrays([0, 2], text.dictionary_encode()), [TEXTS]),
        "list_view of views": (pa.array([TEXTS], pa.list_view(pa.string_view())), [TEXTS]),
        "Int64": (pd.Series([3, 7], dtype="Int64"), [3, 7]),
        "UInt64": (pd.Series([BIG], dtype="UInt64"), [OF_BIG]),
        "str": (pd.Series(TEXTS), TEXTS),
        "category": (pd.Series(TEXTS, dtype="category"), TEXTS),
        "ArrowDtype": (pd.Series(ROW, dtype=pd.ArrowDtype(pa.list_(pa.int64()))), ROW),
    }
    refused = {
        "nulls": (pa.array([3, None]), f"are float64; .*{MISSING}"),
        "nulls of text": (pa.array(["7", None], pa.string_view()), f"hold None, .*{MISSING}"),
        "nulls in lists": (pa.array([[3, 7], None]), f"hold None, .*{MISSING}"),
        "only nulls": (pa.nulls(2), f"hold None, .*{MISSING}"),
        "Int64 with NA": (pd.Series([3, None], dtype="Int64"), f"are float64; .*{MISSING}"),
        "category with NA": (pd.Series(["7", None], dtype="category"), f"hold nan, a float.*{MISSING}"),
        "str with NA": (pd.Series(["7", None]), f"hold nan, a float.*{MISSING}"),
        "timestamp": (pa.array([datetime.datetime(2026, 1, 2)]), "are datetime64"),
        "decimal": (pa.array([decimal.Decimal(3)]), "hold .*a Decimal; "),
        "struct": (pa.array([{"a": 3}]), "hold .*a dict; "),
        "list of several lengths": (pa.array([[1, 2], [3]]), "hold lists of several lengths"),
    }
    return ids, refused


if BACKEND == "tensorflow" and all(map(importlib.util.find_spec, ("pandas", "pyarrow"))):
    for table, more in zip((IDS, REFUSED), columns(), strict=True):
        table |= {f"column: {name}": case for name, case in more.items()}


def doors():
    """Name of a door -> a function from what a user gives to rows or ids."""
    item = het_tf.TableConfig("t", DIM)
    embed = het_tf.keras.EmbeddingCollection({"f": het_tf.FeatureConfig(item)})
    table = het_tf.Table("t")

    def assign(given):
        table.assign(given, np.ones((len(given), DIM)))
        return table.remove(given)

    return {
        "layer": lambda given: array(embed({"f": given})["f"]),
        "lookup": table.lookup,
        "assign": assign,
        "remove": table.remove,
        "profile": lambda given: Profiler({"f": het_tf.FeatureConfig(item)}).add({"f": given}),
        "hash_ids": het_tf.Table.hash_ids,
    }


@pytest.mark.parametrize("case", IDS)
def test_ids(case):
    given, expected = IDS[case]
    at, table = doors(), het_tf.Table("t")
    numbers = np.array(expected, object)
    strings = bool(numbers.size) and isinstance(numbers.flat[0], str | bytes)
    numbers = het_tf.Table.hash_ids(expected) if strings else numbers.astype(np.int64)
    rows = table.lookup(numbers)
    np.testing.assert_array_equal(at["lookup"](given), rows)
    if BACKEND == "jax" and (abs(numbers) >= 2**31).any():
        with pytest.raises(ValueError, match=r"feature 'f': .*beyond 2.*JAX_ENABLE_X64"):
            at["layer"](given)
    else:
        np.testing.assert_array_equal(at["layer"](given), rows)
    assert numbers.ndim > 1 or at["assign"](given) == numbers.size
    if numbers.size:
        at["profile"](given if not isinstance(given, tuple) else list(given))
    if strings or not numbers.size:
        np.testing.assert_array_equal(at["hash_ids"](given), numbers)
    else:
        with pytest.raises(ValueError, match=r"strings are int64; give strings, an integer is its own id"):
            at["hash_ids"](given)


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_id_is_refused_alike(case):
    given, message = REFUSED[case]
    subjects = {"layer": "feature 'f': ids", "profile": "feature 'f': ids", "hash_ids": "strings"}
    for name, door in doors().items():
        subject = subjects.get(name, "table 't': ids")
        if name == "assign" and not hasattr(given, "__len__"):
            continue
        with pytest.raises(ValueError, match=f"{subject} {message}"):
            door(given)
    assert het_tf.Table("t").size == 0


@pytest.mark.skipif(BACKEND == "jax", reason="its integers have 32 bits")
def test_the_integer_that_nan_becomes_is_refused_alike():
    """Would catch: rows that a table takes and no model can read."""
    at = doors()
    for name in ("layer", "lookup", "assign", "remove"):
        with pytest.raises((ValueError, invalid()), match=r"1 of 2 ids are -2\^63, .* what NaN becomes"):
            at[name](np.array([3, 2**63], np.uint64))
    assert het_tf.Table("t").size == 0
