"""The rules of labels that describe the node, and what makes a label legal, one law each."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.components.labeler.node_wide import label_driver, label_node, label_vgpu
from nodeagent.components.labeler.presence import label_host, label_presence
from nodeagent.components.labeler.render import LabelFacts, render_labels
from nodeagent.components.labeler.values import cut, is_legal, plan_value, sanitise
from nodeagent.config.schema import Settings
from nodeagent.config.sections.cluster import LabelsSettings
from nodeagent.config.sections.hardware import GpusSettings
from nodeagent.model.cordons import Cordon, CordonSource
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.gpu import Fabric, FabricPhase, Gpu, Inventory
from nodeagent.model.health import DeviceHealth, HealthReport, Verdict
from nodeagent.model.labels import GPU_MODEL_LABEL, NodeFacts, VendorFunction, VgpuGuest
from nodeagent.model.offering import AllocationMode, Offering
from tests.support.fractions import make_offering
from tests.support.gpus import gpu_uuid, make_gpu
from tests.unit.components.labeler.harness import P, resources

READY = DriverState(phase=DriverPhase.READY, driver_version="570.172.08", cuda_version=(12, 8))
AWAY = DriverState(phase=DriverPhase.NOT_LOADED)
CLUSTER = "5F2C9A1E-73D4-4B0E-9C55-1D8E6A07B4F2"


def node(*gpus: Gpu, facts: NodeFacts | None = None) -> dict[str, str]:
    return dict(label_node(gpus, facts or NodeFacts()))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Standard PC (Q35 + ICH9, 2009)", "Standard-PC-Q35-ICH9-2009"),
        ("NVIDIA DGX A100 (v2, rev. B)", "NVIDIA-DGX-A100-v2-rev.-B"),
        ("Quadro RTX 6000/8000", "Quadro-RTX-60008000"),
        ("  NVIDIA\u00ae\tT4\n", "NVIDIAT4"),
        ("", ""),
        ("±§(/)", ""),
    ],
)
def test_names_are_cleaned_as_feature_discovery_does(name: str, value: str) -> None:
    """Known names keep the values that people select on."""
    assert sanitise(name) == value


def test_long_names_are_cut_and_keep_their_suffix() -> None:
    """A name of 300 characters is a legal value of 63 that still says that the GPU is shared."""
    value = plan_value("-" + "x" * 55 + "." * 245, "-SHARED")
    assert value == "x" * 55 + "-SHARED"
    assert is_legal(f"{P}gpu.product", value)
    assert cut("a-" * 60) == "a-" * 31 + "a"


def test_a_name_of_nothing_gives_no_label() -> None:
    """An empty name is left out rather than written as a suffix."""
    assert plan_value("®", "-SHARED") == ""
    assert f"{P}gpu.product" not in resources(make_gpu(0, name=""))


@pytest.mark.parametrize(
    ("key", "value", "legal"),
    [
        ("nvidia.com/gpu.count", "8", True),
        ("plain", "", True),
        ("nvidia.com/", "8", False),
        ("nvidia.com/-x", "8", False),
        ("Nvidia.com/x", "8", False),
        ("a" * 254 + "/x", "8", False),
        ("nvidia.com/x", "a b", False),
        ("nvidia.com/x", "x" * 64, False),
        ("nvidia.com/" + "x" * 64, "8", False),
    ],
)
def test_legality_is_the_api_servers(key: str, value: str, legal: bool) -> None:
    """What the API server would refuse is known before it is asked."""
    assert is_legal(key, value) is legal


@pytest.mark.parametrize(
    ("version", "parts"),
    [("550.163.01", ("550", "163", "01")), ("580.65", ("580", "65", "")), ("550", ("550", "", ""))],
)
def test_driver_versions_are_text(version: str, parts: tuple[str, str, str]) -> None:
    """The revision keeps its zero; a missing part is empty, in both spellings."""
    labels = dict(label_driver(DriverState(phase=DriverPhase.READY, driver_version=version)))
    for stem, last in (("cuda.driver", "rev"), ("cuda.driver-version", "revision")):
        assert tuple(labels[f"{P}{stem}.{each}"] for each in ("major", "minor", last)) == parts
    assert not any("runtime" in key for key in labels)


def test_an_unknown_driver_version_gives_no_label() -> None:
    assert list(label_driver(DriverState(phase=DriverPhase.READY))) == []


@pytest.mark.parametrize(
    ("classes", "mode"),
    [(("0302", "0302"), "compute"), (("0300", "0300"), "graphics"), (("0300", "0302"), "unknown"), ((), "unknown")],
)
def test_mode_is_what_all_gpus_are(classes: tuple[str, ...], mode: str) -> None:
    """One GPU of another class, or one that the bus does not show, makes the mode unknown."""
    gpus = [make_gpu(index) for index in range(2)]
    functions = tuple(
        VendorFunction(address=gpu.pci.address, pci_class=each) for gpu, each in zip(gpus, classes, strict=False)
    )
    assert node(*gpus, facts=NodeFacts(functions=functions))[f"{P}gpu.mode"] == mode


@pytest.mark.parametrize(
    ("second", "clique"),
    [
        (Fabric(phase=FabricPhase.COMPLETED, cluster_uuid=CLUSTER, clique_id=7), f"{CLUSTER.lower()}.7"),
        (Fabric(phase=FabricPhase.COMPLETED, cluster_uuid=CLUSTER, clique_id=8), None),
        (Fabric(phase=FabricPhase.IN_PROGRESS, cluster_uuid=CLUSTER, clique_id=8), f"{CLUSTER.lower()}.7"),
        (Fabric(phase=FabricPhase.COMPLETED, status_code=1, cluster_uuid=CLUSTER), f"{CLUSTER.lower()}.7"),
        (Fabric(phase=FabricPhase.COMPLETED, cluster_uuid=""), f"{CLUSTER.lower()}.7"),
        (None, f"{CLUSTER.lower()}.7"),
    ],
)
def test_clique_is_what_all_attached_gpus_agree_on(second: Fabric | None, clique: str | None) -> None:
    """GPUs that are not attached have no say; two cliques give no label."""
    first = Fabric(phase=FabricPhase.COMPLETED, cluster_uuid=CLUSTER, clique_id=7)
    gpus = [replace(make_gpu(0), fabric=first), replace(make_gpu(1), fabric=second)]
    assert node(*gpus).get(f"{P}gpu.clique") == clique


def test_a_machine_without_a_name_is_unknown() -> None:
    """The label is there all the same, as upstream has it."""
    assert node(make_gpu(0))[f"{P}gpu.machine"] == "unknown"


@pytest.mark.parametrize(
    ("vgpu", "labels"),
    [
        (None, {}),
        (VgpuGuest(), {f"{P}vgpu.present": "false"}),
        (
            VgpuGuest(present=True, host_driver_version="550.54.16", host_driver_branch="r550_40"),
            {
                f"{P}vgpu.present": "true",
                f"{P}vgpu.host-driver-version": "550.54.16",
                f"{P}vgpu.host-driver-branch": "r550_40",
            },
        ),
    ],
)
def test_vgpu_labels_say_what_the_bus_says(vgpu: VgpuGuest | None, labels: dict[str, str]) -> None:
    """A bus that cannot be asked gives no label rather than a wrong one."""
    assert dict(label_vgpu(NodeFacts(vgpu=vgpu))) == labels


def test_gpus_that_are_not_offered_are_not_counted() -> None:
    """Counts and models are of what the kubelet is offered; with nothing left, the card alone is told of."""
    gpus = tuple(make_gpu(index, name="NVIDIA L40S" if index == 3 else "NVIDIA L4") for index in range(4))
    report = HealthReport(
        generation=1,
        devices=tuple(
            DeviceHealth(device=gpu_uuid(index), gpu=gpu_uuid(index), verdict=Verdict.HEALTHY, since_seconds=0)
            for index in range(4)
        ),
    )
    facts = NodeFacts(functions=(VendorFunction(address=gpus[0].pci.address, pci_class="0302"),))
    picture = LabelFacts(facts=facts, driver=READY, inventory=Inventory(generation=1, gpus=gpus), health=report)

    def count(include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()) -> dict[str, str]:
        settings = Settings(gpus=GpusSettings(include=include, exclude=exclude))
        labels = render_labels(picture, settings, {}).labels
        keys = ("gpu.present", "gpu.product", "gpu.count", "gpu.healthy.count")
        return {key: labels[P + key] for key in keys if P + key in labels}

    assert count(include=("0", "1")) == {
        "gpu.present": "true",
        "gpu.product": "NVIDIA-L4",
        "gpu.count": "2",
        "gpu.healthy.count": "2",
    }
    assert count(exclude=("NVIDIA L4",))["gpu.product"] == "NVIDIA-L40S"
    assert count(exclude=("*",)) == {"gpu.present": "true", "gpu.healthy.count": "0"}


@pytest.mark.parametrize(
    ("classes", "keys"),
    [
        ((), set()),
        (("0680",), set()),
        (("0200",), {"pci-10de.present"}),
        (("0300",), {"pci-10de.present", "pci-0300_10de.present", "gpu.present"}),
        (("0302",), {"pci-10de.present", "pci-0302_10de.present", "gpu.present"}),
        (("0380",), {"pci-10de.present", "gpu.present"}),
    ],
)
def test_presence_is_told_by_class(classes: tuple[str, ...], keys: set[str]) -> None:
    """A bridge is no GPU; a display function is one, before there is a driver."""
    functions = tuple(VendorFunction(address=make_gpu(0).pci.address, pci_class=each) for each in classes)
    labels = dict(label_presence(NodeFacts(functions=functions)))
    assert {key.rpartition("/")[2] for key in labels} == keys
    assert set(labels.values()) <= {"true"}


def test_host_labels_are_spelled_as_nfd_does() -> None:
    """Foreign characters become underscores, ends are trimmed, missing parts are left out."""
    labels = dict(label_host(NodeFacts(kernel_release="6.8-rc1+~", os_id="rhcos", os_version_id="9")))
    assert labels == {
        "feature.node.kubernetes.io/kernel-version.full": "6.8-rc1",
        "feature.node.kubernetes.io/kernel-version.major": "6",
        "feature.node.kubernetes.io/kernel-version.minor": "8",
        "feature.node.kubernetes.io/system-os_release.ID": "rhcos",
        "feature.node.kubernetes.io/system-os_release.VERSION_ID": "9",
        "feature.node.kubernetes.io/system-os_release.VERSION_ID.major": "9",
    }
    assert list(label_host(NodeFacts())) == []


def picture(driver: DriverState = READY, **more: Any) -> LabelFacts:
    functions = (VendorFunction(address=make_gpu(0).pci.address, pci_class="0302"),)
    return LabelFacts(facts=NodeFacts(functions=functions), driver=driver, **more)


INVENTORY = Inventory(generation=1, gpus=(make_gpu(0), make_gpu(1, lost="off the bus"), make_gpu(2)))


def test_the_card_is_labelled_before_there_is_a_driver() -> None:
    """What charts select on is there as soon as the card is."""
    labels = render_labels(picture(AWAY), Settings(), {}).labels
    assert labels[f"{P}gpu.present"] == "true"
    assert f"{P}gpu.count" not in labels


def test_last_good_labels_stay_while_the_driver_is_away() -> None:
    """A driver that is gone for a while takes no label with it, but the health of the moment and the time go."""
    kept = {
        f"{P}gpu.count": "8",
        f"{P}gfd.timestamp": "1",
        f"{P}gpu.healthy.count": "8",
        "feature.node.kubernetes.io/x": "1",
    }
    labels = render_labels(picture(AWAY), Settings(), kept).labels
    assert labels[f"{P}gpu.count"] == "8"
    assert not {f"{P}gfd.timestamp", f"{P}gpu.healthy.count", "feature.node.kubernetes.io/x"} & labels.keys()


def test_labels_go_when_the_hardware_has_gone() -> None:
    """No card on the bus: nothing is kept."""
    gone = DriverState(phase=DriverPhase.NO_HARDWARE)
    assert render_labels(picture(gone), Settings(), {f"{P}gpu.count": "8"}).labels.keys().isdisjoint({f"{P}gpu.count"})


def test_health_is_summed_up() -> None:
    """A lost GPU is unhealthy whatever its verdict, a suspect one is in use, an unknown one is counted by itself."""
    verdicts = {0: Verdict.SUSPECT, 1: Verdict.HEALTHY, 2: Verdict.UNKNOWN}
    report = HealthReport(
        generation=1,
        devices=tuple(
            DeviceHealth(device=gpu_uuid(index), gpu=gpu_uuid(index), verdict=verdict, since_seconds=0)
            for index, verdict in verdicts.items()
        ),
    )
    labels = render_labels(picture(inventory=INVENTORY, health=report), Settings(), {}).labels
    counts = [labels[f"{P}gpu.{kind}.count"] for kind in ("healthy", "unhealthy", "unknown")]
    assert counts == ["1", "1", str(len(INVENTORY.gpus) - 2)]
    assert f"{P}gpu.healthy.count" not in render_labels(picture(inventory=INVENTORY), Settings(), {}).labels


@pytest.mark.parametrize(
    ("names", "model"),
    [
        (("NVIDIA H100 80GB HBM3",), "H100"),
        (("NVIDIA GeForce RTX 3090",), "GeForce"),
        (("Tesla P40", "NVIDIA H100 80GB HBM3"), None),
        (("NVIDIA A100-SXM4-80GB",), None),
        ((), None),
    ],
)
def test_the_model_has_gpu_managers_word_where_it_is_asked_for(names: tuple[str, ...], model: str | None) -> None:
    """The second of three words or more of the first GPU's name; a name of two gives it none either."""
    gpus = tuple(make_gpu(index, name=name) for index, name in enumerate(names))
    seen = picture(inventory=Inventory(generation=1, gpus=gpus))
    asked = Settings(labels=LabelsSettings(compatibility=("gpu_manager",)))
    assert render_labels(seen, asked, {}).labels.get(GPU_MODEL_LABEL) == model
    assert GPU_MODEL_LABEL not in render_labels(seen, Settings(), {}).labels


@pytest.mark.parametrize("driver", [READY, AWAY])
def test_labels_of_the_configuration_are_there_whatever_the_driver_says(driver: DriverState) -> None:
    """They say nothing of GPUs; a new value takes the place of the last good one."""
    asked = Settings(labels=LabelsSettings(static={"example.com/team": "blue", "example.com/empty": ""}))
    labels = render_labels(picture(driver, inventory=INVENTORY), asked, {"example.com/team": "red"}).labels
    assert (labels["example.com/team"], labels["example.com/empty"]) == ("blue", "")


def test_an_illegal_label_is_left_out_and_named() -> None:
    """One label that the API server would refuse must not cost the others."""
    rendered = render_labels(
        picture(replace(READY, driver_version="570.172 beta"), inventory=INVENTORY), Settings(), {}
    )
    assert rendered.illegal == (
        f"{P}cuda.driver-version.full",
        f"{P}cuda.driver-version.minor",
        f"{P}cuda.driver.minor",
    )
    assert rendered.labels[f"{P}gpu.count"] == "3"


def test_a_ready_driver_without_gpus_labels_none() -> None:
    """No GPU is an empty inventory, not a count of zero."""
    labels = render_labels(picture(inventory=Inventory(generation=1)), Settings(), {f"{P}gpu.count": "8"}).labels
    assert f"{P}gpu.count" not in labels


def test_a_cordoned_gpu_is_not_counted_among_what_is_offered() -> None:
    """The board is still counted as a board."""
    inventory = Inventory(generation=1, gpus=(make_gpu(0), make_gpu(1)))
    whole = (AllocationMode.WHOLE, True)
    first, second = make_offering(inventory, {0: whole, 1: whole}).doors
    cordon = Cordon(gpu=second.gpu, source=CordonSource.COMMAND, named="1", reason="fan")
    cordoned = Offering(doors=(first, replace(second, is_open=False, cordons=(cordon,))))
    for offering, count in ((Offering(doors=(first, second)), None), (cordoned, "1")):
        labels = render_labels(picture(inventory=inventory, offering=offering), Settings(), {}).labels
        assert labels["nvidia.com/gpu.count"] == "2"
        assert labels.get("nvidia.com/resource.gpu.count") == count
