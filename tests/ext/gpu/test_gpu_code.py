"""What nvcc makes of the kernels: no GPU is needed, so these tests run where nvcc is."""

import re
import shutil
import subprocess

import gpu_lib
import pytest

KERNELS = gpu_lib.ROOT / "het_tf" / "kernels" / "cuda"
# An access whose state space the compiler does not know: slower, and through memory that it may not reorder.
GENERIC = re.compile(r"^\s*(?:@!?%p\d+ )?((?:ld|st|atom|red)(?:\.\w+)*)", re.MULTILINE)
SPACES = {"global", "param", "const", "shared", "local"}


def compile_kernels(source, *options):
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc: CUDA's compiler is not in PATH")
    command = [nvcc, "--options-file", KERNELS / "nvcc.options", "-arch=sm_90", f"-I{gpu_lib.ROOT}"]
    command += [*options, KERNELS / source]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)


LOOKUPS = ("lookup.cu", "gather.cu")


def test_kernels_of_every_step_spill_no_register(tmp_path):
    """A warp has 64 registers a thread where an SM is to hold 1,024 threads, each with an id in flight."""
    report = ""
    for source in (*LOOKUPS, "sum.cu"):
        done = compile_kernels(source, "-cubin", "-Xptxas", "-v", "-o", tmp_path / "code.cubin")
        report += done.stdout + done.stderr
    kernels = re.findall(
        r"Compiling entry function '\w*?\d+(Lookup|Rows|Gather|Sum)Kernel\w*'.*?"
        r"(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers",
        report,
        re.DOTALL,
    )
    assert len(kernels) == 10, report
    for name, stores, loads, registers in kernels:
        assert (int(stores), int(loads)) == (0, 0), name
        assert int(registers) <= 64, name


def test_kernels_with_parameters_know_global_memory(tmp_path):
    entries: list[str] = []
    for source in LOOKUPS:
        compile_kernels(source, "-ptx", "-o", tmp_path / "code.ptx")
        entries += (tmp_path / "code.ptx").read_text().split(".entry ")[1:]
    found = {}
    for entry in entries:
        accesses = GENERIC.findall(entry)
        generic = [access for access in accesses if not SPACES & set(access.split("."))]
        name = re.search(r"(Lookup|Rows|Gather)KernelINS\w*?(ParameterBatch|BatchView)", entry)
        assert name is not None, entry[:200]
        assert len(accesses) > 10, name
        found[name.groups()] = len(generic)
    assert found[("Lookup", "ParameterBatch")] == 0
    assert found[("Rows", "ParameterBatch")] == 0
    assert found[("Gather", "ParameterBatch")] == 0
    assert found[("Lookup", "BatchView")] > 0, "pointers that kernels find in memory may lead anywhere"
