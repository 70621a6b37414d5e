"""The specification of one container that has parts of GPUs."""

from pathlib import Path

import pytest
from msgspec import json
from msgspec.structs import replace

from nodeagent.components.cdi.plan_specs import FractionUndescribed, SpecOptions, plan_common_edits, plan_fraction
from nodeagent.components.cdi.spec import find_spec_problems, render_spec
from nodeagent.model.gpu import Inventory
from nodeagent.model.plugin import ContainerMount
from tests.support.files.driver_files import make_files
from tests.support.samples import make_gpu, make_inventory, make_uuid

REQUESTS = SpecOptions(hook=Path("/var/lib/nodeagent/hook"))
MOUNTS = (
    ContainerMount(container_path="/run/x/limits", host_path="/state/p1/limits"),
    ContainerMount(container_path="/run/x/usage", host_path="/state/p1/usage", read_only=False),
)
NODE = (make_inventory(3), make_files(3), REQUESTS)
COMMON = plan_common_edits(make_files(3), REQUESTS)


def test_each_name_means_all_the_gpus_and_what_is_mounted() -> None:
    """A container that is created with either finds its GPUs, its limits read-only, and a place for its use."""
    content = render_spec(
        plan_fraction(("p1", "p2"), (make_uuid(0), make_uuid(2)), (MOUNTS, {"B": "2", "A": "1"}), NODE, COMMON)
    )
    spec = json.decode(content)
    assert not find_spec_problems(spec)
    assert spec["kind"] == "k8s.device-plugin.nvidia.com/part"
    first, second = spec["devices"]
    assert (first["name"], second["name"]) == ("p1", "p2")
    assert first["containerEdits"] == second["containerEdits"]
    edits = first["containerEdits"]
    assert [node["path"] for node in edits["deviceNodes"]] == ["/dev/nvidia0", "/dev/nvidia2"]
    assert edits["env"][-2:] == ["A=1", "B=2"]
    limits, usage = edits["mounts"]
    assert (limits["hostPath"], limits["containerPath"]) == ("/state/p1/limits", "/run/x/limits")
    assert ("ro" in limits["options"], "rw" in usage["options"]) == (True, True)
    common = {node["path"] for node in spec["containerEdits"]["deviceNodes"]}
    assert {"/dev/nvidiactl", "/dev/nvidia-uvm"} <= common


@pytest.mark.parametrize(
    ("inventory", "why"),
    [
        (Inventory(generation=1, gpus=(make_gpu(0), replace(make_gpu(1), minor=None))), "does not tell its minor"),
        (make_inventory(1), "it is not on this node"),
    ],
)
def test_a_gpu_without_a_node_is_refused(inventory: Inventory, why: str) -> None:
    """The container does not start without it."""
    with pytest.raises(FractionUndescribed, match=f"{make_uuid(1)} .*{why}"):
        plan_fraction(("p1",), (make_uuid(0), make_uuid(1)), (MOUNTS, {}), (inventory, make_files(2), REQUESTS), COMMON)
