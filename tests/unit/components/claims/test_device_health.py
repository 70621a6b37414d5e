"""What devices are good for, as the kubelet is told."""

from nodeagent.components.claims.prepare import plan_health
from nodeagent.model.health import DeviceHealth, HealthReport, Verdict
from nodeagent.model.ids import DeviceUuid
from nodeagent.rules.claims.naming import list_devices
from tests.support.claims import POOL, with_minors
from tests.support.gpus import gpu_uuid, make_gpu


def judged(device: DeviceUuid, verdict: Verdict, reason: str = "") -> DeviceHealth:
    return DeviceHealth(device=device, gpu=gpu_uuid(0), verdict=verdict, since_seconds=0.0, reason=reason)


def test_each_device_has_its_verdict_and_its_reason() -> None:
    """Suspect ones work; of what nobody knows nothing is said for certain; a lost GPU needs no verdict."""
    inventory = with_minors(*map(make_gpu, range(5)), make_gpu(5, lost="fell off"))
    devices = list_devices(inventory, {gpu.uuid for gpu in inventory.gpus}, on_demand=False)
    report = HealthReport(
        generation=1,
        devices=(
            judged(gpu_uuid(0), Verdict.HEALTHY, "all is well"),
            judged(gpu_uuid(1), Verdict.SUSPECT, "warm"),
            judged(gpu_uuid(2), Verdict.UNHEALTHY, "x" * 5000),
            judged(gpu_uuid(3), Verdict.UNKNOWN, "dark"),
        ),
    )
    told = plan_health(devices, report, POOL)
    assert [each.is_healthy for each in told] == [True, True, False, None, None, False]
    assert [each.message for each in told] == ["", "warm", "x" * 1024, "dark", "not looked at yet", "fell off"]
    assert {(each.pool, each.device) for each in told} == {(POOL, f"gpu-{index}") for index in range(6)}
    assert [each.is_healthy for each in plan_health(devices, None, POOL)][:5] == [None] * 5


def test_a_mig_device_is_as_itself_and_one_without_verdict_as_its_gpu() -> None:
    inventory = with_minors(make_gpu(0, mig=["1g.10gb", "1g.10gb"]))
    devices = list_devices(inventory, {gpu_uuid(0)}, on_demand=False)
    first = devices[0].mig
    assert first is not None
    report = HealthReport(
        generation=1,
        devices=(judged(first.uuid, Verdict.UNHEALTHY, "ECC"), judged(gpu_uuid(0), Verdict.HEALTHY)),
    )
    assert [each.is_healthy for each in plan_health(devices, report, POOL)] == [False, True]
