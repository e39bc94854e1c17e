"""Layers whose cache is in the memory of a GPU: the ops run there, and everything equals the CPU's.

The checks are in gpu_checks.py. They run in a process of their own, on a device of type GPU in poisoned host
memory (tests/ext/gpu/pluggable), or on a real one: tools/gpu_check_tf.sh.
"""

import gpu_lib
import pytest
import ranks
import redis_lib
from gpu_checks import CHECKS

MISSING = gpu_lib.what_is_missing()
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

# Tests of only the layer, and of one process whose tables end with it.
NOT_WITH_A_SERVER = {"a_layer_is_made_anew_from_its_config", "a_cache_of_so_many_bytes"}
WITH_A_SERVER = [name for name in CHECKS if name not in NOT_WITH_A_SERVER]


def started(place, names, address):
    checks = [CHECKS[name] for name in names]
    return ranks.Job(place, *checks, ranks=1, launcher="python", HET_PS=address, **gpu_lib.variables(place))


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """An error ends the process, and with it later checks."""
    return started(tmp_path_factory.mktemp("gpu"), CHECKS, "")


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_on_a_gpu(job, name):
    job.values(name)


@pytest.mark.long
def test_on_a_gpu_of_this_tensorflow(job):
    """The ops' kernels for GPUs are built anew for a TensorFlow that is not the tree's."""
    assert job.end() == 0, job.out[-6000:]


@pytest.fixture(scope="module")
def job_with_a_server(tmp_path_factory, shared_server):
    assert shared_server.command("FLUSHALL").startswith(b"+OK")
    return started(tmp_path_factory.mktemp("gpu_ps"), WITH_A_SERVER, shared_server.address)


@pytest.mark.long
@redis_lib.SERVER
@pytest.mark.parametrize("name", WITH_A_SERVER)
def test_on_a_gpu_with_a_parameter_server(job_with_a_server, name):
    job_with_a_server.values(name)
