"""What the doctor finds on a node that is in order."""

from msgspec.structs import replace

from nodeagent.cli.doctor.facts import (
    ApiFacts,
    DirectoryFacts,
    Facts,
    SocketFacts,
)
from nodeagent.components.cdi.registry import SpecReading
from nodeagent.components.runtime.choose import ChosenRuntime
from nodeagent.edge.host.shim.inspection import ShimSight
from nodeagent.model.driver import DriverEvidence, LibraryAnswer, PciFunction
from nodeagent.model.gpu import GpuReadout
from nodeagent.model.ids import DeviceId, ResourceName
from nodeagent.model.plugin import AdvertisedDevice, AdvertisedResource, PluginState
from nodeagent.model.ports import KubeletCheckpoint
from nodeagent.model.runtime import RuntimeFlavour, RuntimeKind
from tests.support.nodes import make_rich_state
from tests.support.samples import make_address, make_gpu

EVIDENCE = DriverEvidence(
    pci_functions=(PciFunction(address=make_address(0), device_id=1),),
    module_loaded=True,
    module_version="580.1",
    library_version="580.1",
    library=LibraryAnswer(driver_version="580.1", gpu_count=1),
    nvswitch_count=4,
)
RUNTIME = ChosenRuntime(
    kind=RuntimeKind.CONTAINERD,
    flavour=RuntimeFlavour.PLAIN,
    socket="/s",
    config_file="/c",
    version="2.1",
    cdi_in_force=True,
)
SHIM = ShimSight(program="/s", devices=2)
DIRECTORY = DirectoryFacts(path="/d", writable=True, free_bytes=1 << 30, total_bytes=1 << 40)
AGENT = replace(
    make_rich_state("word"),
    conditions=(),
    verdict="ok",
    ready=True,
    sentence="all is well",
    gpu_source="nvml",
    version="1.2.3",
    plugin=PluginState(
        resources=(
            AdvertisedResource(
                name=ResourceName("nvidia.com/gpu"),
                socket="nvidia-gpu.sock",
                registered=True,
                devices=(AdvertisedDevice(id=DeviceId("a"), healthy=True),),
            ),
        )
    ),
)
HELD = KubeletCheckpoint(registered={ResourceName("nvidia.com/gpu"): (DeviceId("a"),)})
HEALTHY = Facts(
    version="1.2.3",
    python="3.11",
    kernel="6.1",
    user_id=0,
    evidence=EVIDENCE,
    readout=GpuReadout(gpus=(make_gpu(0),)),
    agent=AGENT,
    kubelet=SocketFacts(path="/k"),
    pod_resources=SocketFacts(path="/p"),
    checkpoint=HELD,
    shim=SHIM,
    mps_problem="",
    specs=(SpecReading(path="/a.json", kind="nvidia.com/gpu", version="0.6.0", devices=("0",)),),
    runtime=RUNTIME,
    api=ApiFacts(where="sa", server_version="v1.36.3", kubelet_version="v1.36.3"),
    directories=(DIRECTORY,),
    clock_synchronised=True,
)
