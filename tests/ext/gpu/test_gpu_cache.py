"""Layers whose cache is in the memory of a GPU: the ops run there, and everything equals the CPU's.

The checks are in gpu_checks.py. They run in a process of their own, on a device of type GPU in poisoned host
memory (tests/ext/gpu/pluggable), or on a real one: tools/gpu_check_tf.sh.
"""

import gpu_checks
import gpu_lib
import pytest
import redis_lib

MISSING = gpu_lib.what_is_missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    return gpu_lib.run_checks(tmp_path_factory.mktemp("gpu") / "outcome.json", HET_PS="")


@pytest.mark.slow
@pytest.mark.parametrize("name", list(gpu_checks.CHECKS))
def test_on_a_gpu(outcome, name):
    text = outcome.get(name, "an earlier check ended the process")
    assert text == "ok", text


@pytest.mark.long
def test_on_a_gpu_of_this_tensorflow(outcome):
    """The ops' kernels for GPUs are built anew for a TensorFlow that is not the tree's."""
    assert set(outcome.values()) == {"ok"}, outcome


@pytest.fixture(scope="module")
def outcome_with_a_server(tmp_path_factory, shared_server):
    names = [name for name in gpu_checks.CHECKS if name not in NOT_WITH_A_SERVER]
    assert shared_server.command("FLUSHALL").startswith(b"+OK")
    folder = tmp_path_factory.mktemp("gpu_ps")
    return gpu_lib.run_checks(folder / "outcome.json", *names, HET_PS=shared_server.address)


# Tests of only the layer, of one process whose tables end with it, or of answers that are never late.
NOT_WITH_A_SERVER = {
    "a_layer_is_made_anew_from_its_config",
    "a_cache_of_so_many_bytes",
    "a_lookup_asks_about_absent_rows_alone",
}


@pytest.mark.long
@redis_lib.SERVER
@pytest.mark.parametrize("name", [name for name in gpu_checks.CHECKS if name not in NOT_WITH_A_SERVER])
def test_on_a_gpu_with_a_parameter_server(outcome_with_a_server, name):
    text = outcome_with_a_server.get(name, "an earlier check ended the process")
    assert text == "ok", text
