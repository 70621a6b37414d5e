"""`docker run --gpus`, by Docker's own CDI support and without NVIDIA's toolkit."""

from pathlib import Path

import pytest

from tests.integration.runtimes.docker import program
from tests.integration.runtimes.releases import BUILD_SECONDS
from tests.integration.runtimes.support import built, make_driver, make_root
from tests.support.programs.agent_process import running_agent

OBSTACLE = program.find_obstacle()
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(2 * BUILD_SECONDS),
    pytest.mark.skipif(bool(OBSTACLE), reason=OBSTACLE),
]


def list_nodes(said: str) -> list[str]:
    return sorted(line for line in said.splitlines() if line.startswith("node: nvidia"))


def test_gpus_are_given_by_our_specification_and_our_name(short_dir: Path) -> None:
    """All, or one, once the agent's hook has the name that the daemon looks for; without the name none."""
    driver, root = make_driver(short_dir / "driver"), make_root(short_dir / "image", "cc")
    specs, names = short_dir / "cdi", short_dir / "names"
    words = (
        *(f"driver.root={driver}", "gpus.source=simulated:dgx-h100", f"cdi.dir={specs}"),
        *(f"cdi.hook_dir={short_dir}/lib", f"cdi.nvidia_name_dir={names}"),
    )
    with built(), running_agent(short_dir, *(word for each in words for word in ("--set", each))) as agent:
        hook, spec = names / "nvidia-cdi-hook", specs / "nvidia.com-gpu.json"
        agent.wait_until("/api/v1/state", lambda _: hook.exists() and spec.exists(), "no specification and no name")

    def run(name: str, gpus: str, names: Path) -> tuple[int, str]:
        return program.run_container(short_dir / name, root, specs, "--gpus", gpus, names=names)

    code, said = run("a", "all", names)
    assert code == 0, said
    control = ["node: nvidia-uvm"]
    assert list_nodes(said) == [*control, "node: nvidia0", "node: nvidia1", "node: nvidiactl"]
    assert {"version: 12080", "visible: void"} <= set(said.splitlines())
    code, said = run("b", "device=1", names)
    assert (code, list_nodes(said)) == (0, [*control, "node: nvidia1", "node: nvidiactl"]), said
    code, said = run("c", "all", short_dir / "nothing")
    assert code != 0
    assert list_nodes(said) == []
