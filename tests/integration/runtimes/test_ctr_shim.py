"""The shim before the low-level runtime of a real containerd, without a cluster: who asks by environment has it."""

from pathlib import Path

import pytest

from tests.integration.runtimes.support import (
    find_programs,
    generate,
    keep_shim,
    make_driver,
    make_root,
    run_container,
)

PROGRAMS = find_programs()
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.skipif(PROGRAMS is None, reason="no containerd here: build the cluster's programs first"),
]


def test_a_container_of_containerd_has_what_it_asked_for(short_dir: Path) -> None:
    """Its own GPU and a driver that loads; one that asks for nothing has nothing; a refusal is told in its error."""
    assert PROGRAMS is not None
    driver = make_driver(short_dir / "driver")
    generate(driver, short_dir / "nvidia.json")
    shim, root = keep_shim(short_dir, driver), make_root(short_dir / "image", "cc")

    def run(name: str, *more: str) -> tuple[int, str]:
        flags = ["--runc-binary", str(shim), *more]
        return run_container(PROGRAMS or "", short_dir / name, short_dir / "nvidia.json", root, [], more=flags)

    code, said = run("a", "--env", "NVIDIA_VISIBLE_DEVICES=1")
    lines = said.splitlines()
    assert code == 0, said
    assert sorted(line for line in lines if line.startswith("node:")) == [
        "node: nvidia-uvm",
        "node: nvidia1",
        "node: nvidiactl",
    ]
    assert {"version: 12080", "visible: void"} <= set(lines)
    code, said = run("b")
    assert "node:" not in said
    code, said = run("c", "--env", "NVIDIA_VISIBLE_DEVICES=77")
    assert code != 0
    assert "GPU '77' is not on this node" in said
    (shim.parent / "shim/table").write_bytes(b"")
    code, said = run("d", "--env", "NVIDIA_VISIBLE_DEVICES=1")
    assert "the agent's table cannot be used" in said
