"""What the containers of a claim are held to."""

import pytest
from msgspec.structs import replace

from nodeagent.components.claims.sharing import LimitsFolders, plan_shared_limits
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.fractions import EnforcementName, FractionsSettings
from nodeagent.model.fractions import FractionLimit
from nodeagent.model.gpu import Inventory
from nodeagent.model.journal import GpuFraction, PreparedClaim, PreparedDevice
from tests.component.fractions.harness import FakeFolders, FakeLibrary
from tests.support.claims import POOL
from tests.support.gpus import gpu_uuid, make_gpu

GIB = 1 << 30
NODE = Inventory(generation=1, gpus=tuple(replace(make_gpu(index), memory_total_bytes=80 * GIB) for index in range(2)))


def share(index: int, cores: int, memory: int) -> PreparedDevice:
    part = GpuFraction(gpu=gpu_uuid(index), cores=cores, memory_bytes=memory * GIB)
    return PreparedDevice(
        requests=("r",), pool=POOL, device=f"gpu-{index}", uuid=gpu_uuid(index), gpu=gpu_uuid(index), part=part
    )


def claim(*devices: PreparedDevice) -> PreparedClaim:
    return PreparedClaim(uid="u", namespace="ns", name="c", devices=devices, since_seconds=0.0)


def test_shares_of_one_gpu_are_one_and_all_of_its_memory_is_no_limit() -> None:
    """Compute only where somebody wants it limited, and not for one who has none of its own."""
    one = claim(share(0, 20, 10), share(0, 10, 5), share(1, 0, 80))
    assert plan_shared_limits(one, NODE, compute=False) == (
        FractionLimit(gpu=gpu_uuid(0), memory_bytes=15 * GIB),
        FractionLimit(gpu=gpu_uuid(1)),
    )
    first, second = plan_shared_limits(one, NODE, compute=True)
    assert (first.cores, first.cores_max, second.cores) == (30, 30, None)
    whole = replace(share(0, 0, 1), part=None)
    assert plan_shared_limits(claim(whole), NODE, compute=True) == ()


def test_a_share_without_memory_of_its_own_has_no_limit_of_memory() -> None:
    """It has what others leave, beside another share of the claim too."""
    for devices in ((share(0, 20, 0),), (share(0, 10, 0), share(0, 10, 5))):
        assert plan_shared_limits(claim(*devices), NODE, compute=True) == (
            FractionLimit(gpu=gpu_uuid(0), cores=20, cores_max=20),
        )


@pytest.mark.parametrize(("enforcement", "mounts"), [("advise", 2), ("library", 4)])
async def test_limits_stand_in_a_folder_of_the_claim_until_it_ends(enforcement: EnforcementName, mounts: int) -> None:
    """With the library where that is wanted."""
    folders = FakeFolders()
    live = LiveSettings(Settings(fractions=FractionsSettings(enforcement=enforcement)))
    files = LimitsFolders(live, folders, FakeLibrary())
    one = claim(share(0, 20, 10))
    seen = await files.open_limits(one, NODE)
    assert len(seen) == mounts
    assert folders.limits == {"u": (FractionLimit(gpu=gpu_uuid(0), memory_bytes=10 * GIB),)}
    await files.close_limits(claim(replace(share(0, 0, 1), part=None)))
    assert "u" in folders.limits
    await files.close_limits(one)
    assert folders.limits == {}
