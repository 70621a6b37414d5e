"""Specifications of claims, which others have written."""

import anyio
import pytest
from msgspec import json

from nodeagent.components.cdi.spec import find_spec_problems
from nodeagent.model.errors import NodeagentError, SpecsUnavailable
from nodeagent.model.ids import MigUuid
from nodeagent.model.plugin import ContainerMount
from nodeagent.model.ports import ClaimedSpec
from tests.component.cdi.test_cdi import SETTLED_SECONDS, Surroundings
from tests.support.samples import make_uuid

pytestmark = pytest.mark.virtual_time

PATH = "/var/run/cdi/k8s.gpu.nvidia.com-claim_u1.json"


def device(index: int, **more: object) -> ClaimedSpec:
    return ClaimedSpec(name=f"u1-gpu-{index}", uuid=make_uuid(index), **more)  # type: ignore[arg-type]


async def test_each_device_of_a_claim_has_a_name_of_its_own() -> None:
    """With what its containers need besides; it stays through all passes, and goes when asked, twice too."""
    around = Surroundings()
    around.show()
    mount = ContainerMount(container_path="/tmp/nvidia-mps", host_path="/run/mps", read_only=False)  # theirs
    async with around.running():
        await around.handle.get().write_claim("u1", (device(0), device(1, environment={"A": "b"}, mounts=(mount,))))
        await anyio.sleep(SETTLED_SECONDS)
        spec = json.decode(around.directories.contents[PATH])
        assert spec["kind"] == "k8s.gpu.nvidia.com/claim"
        first, second = spec["devices"]
        assert (first["name"], second["name"]) == ("u1-gpu-0", "u1-gpu-1")
        assert "A=b" in second["containerEdits"]["env"]
        assert second["containerEdits"]["mounts"][-1]["hostPath"] == "/run/mps"
        assert "A=b" not in first["containerEdits"].get("env", ())
        assert around.codes == []
        for _ in range(2):
            await around.handle.get().remove_claim("u1")
        assert PATH not in around.directories.contents


async def test_each_container_of_a_claim_has_memory_of_its_own() -> None:
    """A file system that the runtime makes with the container; the version says that there is such a mount."""
    around = Surroundings()
    around.show()
    own = ContainerMount(container_path="/run/nodeagent/vgpu/own", memory_bytes=1 << 20)
    async with around.running():
        await around.handle.get().write_claim("u-1", (device(0, mounts=(own,)),))
        content = around.directories.contents[PATH.replace("u1", "u-1")]
        spec = json.decode(content)
        assert not find_spec_problems(spec)
        assert spec["devices"][0]["containerEdits"]["mounts"][-1] == {
            "hostPath": "tmpfs",
            "containerPath": "/run/nodeagent/vgpu/own",
            "options": ["rw", "nosuid", "nodev", "noexec", "mode=1777", "size=1048576"],
            "type": "tmpfs",
        }


async def test_files_of_claims_that_nobody_knows_are_taken_away() -> None:
    """Others are left alone, whoever wrote them."""
    around = Surroundings()
    around.show()
    async with around.running():
        await around.handle.get().write_claim("u1", (device(0),))
        await around.handle.get().write_claim("u2", (device(1),))
        before = set(around.directories.contents)
        await around.handle.get().keep_claims({"u1"})
        assert before - set(around.directories.contents) == {PATH.replace("u1", "u2")}


async def test_a_claim_is_no_news_for_the_nodes_own_files() -> None:
    """Or each pod that comes and goes would have all of them read and planned anew."""
    around = Surroundings()
    around.show()
    async with around.running():
        await anyio.sleep(SETTLED_SECONDS)
        before = around.directories.readings
        await around.handle.get().write_claim("u1", (device(0),))
        await anyio.sleep(SETTLED_SECONDS)
        assert around.directories.readings == before


async def test_before_the_driver_works_nothing_is_described() -> None:
    """A claim can be put away nevertheless, which is the law of whoever puts claims away."""
    around = Surroundings()
    with pytest.raises(SpecsUnavailable):
        await around.handle.get().write_claim("u1", (device(0),))


async def test_a_device_that_came_since_is_found_and_one_that_is_not_there_is_told() -> None:
    """A MIG device that was just made is in no plan yet."""
    around = Surroundings()
    around.show()
    async with around.running():
        for missing in (device(7), ClaimedSpec(name="u1-gpu-9", uuid=MigUuid(""))):
            with pytest.raises(NodeagentError, match="cannot be described to the container runtime: it is not on this"):
                await around.handle.get().write_claim("u1", (missing,))
        assert PATH not in around.directories.contents
