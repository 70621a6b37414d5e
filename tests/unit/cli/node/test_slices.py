"""`nodeagent claims slices`: what schedulers see, as people read it."""

from nodeagent.cli.answers.table import Layout, lay_out
from nodeagent.cli.node.slices import describe_standing, list_holders, tabulate
from nodeagent.components.web.api.claims import ClaimRecord, ClaimsRecord, record_slices
from nodeagent.model.journal import PreparedClaim
from nodeagent.model.slices import Capacity, CounterSet, DeviceTaint, PublishedSlices, SliceContent, SliceDevice
from tests.unit.cli.node.test_claims import device as prepared

PUBLISHED = PublishedSlices(driver="gpu.nvidia.com", pool="node-1", generation=3, slices=2, devices=4)
CONTENTS = (
    SliceContent(counter_sets=(CounterSet(name="gpu-0", counters={"memory": 1}),)),
    SliceContent(
        devices=(
            SliceDevice(
                name="gpu-0",
                attributes={"uuid": "GPU-0"},
                capacity={"memory": Capacity(value=80 << 30)},
                taints=(
                    DeviceTaint(key="gpu.nvidia.com/xid-79", value="unhealthy", effect="NoSchedule"),
                    DeviceTaint(key="gpu.nvidia.com/closed", value="", effect="NoSchedule"),
                ),
            ),
            SliceDevice(name="gpu-1", attributes={"uuid": "GPU-1"}, is_shared=True),
            SliceDevice(name="gpu-0-mig-a", attributes={"parentUUID": "GPU-0", "profile": "1g.10gb"}),
            SliceDevice(name="gpu-0-mig-b", attributes={"parentUUID": "GPU-0", "uuid": "MIG-0"}),
        )
    ),
)


def test_each_device_is_a_line_in_the_order_of_schedulers() -> None:
    """With what it is, who has it, and what keeps pods away."""
    held = PreparedClaim(uid="u", namespace="ns", name="c", devices=(prepared(0), prepared(0)), since_seconds=0.0)
    holders = list_holders(ClaimsRecord(prepared=(ClaimRecord(claim=held),)))
    lines = lay_out(tabulate(record_slices(PUBLISHED, CONTENTS), holders), Layout(width=200, wide=False))
    assert [" ".join(line.split()) for line in lines] == [
        "DEVICE TYPE MEMORY CLAIMS TAINTS",
        "gpu-0 GPU 80 GiB ns/c xid-79:NoSchedule, closed:NoSchedule",
        "gpu-1 GPU, shared - - -",
        "gpu-0-mig-a MIG 1g.10gb, on demand - - -",
        "gpu-0-mig-b MIG device - - -",
    ]


def test_how_slices_stand_is_said() -> None:
    """Nothing told, all told, and what the API server does not have."""
    (nothing,) = describe_standing(None)
    assert nothing.endswith("or `nodeagent status` says what is waited for")
    (well,) = describe_standing(PUBLISHED)
    assert well == "4 devices of gpu.nvidia.com in 2 slices of pool node-1, generation 3"
    one = PublishedSlices(driver="d", pool="n", generation=1, slices=1, devices=1, problem="forbidden")
    assert list(describe_standing(one)) == [
        "1 device of d in 1 slice of pool n, generation 1",
        "the API server does not have all of it: forbidden",
    ]
