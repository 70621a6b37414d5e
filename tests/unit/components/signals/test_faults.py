"""Which faults GPUs have now, as repairers hear of them."""

from msgspec.structs import replace

from nodeagent.components.signals.faults import Fault, Faults, list_faults, name_key
from nodeagent.model.gpu import StoredGpu
from nodeagent.model.health import DeviceHealth, FoundFault, HealthReport, ReturnRule, Verdict
from nodeagent.rules.signals import Severity
from tests.support.gpus import gpu_uuid, make_gpu, make_mig_devices

GPUS = (make_gpu(0), make_gpu(1))
BAD, POOR, UNKNOWN = Verdict.UNHEALTHY, Verdict.SUSPECT, Verdict.UNKNOWN


def judge(device: str, *found: tuple[str, Verdict], gpu: int = 0, rule: ReturnRule = ReturnRule.RESET) -> DeviceHealth:
    return DeviceHealth(
        device=device,  # type: ignore[arg-type]  # of a GPU or of a MIG device
        gpu=gpu_uuid(gpu),
        verdict=found[0][1] if found else Verdict.HEALTHY,
        since_seconds=7.0,
        reason="it is ill",
        findings=tuple(FoundFault(key=key, verdict=verdict, rule=rule) for key, verdict in found),
    )


def faults_of(*devices: DeviceHealth, vanished: tuple[StoredGpu, ...] = ()) -> Faults:
    return list_faults(HealthReport(generation=1, devices=devices), GPUS, vanished)


def test_a_fault_says_which_gpu_and_how_it_ends() -> None:
    """In a sentence, and with the evidence that ends it."""
    faults = faults_of(judge(gpu_uuid(0), ("xid-79", BAD), rule=ReturnRule.POWER_CYCLE), judge(gpu_uuid(1), gpu=1))
    expected = Fault(
        gpu=gpu_uuid(0),
        key="xid-79",
        index=0,
        address=GPUS[0].pci.address,
        severity=Severity.CRITICAL,
        rule=ReturnRule.POWER_CYCLE,
        reason="it is ill",
        since_seconds=7.0,
    )
    assert faults == Faults(found=(expected,), gpus=2)
    assert expected.message == f"GPU 0 {gpu_uuid(0)} at {GPUS[0].pci.address} has xid-79: it is ill"


def test_the_worst_comes_first() -> None:
    """Critical faults before warnings, then by GPU and key, however the report has them."""
    found = faults_of(
        judge(gpu_uuid(1), ("b", BAD), ("a", BAD), gpu=1), judge(gpu_uuid(0), ("hot", POOR), ("c", BAD))
    ).found
    assert [(each.index, each.key, each.severity) for each in found] == [
        (0, "c", Severity.CRITICAL),
        (1, "a", Severity.CRITICAL),
        (1, "b", Severity.CRITICAL),
        (0, "hot", Severity.WARN),
    ]


def test_a_fault_of_a_gpu_and_of_its_mig_devices_is_one() -> None:
    """The worst of them counts, whichever device comes first."""
    migs = make_mig_devices(0, ["1g.10gb", "1g.10gb"])
    for verdicts in ((POOR, BAD, POOR), (BAD, POOR, POOR)):
        names = (gpu_uuid(0), migs[0].uuid, migs[1].uuid)
        devices = [judge(name, ("xid-94", verdict)) for name, verdict in zip(names, verdicts, strict=True)]
        assert [(each.key, each.severity) for each in faults_of(*devices).found] == [("xid-94", Severity.CRITICAL)]


def test_a_driver_that_does_not_work_is_no_fault_of_a_gpu() -> None:
    """Nor is a GPU that says nothing: of both nothing is known; faults known before stay."""
    faults = faults_of(
        judge(gpu_uuid(0), ("driver", BAD), ("xid-79", BAD)), judge(gpu_uuid(1), ("no-answer", UNKNOWN), gpu=1)
    )
    assert [each.key for each in faults.found] == ["xid-79"]
    assert faults.unknown == {gpu_uuid(0), gpu_uuid(1)}
    silent = faults_of(replace(judge(gpu_uuid(0)), verdict=UNKNOWN))
    assert silent == Faults(unknown=frozenset({gpu_uuid(0)}), gpus=2)


def test_gpus_left_alone_have_no_faults() -> None:
    """What is not offered is nobody's to repair."""
    report = HealthReport(generation=1, devices=(judge(gpu_uuid(1), ("xid-79", BAD), gpu=1),))
    assert list_faults(report, GPUS[:1], ()) == Faults(gpus=1)


def test_a_gpu_that_is_gone_is_a_fault() -> None:
    """Until a person confirms that it is gone."""
    gone = StoredGpu(uuid=gpu_uuid(5), name="X", index=5, address=make_gpu(5).pci.address, gone_since_seconds=9.0)
    faults = faults_of(vanished=(gone,))
    assert (faults.gpus, faults.found[0].since_seconds) == (3, 9.0)
    assert faults.found[0].message == f"GPU 5 {gone.uuid} at {gone.address} has vanished: the GPU is gone from its slot"
    assert faults_of(vanished=(replace(gone, gone_since_seconds=None),)).found[0].since_seconds == 0.0


def test_a_key_has_a_name_in_camel_case() -> None:
    assert [name_key(each) for each in ("xid-79", "remap-failed", "hot")] == ["Xid79", "RemapFailed", "Hot"]
