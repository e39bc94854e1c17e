"""Streams that shard_placed places by a field, with ranks that are played."""

import numpy as np
import pytest
import tensorflow as tf
from placing_lib import placed as by_the_rule

import het_tf
from het_tf.ext.streams.python import agreement
from het_tf.ext.streams.python.agreement import Stream

RANKS, BATCH, SAMPLES = 4, 8, 4 * 8 * 6 + 5


def columns(samples=SAMPLES):
    skewed = np.random.default_rng(0).zipf(1.4, samples)
    return {
        "id": skewed.astype(np.int64) * 7919 - 50_000,
        "small": (skewed % 200).astype(np.uint8),
        "row": np.arange(samples, dtype=np.int32)[:, None],
        "name": np.array([f"é{one}".encode() * (one % 3) + b"\0" * (one % 2) for one in skewed], object),
        "same": np.array([b""] * samples, object),
        "price": np.ones(samples, np.float32),
        "pair": np.stack([skewed, skewed], 1),
    }


def dataset(samples=SAMPLES):
    return tf.data.Dataset.from_tensor_slices((columns(samples), np.arange(samples), np.ones(samples)))


@pytest.mark.slow
@pytest.mark.parametrize("by", ["id", "small", "row", "name", "same"])
def test_ranks_take_what_the_rule_gives_them(four, by):
    """The rule by an oracle that reads it word by word, placing_lib.py."""
    expected = by_the_rule(columns()[by].reshape(-1).tolist(), RANKS, BATCH)
    for me in range(RANKS) if by == "id" else (2,):
        four.me = me
        placed = het_tf.workers.shard_placed(dataset(), by=by, batch=BATCH)
        assert placed.element_spec[0]["pair"].shape == (BATCH, 2) and int(placed.cardinality()) == 6
        found = list(placed.as_numpy_iterator())
        np.testing.assert_array_equal([numbers for _, numbers, _ in found], expected[:, me])
        for features, numbers, _ in found:
            for name, column in columns().items():
                np.testing.assert_array_equal(features[name], column[numbers], err_msg=name)


def test_other_elements_are_placed_too(four):
    ids = columns()["id"]
    mine = by_the_rule(ids, RANKS, BATCH)[:, 0]
    ragged = tf.RaggedTensor.from_row_lengths(np.arange(3 * SAMPLES), [3] * SAMPLES)
    found = list(het_tf.workers.shard_placed(
        tf.data.Dataset.from_tensor_slices({"id": ids, "tags": ragged}), by="id", batch=BATCH
    ))  # fmt: skip
    np.testing.assert_array_equal([one["id"] for one in found], ids[mine])
    np.testing.assert_array_equal(found[2]["tags"].to_tensor()[:, 0], 3 * mine[2])
    four.ranks, four.others = 1, lambda mine: []
    alone = het_tf.workers.shard_placed(dataset(), by="id", batch=BATCH)
    assert [int(numbers[0]) for _, numbers, _ in alone] == list(range(0, SAMPLES - BATCH + 1, BATCH))


LAYER = "a layer"
FITTING = "'id', 'small', 'row', 'name', 'same'"
REFUSED = {
    "no field": (dataset, dict(by="di"), rf"'di', which the data lacks; .*: {FITTING}$"),
    "a number": (dataset, dict(by="price"), rf"'price', which is float32, a number, .*: {FITTING}$"),
    "a vector": (dataset, dict(by="pair"), r"which has the shape \[2\] a sample"),
    "batches": (lambda: dataset().batch(4), dict(by="id"), r"\[None\] a sample; shard_placed comes before"),
    "ragged": (
        lambda: tf.data.Dataset.from_tensor_slices({"tags": tf.ragged.constant([[1], [1, 2]])}),
        dict(by="tags"), "'tags', which is RaggedTensor: several values a sample; .*: none",
    ),
    "sparse": (
        lambda: tf.data.Dataset.from_tensor_slices({"id": [1, 2], "s": tf.sparse.eye(2)}), dict(by="id"),
        r"is sparse .*RaggedTensor\.from_sparse, before shard_placed",
    ),
    "no features": (lambda: tf.data.Dataset.range(9), dict(by="id"), "samples are neither dicts of features"),
    "arrays": (lambda: np.zeros(9), dict(by="id"), r"data is a ndarray.*make one by .*from_tensor_slices"),
    "no batch": (dataset, dict(by="id", batch=None), "batch is None; give an integer of 1 or more"),
    "batch 0": (dataset, dict(by="id", batch=0), "batch is 0; give an integer of 1 or more"),
    # Errors of the plan that came from within tf.data would not be told to the other ranks.
    "no plan": (dataset, dict(by="location"), "by is 'location', but lookahead is None; give look"),
    "no layer": (dataset, dict(by="location", lookahead=3), "layer is 3, a int, without lookups of het_tf"),
    "no layers": (dataset, dict(by="location", lookahead=[]), "layer is empty"),
    "other inputs": (
        lambda: tf.data.Dataset.range(99), dict(by="location", lookahead=LAYER),
        r"ids are .* give them a batch axis|dict",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_placed_is_refused(four, name):
    make, arguments, message = REFUSED[name]
    if arguments.get("lookahead") == LAYER:
        feature = het_tf.FeatureConfig(het_tf.TableConfig("of_location", 2))
        arguments = {**arguments, "lookahead": het_tf.keras.EmbeddingCollection({"user": feature})}
    with pytest.raises(ValueError, match=message):
        het_tf.workers.shard_placed(make(), **{"batch": BATCH, **arguments})


def layer(name, table=None):
    return het_tf.keras.Embedding(2, name=name, table=table, cache=het_tf.Cache(rows=10))


def calls_twice(name):
    rows = layer(name)
    inputs = {key: tf.keras.Input((), dtype="int64", name=f"{key}_of_{name}") for key in ("id", "small")}
    return tf.keras.Model(inputs, rows(inputs["id"]) + rows(inputs["small"]))


NOT_ON_DEMAND = {
    "no layer": (lambda name: None, "lookahead is None; give the layer"),
    "a table of two layers": (
        lambda name: [layer("a", table="t"), layer("b", table="t")],
        "layers 'a' and 'b' share table 't': neither knows",
    ),
    "a layer twice": (lambda name: [layer(name)] * 2, "has a layer twice"),
    "a model that calls one twice": (calls_twice, "or calls it twice"),
}


@pytest.mark.parametrize("name", NOT_ON_DEMAND)
def test_rows_that_cannot_travel_on_demand_are_refused(fresh, four, name):
    """Would catch: two lookups of a table in a step, of which neither knows what the other one needs."""
    make, message = NOT_ON_DEMAND[name]
    with pytest.raises(ValueError, match=message):
        het_tf.workers.shard_on_demand(dataset(), by="id", batch=BATCH, lookahead=make("id"))


def test_ranks_that_are_called_differently_are_told_at_once(played):
    for name, other, values in (
        ("batch", 9, "batch is 8 on rank 0, 9 on rank 1"), ("by", "x", "by is 'id' on rank 0, 'x' on rank 1"),
        ("workers", 4, "workers is 2 on rank 0, 4 on"), ("rule", 2, "rule is 1 on rank 0, 2 on rank 1"),
        ("type", "int32", "type is 'int64' on rank 0, 'int32' on rank 1"),
    ):  # fmt: skip
        played.others = lambda mine, change={name: other}: [([{**mine[0][0], **change}], [], "")]
        with pytest.raises(RuntimeError, match=values):
            het_tf.workers.shard_placed(dataset(), by="id", batch=BATCH)
    played.others = lambda mine: [([], ["ValueError"], "by is 'x'")]
    with pytest.raises(ValueError, match="rank 1 could not place its samples: by is 'x'"):
        het_tf.workers.shard_placed(dataset(), by="id", batch=BATCH)


def steps_until_told(placed, eager):
    """Takes a pass of steps; those before the ranks were told that they differ, and the message."""
    weight = tf.Variable(1.0)
    run = (lambda function: function) if eager else tf.function

    @run
    def step():
        weight.assign_sub(het_tf.workers.reduce_gradients([tf.ones([])], [weight])[0])

    for number, _ in enumerate(placed):
        before = weight.numpy()
        try:
            step()
        except tf.errors.InvalidArgumentError as error:
            assert weight.numpy() == before, "no update of a step that failed"
            return number, error.message
    return None, ""


@pytest.mark.slow
@pytest.mark.parametrize("eager", [False, pytest.param(True, marks=pytest.mark.long)])
def test_ranks_that_read_another_order_are_told(played, eager):
    def stream(turned=False):
        samples = dataset(100 * 2 * BATCH)
        if turned:  # the same global batches
            turn = lambda *batch: tf.nest.map_structure(lambda column: column[::-1], batch)  # noqa: E731
            samples = samples.batch(2 * BATCH).map(turn).unbatch()
        return het_tf.workers.shard_placed(samples, by="id", batch=BATCH)

    def begin_again():
        Stream._passes.clear()
        Stream._notes = None

    assert steps_until_told(stream(), eager) == (None, "")
    mine = Stream._notes.newest.numpy()
    assert mine[-6:, :3].tolist() == [[1, 1, number] for number in range(16, 97, 16)]
    assert len(set(mine[-6:, 3])) == 6
    # Notes of another rank, whose order differs from the 40th global batch on.
    other = mine.copy()
    other[-4:, 3] += 1
    begin_again()
    # Ends of streams are gathered, too.
    played.gives = lambda tensor: other[None] if tensor.shape.rank == 3 else tensor
    number, message = steps_until_told(stream(), eager)
    assert number == 63
    expected = f"the first 48 global batches have the fingerprint {mine[-4, 3]} on rank 0 and {other[-4, 3]}"
    assert expected in message and "in pass 1 of placed stream 1" in message and "on rank 1" in message
    # A rank that is in another pass or stream is not compared; an order within global batches is one, too.
    for apart in (0, 1):
        other[:, apart] += 1
        begin_again()
        assert steps_until_told(stream(), eager) == (None, "")
        other[:, apart] -= 1
    begin_again()
    played.gives = lambda tensor: mine[None] if tensor.shape.rank == 3 else tensor
    number, message = steps_until_told(stream(turned=True), eager)
    assert number == 31 and "the first 16 global batches" in message


def test_a_pass_counts_from_its_first_note(played):
    placed = het_tf.workers.shard_placed(dataset(40 * 2 * BATCH), by="id", batch=BATCH)
    next(iter(placed.take(1)))  # one rank may look at a batch
    passes = [sum(1 for _ in placed) for _ in range(2)]
    notes = Stream._notes.newest.numpy()
    assert passes == [40, 40] and notes[-4:, :3].tolist() == [[1, 1, 16], [1, 1, 32], [1, 2, 16], [1, 2, 32]]
    assert notes[-4, 3] == notes[-2, 3] and agreement.EVERY == 16
