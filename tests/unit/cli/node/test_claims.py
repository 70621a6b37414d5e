"""`nodeagent claims`: which are ready, for whom, and why others are not."""

from nodeagent.cli.answers.table import Layout, lay_out
from nodeagent.cli.node.claims import describe_standing, explain_prepared, explain_refused, tabulate
from nodeagent.components.web.api.claims import ClaimHolder, ClaimRecord, ClaimsRecord, RefusedRecord
from nodeagent.model.claims import ClaimStanding
from nodeagent.model.ids import MigUuid
from nodeagent.model.journal import ClaimSharing, GpuFraction, PreparedClaim, PreparedDevice, SharingWay
from nodeagent.model.mps import MpsLimits
from tests.support.claims import POD, POOL
from tests.support.gpus import gpu_uuid

NAMES = {str(gpu_uuid(0)): "0", str(gpu_uuid(1)): "1"}


def device(index: int, **more: object) -> PreparedDevice:
    known = {
        "requests": ("gpu",),
        "pool": POOL,
        "device": f"gpu-{index}",
        "uuid": gpu_uuid(index),
        "gpu": gpu_uuid(index),
        "cdi_names": (f"k8s.gpu.nvidia.com/claim=u-gpu-{index}",),
    }
    return PreparedDevice(**{**known, **more})  # type: ignore[arg-type]


def record(*devices: PreparedDevice, is_ready: bool = True) -> ClaimRecord:
    claim = PreparedClaim(uid="u", namespace="ns", name="c", devices=devices, since_seconds=0.0, is_ready=is_ready)
    return ClaimRecord(claim=claim, holders=(ClaimHolder(pod=POD, container="main"), ClaimHolder(pod=POD)))


def test_a_claim_is_a_line_and_one_that_was_refused_too() -> None:
    """With the numbers that every command takes, and who has it."""
    claims = ClaimsRecord(
        prepared=(record(device(0), device(1)), record(device(7), is_ready=False)),
        refused=(RefusedRecord(claim="ns/other", reason="no such device", since_seconds=60.0),),
    )
    lines = lay_out(tabulate(claims, NAMES, now_seconds=120.0), Layout(width=200, wide=False))
    head, first, second, refused = (" ".join(line.split()) for line in lines)
    assert head == "CLAIM STATE FOR DEVICES GPUS PODS"
    assert first == "ns/c ready 2 min gpu-0,gpu-1 0,1 ns/train (main), ns/train"
    assert second == "ns/c being made 2 min gpu-7 gone ns/train (main), ns/train"
    assert refused == "ns/other refused 1 min - - -"


def test_how_the_driver_stands_is_a_line_where_it_does_not_stand_well() -> None:
    """Off, unknown to the kubelet, or nothing to say."""
    standing = ClaimStanding(driver="gpu.nvidia.com", socket="/s", registered=False)
    lost = ClaimStanding(driver="gpu.nvidia.com", socket="/s", registered=False, last_error="no space")
    well = ClaimStanding(driver="gpu.nvidia.com", socket="/s", registered=True)
    assert next(iter(describe_standing(ClaimsRecord()))).startswith("claims are not served")
    assert next(iter(describe_standing(ClaimsRecord(standing=standing)))).endswith("so far, see `nodeagent status`")
    assert next(iter(describe_standing(ClaimsRecord(standing=lost)))).endswith("gpu.nvidia.com: no space")
    assert list(describe_standing(ClaimsRecord(standing=well))) == []


def test_all_that_is_known_of_a_claim_is_explained() -> None:
    """Each device with what was made for it and how it is shared."""
    mps = ClaimSharing(way=SharingWay.MPS, mps=MpsLimits(thread_percentage=50, memory_mib={gpu_uuid(1): 1024}))
    lines = "\n".join(
        explain_prepared(
            record(
                device(0, sharing=ClaimSharing(way=SharingWay.TIME_SLICING, interval="Default")),
                device(1, sharing=mps),
                device(2, sharing=ClaimSharing(way=SharingWay.MPS, mps=MpsLimits())),
                device(3, uuid=MigUuid(""), is_made=True, is_admin=True),
                device(4, part=GpuFraction(gpu=gpu_uuid(4), cores=25, memory_bytes=1 << 30)),
                device(5, part=GpuFraction(gpu=gpu_uuid(5), cores=0, memory_bytes=0)),
                device(6, sharing=ClaimSharing(way=SharingWay.MPS, mps=MpsLimits(multi_user=True))),
                is_ready=False,
            )
        )
    )
    for said in (
        "ns/c  being made",
        "held by    ns/train (main)",
        "device     gpu-0 of pool node-1, for request gpu",
        "its containers take turns, time slice Default",
        "its containers share it by MPS: 50 % of its threads each, 1 GiB each",
        "its containers share it by MPS\n",
        f"a MIG device of {gpu_uuid(3)} that is still to be made",
        "to be looked at, beside whoever has it",
        "made for this claim, and taken away with it",
        "a share: 25 cores, 1 GiB",
        "a share: 0 cores, no memory of its own",
        "its containers share it by MPS: several users at once",
        "told to the runtime as k8s.gpu.nvidia.com/claim=u-gpu-0",
    ):
        assert said in lines, said
    assert next(explain_prepared(record())) == "ns/c  ready"
    assert list(explain_refused(RefusedRecord(claim="ns/c", reason="no such device", since_seconds=0.0))) == [
        "ns/c  refused",
        "  because    no such device",
    ]
