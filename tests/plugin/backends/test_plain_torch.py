"""Tables in plain PyTorch learn what torch.nn.Embedding learns; see also test_uses_of_gradients.py."""

import copy
import io
import pickle

import numpy as np
import pytest
from backends_lib import BACKEND, DIM, IDS, rows
from tools_lib import script

import het_tf

torch = pytest.importorskip("torch") if BACKEND == "torch" else None
pytestmark = pytest.mark.skipif(BACKEND != "torch", reason="of PyTorch")


def bag(mode="mean", **arguments):
    import het_tf.torch as ours

    return ours.EmbeddingBag(DIM, mode, name="t", optimizer=het_tf.optimizers.SGD(0.1), **arguments)


def reference_of(mode="mean", **arguments):
    """torch.nn.EmbeddingBag with the rows of the table."""
    start = torch.from_numpy(rows())
    return torch.nn.EmbeddingBag.from_pretrained(start, freeze=False, mode=mode, **arguments)


def train(module):
    torch.manual_seed(0)
    head = torch.nn.Linear(DIM, 1)
    optimizer = torch.optim.SGD([*module.parameters(), *head.parameters()], 0.1)
    for _ in range(20):
        optimizer.zero_grad()
        ids, labels = torch.randint(0, IDS, (8, 2)), torch.randn(8)
        ((head(module(ids))[:, 0] - labels) ** 2).mean().backward()
        optimizer.step()


@pytest.mark.parametrize("mode", ["mean", "sum"])
@pytest.mark.parametrize("padding", [None, 3])
def test_bags(mode, padding):
    module, reference = bag(mode, padding_id=padding), reference_of(mode, padding_idx=padding)
    flat, offsets = torch.tensor([1, 3, 5, 7, 3, 3]), torch.tensor([0, 2, 2, 5])
    square = torch.tensor([[1, 3], [3, 3], [7, 8]])
    weights = {"per_sample_weights": torch.tensor([0.5, 2.0, -1.0, 0.0, 1.0, 1.0])} if mode == "sum" else {}
    for given in ((flat, offsets), (square,)):
        more = weights if len(given) == 2 else {}
        torch.testing.assert_close(module(*given, **more), reference(*given, **more), atol=1e-6, rtol=0)


def test_the_rate_of_the_group():
    import het_tf.torch as ours

    module = ours.EmbeddingCollection(
        {"x": het_tf.FeatureConfig(het_tf.TableConfig("t", DIM, optimizer=het_tf.optimizers.SGD("model")))}
    )
    optimizer = torch.optim.Adam([{"params": module.parameters(), "lr": 0.5}], weight_decay=0.1)
    before = rows()
    module({"x": torch.tensor([1, 1])})["x"].sum().backward()
    optimizer.step()
    np.testing.assert_allclose(before[1] - rows()[1], 1.0, atol=1e-6)
    with torch.no_grad():
        assert not module({"x": torch.tensor([1])})["x"].requires_grad


def test_state_dict():
    module = bag()
    train(module)
    kept = rows()
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    train(module)
    assert np.abs(rows() - kept).max() > 0
    file.seek(0)
    module.load_state_dict(torch.load(file))
    np.testing.assert_array_equal(rows(), kept)
    assert set(het_tf.Table("t").scan()["clocks"]) - {0}
    with pytest.raises(ValueError, match="the state has the tables"):
        module.load_state_dict({**module.state_dict(), "_extra_state": {}})


def test_layers_of_keras_in_a_loop_of_torch():
    """Their table was never updated, without an error."""
    layer = het_tf.keras.Embedding(DIM, name="t", optimizer=het_tf.optimizers.SGD(1.0))
    optimizer = torch.optim.Adam(layer.parameters())
    before = rows()
    layer(torch.tensor([1])).sum().backward()
    optimizer.step()
    np.testing.assert_allclose(before[1] - rows()[1], 1.0, atol=1e-6)


def test_a_compiled_loop():
    """What runs by addresses was compiled, too: it dropped tensors that the engine still read."""
    module, reference = bag(), reference_of()
    for one in (module, reference):
        torch.manual_seed(0)
        head = torch.nn.Linear(DIM, 1)
        optimizer = torch.optim.SGD([*one.parameters(), *head.parameters()], 0.1)

        @torch.compile(backend="eager")
        def step(ids, one=one, head=head, optimizer=optimizer):
            optimizer.zero_grad()
            (head(one(ids))[:, 0] - 1).square().mean().backward()
            optimizer.step()

        for size in (8, 8, 5, 8):
            step(torch.randint(0, IDS, (size, 2)))
    np.testing.assert_allclose(rows(), reference.weight.detach().numpy(), rtol=0, atol=1e-6)


def test_tables_of_a_layer_that_are_frozen():
    """One that was frozen froze the others."""
    import het_tf.torch as ours

    features = {
        name: het_tf.FeatureConfig(het_tf.TableConfig(name, DIM, optimizer=het_tf.optimizers.SGD(1.0)))
        for name in ("t", "u")
    }
    alone = ours.EmbeddingCollection({"t": features["t"]})
    both = ours.EmbeddingCollection(features)
    alone.requires_grad_(False)
    before = [het_tf.Table(name).lookup([1]) for name in features]
    found = both(dict.fromkeys(features, torch.tensor([1])))
    optimizer = torch.optim.SGD(both.parameters(), 0.1)
    (found["t"] + found["u"]).sum().backward()
    optimizer.step()
    after = [het_tf.Table(name).lookup([1]) for name in features]
    np.testing.assert_array_equal(after[0], before[0])
    np.testing.assert_allclose(before[1] - after[1], 1.0, atol=1e-6)


@pytest.mark.parametrize("how", ["half", "meta", "assigned"])
def test_a_module_that_is_moved_still_trains(how):
    """Its parameter had other numbers, or was another one: the table did not train, without an error."""
    module = bag()
    model = torch.nn.Sequential(module, torch.nn.Linear(DIM, 1))
    if how == "half":
        model.half()
    elif how == "meta":
        model.to("meta").to_empty(device="cpu")
    else:
        model.load_state_dict(model.state_dict(), assign=True)
    train(module)
    assert het_tf.Table("t").updates == 20


def test_copies_are_refused():
    """A copy had rows of its own, which no optimizer reached."""
    model = torch.nn.Sequential(bag(), torch.nn.Linear(DIM, 1))
    for copied in (copy.deepcopy, pickle.dumps, torch.optim.swa_utils.AveragedModel):
        with pytest.raises(TypeError, match=r"a module with tables \('t'\) is neither copied nor pickled"):
            copied(model)


def test_programs_that_would_keep_the_rows_are_refused():
    module, ids = bag(), torch.tensor([[1, 2]])
    for trace in (torch.export.export, torch.jit.trace):
        with pytest.raises(RuntimeError, match="keeps a lookup of tables"):
            trace(module, (ids,))


def test_empty_bags_and_lists():
    module = bag("sum")
    assert module(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)).shape == (0, DIM)
    assert module(torch.zeros((0, 3), dtype=torch.int64)).shape == (0, DIM)
    expected = torch.cat([module([[1, 2]]), module([[7]])])
    torch.testing.assert_close(module([1, 2, 7], [0, 2]), expected)


def test_what_is_refused():
    import het_tf.torch as ours

    with pytest.raises(TypeError, match=r"a table has no size: write EmbeddingBag\(16\)"):
        ours.EmbeddingBag(100, 16)
    with pytest.raises(TypeError, match=r"include_last_offset.*give offsets\[:-1\]"):
        bag(include_last_offset=True)
    module = bag()
    before = rows()
    with pytest.raises(ValueError, match="mode is 'max'"):
        bag("max")
    with pytest.raises(ValueError, match="input has shape"):
        module(torch.tensor([1, 2]))
    for offsets in ([1], [0, 3], [0, 2, 1], [[0, 1]], [0.0, 1.0], []):
        with pytest.raises(ValueError, match="offsets are"):
            module(torch.tensor([1, 2]), torch.tensor(offsets))
    with pytest.raises(ValueError, match="are a nested tensor"):
        module(torch.nested.nested_tensor([[1, 2], [3]], layout=torch.jagged))
    with pytest.raises(ValueError, match="per_sample_weights"):
        module(torch.tensor([[1]]), per_sample_weights=torch.ones(1, 1))
    module(torch.tensor([[1]])).sum().backward()
    with pytest.raises(RuntimeError, match="LBFGS"):
        torch.optim.LBFGS(module.parameters()).step(lambda: 0.0)
    np.testing.assert_array_equal(rows(), before)


def test_public_names_are_those_that_are_read_without_torch():
    tool = script("tools/public_api")
    found = [
        line
        for name in het_tf.torch.__all__
        for line in tool.lines(f"het_tf.torch.{name}", getattr(het_tf.torch, name))
    ]
    assert sorted(found) == sorted(tool.of_torch())
