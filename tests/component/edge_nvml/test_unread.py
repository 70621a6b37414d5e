"""What cannot be read just now is not gone."""

from tests.component.edge_nvml.harness import running_gpus
from tests.fakes.nvml.control import FakeNvml


async def test_what_cannot_be_read_of_mig_now_stays_what_it_was(fake: FakeNvml) -> None:
    """A call that fails once makes no partitioned GPU whole, and takes no device away; what is absent goes."""
    fake.cut(1, ["3g.40gb", "1g.10gb"])
    async with running_gpus(fake) as gpus:
        known = (await gpus.read_inventory()).gpus[1]
        assert len(known.mig_devices) == 2
        for function in (
            "nvmlDeviceGetMigMode",
            "nvmlDeviceGetMaxMigDeviceCount",
            "nvmlDeviceGetMigDeviceHandleByIndex",
            "nvmlDeviceGetGpuInstanceId",
            "nvmlDeviceGetAttributes_v2",
        ):
            with fake.failing(function, 999, gpu=1):
                found = (await gpus.read_inventory()).gpus[1]
            assert (found.mig_enabled, found.mig_devices) == (True, known.mig_devices), function
            assert found.unreadable, function
        with fake.failing("nvmlDeviceGetMemoryInfo", 15, gpu=1):
            found = (await gpus.read_inventory()).gpus[1]
        assert (bool(found.lost), found.mig_devices) == (True, known.mig_devices)
        fake.cut(1, ["1g.10gb"], generation=2)
        assert [device.profile for device in (await gpus.read_inventory()).gpus[1].mig_devices] == ["1g.10gb"]
        fake.switch_mig_off(1)
        assert not (await gpus.read_inventory()).gpus[1].mig_enabled
