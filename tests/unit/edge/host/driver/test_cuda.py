"""The CUDA smoke test against a small library with CUDA's names."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from nodeagent.edge.host.driver import cuda_child
from nodeagent.edge.host.driver.cuda_check import check_cuda, main
from nodeagent.edge.host.driver.cuda_child import CudaChild
from nodeagent.edge.host.driver.workload_check import check_workload

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="the fake library needs a C compiler"),
]


@pytest.fixture(scope="session")
def libcuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("cuda") / "libcuda.so.1"
    source = Path(__file__).with_name("fake_cuda.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(library), str(source)], check=True)
    return library


def test_working_gpus_pass(libcuda: Path) -> None:
    """Every GPU computes, nothing to report."""
    assert check_cuda(str(libcuda)) == ""


@pytest.mark.parametrize(
    ("call", "code", "expected"),
    [
        ("cuInit", "802", "cuInit failed with CUDA_ERROR_SYSTEM_NOT_READY (802)"),
        ("cuDeviceGetCount", "100", "cuDeviceGetCount failed with an unknown error (100)"),
        ("cuCtxCreate_v2", "999", "GPU 1: cuCtxCreate_v2 failed with an unknown error (999)"),
        ("cuMemAlloc_v2", "999", "GPU 1: cuMemAlloc_v2 failed with an unknown error (999)"),
        ("cuMemcpyHtoD_v2", "700", "GPU 1: cuMemcpyHtoD_v2 failed with an unknown error (700)"),
        ("cuMemFree_v2", "700", "GPU 1: cuMemFree_v2 failed with an unknown error (700)"),
        ("cuCtxCreate_v2", "46", ""),
        ("cuMemAlloc_v2", "2", ""),
    ],
)
def test_failing_call_is_named(
    libcuda: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: str, expected: str
) -> None:
    """The call, its error and the GPU are said; a GPU in somebody else's use is not broken."""
    monkeypatch.setenv("FAKE_CUDA_FAIL", call)
    monkeypatch.setenv("FAKE_CUDA_CODE", code)
    if call not in {"cuInit", "cuDeviceGetCount"}:
        monkeypatch.setenv("FAKE_CUDA_GPU", "1")
    assert check_cuda(str(libcuda)) == expected


def test_changed_copy_is_a_failure(libcuda: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One wrong bit on the way back is noticed, on each GPU."""
    monkeypatch.setenv("FAKE_CUDA_CORRUPT", "1")
    wrong = "what was copied back differs from what was copied there"
    assert check_cuda(str(libcuda)) == f"GPU 0: {wrong}; GPU 1: {wrong}"


def test_file_that_is_no_library_is_a_failure(tmp_path: Path) -> None:
    """A missing file and an empty one are said to be."""
    assert "cannot load" in check_cuda(str(tmp_path / "absent.so"))
    (tmp_path / "empty.so").touch()
    assert "cannot load" in check_cuda(str(tmp_path / "empty.so"))


def test_library_of_another_kind_is_a_failure(tmp_path: Path) -> None:
    """A library without CUDA's functions is said to be none."""
    subprocess.run(["cc", "-shared", "-x", "c", "-o", str(tmp_path / "other.so"), "/dev/null"], check=True)
    assert "is no CUDA driver library" in check_cuda(str(tmp_path / "other.so"))


def test_check_can_be_run_by_hand(libcuda: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a path on the command line it prints what it found."""
    main([str(libcuda) + "x"])
    assert "cannot load" in capsys.readouterr().out


async def test_child_reports_success_and_failure(libcuda: Path, tmp_path: Path) -> None:
    """The child's word reaches the agent, and the child is gone afterwards."""
    child = CudaChild(timeout_seconds=30)
    assert await child.check(libcuda) == ""
    assert "cannot load" in await child.check(tmp_path / "absent.so")


@pytest.mark.parametrize(
    ("manner", "timeout_seconds", "expected"),
    [("FAKE_CUDA_HANG", 1, "did not answer within 1 s"), ("FAKE_CUDA_CRASH", 30, "before it answered")],
)
async def test_child_that_hangs_or_crashes_is_a_failed_test(
    libcuda: Path, monkeypatch: pytest.MonkeyPatch, manner: str, timeout_seconds: float, expected: str
) -> None:
    """Whatever libcuda does to the child, the agent gets a sentence within the deadline."""
    environment = {**cuda_child._plan_environment(), "FAKE_CUDA_FAIL": "cuInit", manner: "1"}
    monkeypatch.setattr(cuda_child, "_plan_environment", lambda: environment)
    with anyio.fail_after(40):
        assert expected in await CudaChild(timeout_seconds=timeout_seconds).check(libcuda)


async def test_child_that_cannot_start_is_a_failed_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing interpreter is a failed test, in words."""
    monkeypatch.setattr(sys, "executable", "/absent/python")
    with anyio.fail_after(30):
        assert "could not be started" in await CudaChild(timeout_seconds=1).check(None)


def make_container(root: Path, libcuda: Path, *, without: str = "") -> Path:
    """The files of a container with a GPU, as far as the check looks at them."""
    libraries = root / "usr/lib64"
    for path in (root / "dev/nvidiactl", root / "dev/nvidia3", libraries / "libnvidia-ml.so.1"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    shutil.copy(libcuda, libraries)
    if without:
        (root / without).unlink()
    return root


def test_a_container_with_all_of_its_gpu_can_use_it(
    libcuda: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Device nodes, libraries, and a computation, whose failure is told as CUDA's."""
    root = make_container(tmp_path, libcuda)
    assert check_workload(root) == []
    monkeypatch.setattr(cuda_child, "_plan_environment", lambda: {**os.environ, "FAKE_CUDA_FAIL": "cuInit"})
    (problem,) = check_workload(root)
    assert problem.startswith("CUDA: cuInit failed")


@pytest.mark.parametrize(
    ("missing", "problem"),
    [
        ("dev/nvidia3", "no GPU's device node {root}/dev/nvidia0 is in the container"),
        ("dev/nvidiactl", "{root}/dev/nvidiactl cannot be opened: no such file"),
        ("usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so.1 is not in the container"),
        ("usr/lib64/libcuda.so.1", "libcuda.so.1 is not in the container"),
    ],
)
def test_what_a_container_lacks_is_named(libcuda: Path, tmp_path: Path, missing: str, problem: str) -> None:
    """Before anything is computed."""
    (told,) = check_workload(make_container(tmp_path, libcuda, without=missing))
    assert told.startswith(problem.format(root=tmp_path))
