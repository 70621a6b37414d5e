"""What every container with a GPU gets, in the specifications of single ones."""

import anyio
import pytest
from msgspec import json

from nodeagent.components.cdi.component import REVIEW_SECONDS
from nodeagent.model.ports import ClaimedSpec
from tests.component.cdi.test_cdi import SETTLED_SECONDS, Surroundings
from tests.support.files.driver_files import VERSION, make_files, make_library
from tests.support.samples import make_uuid

pytestmark = pytest.mark.virtual_time

CLAIM = "/var/run/cdi/k8s.gpu.nvidia.com-claim_u.json"
PART = "/var/run/cdi/k8s.device-plugin.nvidia.com-part-p1.json"


async def test_a_container_starts_with_the_driver_that_is_there_now() -> None:
    """What all containers get is worked out before one starts, and anew when the driver has become another."""
    around = Surroundings()
    around.show()
    async with around.running():
        mounted: list[list[str]] = []
        for version in (VERSION, "600.1"):
            around.driver.files = make_files(2, libraries=(make_library("libcuda", root=f"/{version}"),))
            await anyio.sleep(REVIEW_SECONDS + SETTLED_SECONDS)
            await around.handle.get().write_fraction(("p1",), (make_uuid(1),), (), {})
            await around.handle.get().write_claim("u", [ClaimedSpec(name="c1", uuid=make_uuid(1))])
            for path in (PART, CLAIM):
                edits = json.decode(around.directories.contents[path])["containerEdits"]
                mounted.append([mount["hostPath"] for mount in edits["mounts"] if "libcuda" in mount["hostPath"]])
        for version, found in zip((VERSION, VERSION, "600.1", "600.1"), mounted, strict=True):
            assert found
            assert all(path.startswith(f"/{version}/") for path in found)
