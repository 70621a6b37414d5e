"""What containers ask for and what they get."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from nodeagent.model.shim import ShimDevice
from tests.component.oci_shim.support import CONTROL, TABLE, UUIDS, Shim, make_node, make_spec

pytestmark = pytest.mark.slow
VISIBLE = "NVIDIA_VISIBLE_DEVICES="
OLD = "CUDA_VERSION=11.4.0"
INVALID_VERSIONS = ("foo", "7.foo", "9.", "9..0", ".5.10", "-9", "+9", "9.0.116.50", "9.0.116foo", "9.4294967296")
EVERY = ["nvidia0", "nvidia1", "nvidia2", "nvidia3", "nvidia-caps/nvidia-cap3"]


@pytest.mark.parametrize(
    "env",
    [
        [],
        [VISIBLE],
        [f"{VISIBLE}void"],
        [f"{VISIBLE}0,void"],
        [f"{VISIBLE},"],
        [OLD, VISIBLE],
        [f"{VISIBLE}0", f"{VISIBLE}void"],
    ],
)
def test_who_asks_for_nothing_stays_untouched(env: list[str], shim: Shim) -> None:
    """Byte for byte; void anywhere wins, and of a variable that is there twice the last."""
    before = repr(make_spec(*env)).replace("'", '"').replace("False", "false").encode()
    done = shim.create(before)
    assert (done.status, done.said) == (7, "")
    assert done.text == before


MANY = ",".join(map(str, range(5000)))


@pytest.mark.parametrize(
    "env",
    [
        ["FOO"],
        ["", "FOO=\0", "=x"],
        [f"{VISIBLE}void", "FOO"],
        [f"{VISIBLE}{MANY},void"],
        [f"NVIDIA_IMEX_CHANNELS={MANY}"],
        ["NVIDIA_REQUIRE_CUDA=nonsense", "NVIDIA_DRIVER_CAPABILITIES=nonsense", "NVIDIA_MIG_CONFIG_DEVICES=all"],
    ],
)
@pytest.mark.parametrize("has_table", [True, False])
def test_who_asks_for_nothing_starts_whatever_is_the_matter(env: list[str], has_table: bool, shim: Shim) -> None:
    """What is wrong with it is the low-level runtime's to say, if it minds."""
    if not has_table:
        (shim.table / "table").unlink()
    spec = make_spec(*env)
    done = shim.create(spec)
    assert (done.status, done.said, done.spec) == (7, "", spec)


@pytest.mark.parametrize("what", ["large", "damaged"])
def test_a_file_that_cannot_be_understood_is_looked_through_for_words(what: str, shim: Shim) -> None:
    """With one of those by which containers ask, wherever it stands, the container is refused, else it starts."""
    shim.write(TABLE, swarm=("DOCKER_SWARM",))
    words = ("NVIDIA_VISIBLE_DEVICES", "CUDA_VERSION", "DOCKER_SWARM", "nvidia-container-devices", "cdi.k8s.io/")
    filling = b'{"x":"' + b"NVIDIA_VISIBLE_DEVICE " * 800_000 + b'"}' if what == "large" else b'{"x":"\0"}'
    done = shim.create(filling)
    assert (done.status, done.said, done.text) == (7, "", filling)
    for number, word in enumerate(words):
        for place in (0, 65530 - number, 65536 + number, len(filling)):
            text = filling[:place] + word.encode() + filling[place:]
            done = shim.create(text)
            assert (done.status, done.called, done.text) == (1, (), text), word
            assert done.said.count("\n") == 1


@pytest.mark.parametrize(
    ("env", "gpus"),
    [
        ([f"{VISIBLE}none"], []),
        ([f"{VISIBLE}2,none"], []),
        ([f"{VISIBLE}none,all"], []),
        ([f"{VISIBLE}all"], EVERY),
        ([f"{VISIBLE}all,none"], EVERY),
        ([f"{VISIBLE}2"], ["nvidia2"]),
        ([f"{VISIBLE}1,2"], ["nvidia1", "nvidia2"]),
        ([f"{VISIBLE} 1 , 2 "], ["nvidia1", "nvidia2"]),
        ([f"{VISIBLE}\t1\n,\u00a02\u2003\r,\v"], ["nvidia1", "nvidia2"]),
        ([f"{VISIBLE}runtime.nvidia.com/gpu=2"], ["nvidia2"]),
        ([f"{VISIBLE}runtime.nvidia.com/gpu={UUIDS[1]},0,runtime.nvidia.com/gpu=0"], ["nvidia1", "nvidia0"]),
        ([f"{VISIBLE}runtime.nvidia.com/gpu=all"], EVERY),
        ([f"{VISIBLE}runtime.nvidia.com/gpu=none"], []),
        ([f"{VISIBLE}runtime.nvidia.com/gpu=0", "NVIDIA_GDS=enabled"], ["nvidia0", "gds"]),
        ([f"{VISIBLE}2,2"], ["nvidia2"]),
        ([f"{VISIBLE}{UUIDS[1]}"], ["nvidia1"]),
        ([f"{VISIBLE}3"], ["nvidia3"]),
        ([f"{VISIBLE}3:0"], ["nvidia3", "nvidia-caps/nvidia-cap3"]),
        ([f"{VISIBLE}MIG-a"], ["nvidia3", "nvidia-caps/nvidia-cap3"]),
        ([f"{VISIBLE}nvidia.com/gpu=2"], ["nvidia2"]),
        ([OLD], EVERY),
        ([OLD, f"{VISIBLE}none"], []),
        ([f"{VISIBLE}0", "NVIDIA_GDS=enabled", "NVIDIA_GDRCOPY=true"], ["nvidia0", "gds"]),
        ([f"{VISIBLE}0", "NVIDIA_GDRCOPY=enabled", "NVIDIA_GDS=enabled"], ["nvidia0", "gds", "gdrcopy"]),
        ([f"{VISIBLE}0", "NVIDIA_IMEX_CHANNELS=3,4"], ["nvidia0", "channel3", "channel4"]),
        ([f"{VISIBLE}0", "NVIDIA_IMEX_CHANNELS=all"], ["nvidia0"]),
    ],
)
def test_variable(env: list[str], gpus: list[str], shim: Shim) -> None:
    """Control nodes come with every answer; the variable is void afterwards, so that nobody does it again."""
    done = shim.create(make_spec(*env))
    assert (done.status, done.said, done.gpus) == (7, "", gpus)
    assert set(CONTROL) <= set(done.nodes)
    assert [each for each in done.spec["process"]["env"] if each.startswith(VISIBLE)] == [f"{VISIBLE}void"]
    rules = done.spec["linux"]["resources"]["devices"]
    assert rules[0] == {"allow": False, "access": "rwm"}
    assert rules[1:] == [{"allow": True, "type": "c", "major": 1, "minor": 3, "access": "rwm"}] * len(done.nodes)


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ([f"{VISIBLE}{UUIDS[0].lower()}"], "neither a UUID nor an index"),
        ([f"{VISIBLE}GPU-bad"], "'GPU-bad'"),
        ([f"{VISIBLE}10:00.0"], "neither a UUID nor an index"),
        ([f"{VISIBLE}~10:00.0"], "neither a UUID nor an index"),
        ([f"{VISIBLE}gpu2"], "neither a UUID nor an index"),
        ([f"{VISIBLE}mig0:0"], "neither a UUID nor an index"),
        ([f"{VISIBLE}99"], "GPU '99' is not on this node"),
        ([f"{VISIBLE}nvidia.com/gpu=nope"], "unresolvable CDI device nvidia.com/gpu=nope"),
        ([f"{VISIBLE}nvidia.com/gpu=0,0"], "cannot be asked for together"),
        ([f"{VISIBLE}0", "NVIDIA_DRIVER_CAPABILITIES=nonsense"], "unsupported capabilities found in 'nonsense'"),
        ([f"{VISIBLE}0", "NVIDIA_MIG_CONFIG_DEVICES=all"], "cannot set MIG_CONFIG_DEVICES in non privileged"),
        ([f"{VISIBLE}0", "NVIDIA_MIG_MONITOR_DEVICES=all"], "cannot set MIG_MONITOR_DEVICES in non privileged"),
        ([f"{VISIBLE}0", "NVIDIA_IMEX_CHANNELS=9"], "IMEX channel '9' is not on this node"),
        ([f"{VISIBLE}runtime.nvidia.com/gpu=9"], "GPU '9' is not on this node"),
        ([f"{VISIBLE}runtime.nvidia.com/gpu=void"], "GPU 'void' is not on this node"),
        ([f"{VISIBLE}runtime.nvidia.com/gpu=0,nvidia.com/gpu=0"], "cannot be asked for together"),
        ([f"{VISIBLE}0", "FOO"], "invalid environment variable: FOO"),
        ([f"{VISIBLE}0", "FOO=\0"], "invalid environment variable: (none that can be read)"),
        ([VISIBLE + ",".join(map(str, range(5000)))], "more devices are asked for than any node has"),
        ([f"{VISIBLE}0", "NVIDIA_IMEX_CHANNELS=" + ",".join(map(str, range(5000)))], "more IMEX channels"),
    ],
)
def test_what_cannot_be_given_is_refused_in_one_line(env: list[str], said: str, shim: Shim) -> None:
    """Without a word of the low-level runtime, and with the file as it was."""
    spec = make_spec(*env)
    done = shim.create(spec)
    assert (done.status, done.called) == (1, ())
    assert said in done.said
    assert done.said.startswith("nodeagent-oci-shim: ")
    assert done.said.count("\n") == 1
    assert done.spec == spec


@pytest.mark.parametrize(
    ("mode", "value", "gpus"),
    [
        ("legacy", UUIDS[0].lower(), ["nvidia0"]),
        ("legacy", "10:00.0,0000:11:00.0", ["nvidia0", "nvidia1"]),
        ("cdi", "2", ["nvidia2"]),
        ("cdi", "none", []),
        ("cdi", "all", ["nvidia0", "nvidia1"]),
    ],
)
@pytest.mark.parametrize("is_named", [True, False])
def test_mode(mode: str, value: str, gpus: list[str], is_named: bool, shim: Shim) -> None:
    """By configuration, or by the end of the name it is called by."""
    name = shim.place / f"nvidia-container-runtime.{mode}"
    name.symlink_to(shim.program)
    if not is_named:
        shim.write(TABLE, mode=mode)
    done = shim.create(make_spec(f"{VISIBLE}{value}"), name=name if is_named else None)
    assert (done.said, done.gpus) == ("", gpus)


def test_environment_of_the_unprivileged_may_count_for_nothing(shim: Shim) -> None:
    """CAP_SYS_ADMIN in the bounding set, or in the one list of the first drafts, is privilege."""
    shim.write(TABLE, accept_environment=False)
    log = shim.place / "log.json"
    spec = make_spec(f"{VISIBLE}0")
    shim.config.write_text(str(spec).replace("'", '"').replace("False", "false"))
    done = shim.run("--log", log, "--log-format=json", "create", "-b", shim.bundle, "c")
    assert (done.status, done.spec, done.said) == (7, spec, "")
    assert '"level":"warning"' in log.read_text()
    assert shim.create(make_spec(f"{VISIBLE}0", privileged=True)).gpus == ["nvidia0"]
    spec["process"]["capabilities"] = ["CAP_SYS_ADMIN"]
    assert shim.create(spec).gpus == ["nvidia0"]


def test_the_privileged_may_have_rights(shim: Shim) -> None:
    """To cut GPUs up, and to watch all parts."""
    env = (f"{VISIBLE}3", "NVIDIA_MIG_CONFIG_DEVICES=all", "NVIDIA_MIG_MONITOR_DEVICES=all")
    assert shim.create(make_spec(*env, privileged=True)).gpus == ["nvidia3", "mig-config", "mig-monitor"]


def make_mounts(*places: str) -> list[dict[str, Any]]:
    return [{"source": "/dev/null", "destination": f"/var/run/nvidia-container-devices{place}"} for place in places]


@pytest.mark.parametrize(
    ("places", "gpus"),
    [
        (["/2", "/2"], ["nvidia2"]),
        (["/cdi/nvidia.com/gpu/1"], ["nvidia1"]),
        (["/cdi/nvidia.com/gpu=1"], ["nvidia1"]),
        (["/2", "/imex/3"], ["nvidia2", "channel3"]),
        ([""], ["nvidia0"]),
        (["/imex/3"], ["nvidia0", "channel3"]),
        (["/all"], EVERY),
        (["/void"], []),
        (["//2/", "/./x/../1"], ["nvidia2", "nvidia1"]),
        (["/x/../../nvidia-container-devices//cdi/nvidia.com/./gpu/1/"], ["nvidia1"]),
        (["/cdi/runtime.nvidia.com/gpu/1"], ["nvidia1"]),
        (["/2/.."], ["nvidia0"]),
        (["/../other/2"], ["nvidia0"]),
        (["/cdi/nvidia.com/gpu"], ["nvidia0"]),
        (["/cdi/nvidia.com=1"], ["nvidia0"]),
    ],
)
def test_mounts_come_before_the_environment(places: Sequence[str], gpus: list[str], shim: Shim) -> None:
    spec = make_spec(f"{VISIBLE}0", mounts=make_mounts(*places))
    assert shim.create(spec).gpus == ["nvidia0"]
    shim.write(TABLE, accept_mounts=True)
    assert shim.create(spec).gpus == gpus
    refused = shim.create(make_spec(mounts=make_mounts("/GPU0-MIG0/0/1")))
    assert "'GPU0-MIG0/0/1'" in refused.said


def test_the_source_of_a_mount_is_cleaned_too(shim: Shim) -> None:
    """A mount of anything but /dev/null asks for nothing."""
    shim.write(TABLE, accept_mounts=True)
    place = "/var/run//nvidia-container-devices/2"
    for source, gpus in (("/dev//null", ["nvidia2"]), ("//x/../dev/./null", ["nvidia2"]), ("dev/null", []), ("/", [])):
        done = shim.create(make_spec(mounts=[{"source": source, "destination": place}]))
        assert (done.status, done.gpus) == (7, gpus), source


def test_management_devices_are_for_who_looks_after_the_node(shim: Shim) -> None:
    """The privileged, and listed namespaces by containerd's word; what CRI-O passes on a pod may have written."""
    managing = ShimDevice(kind="cdi", names=("management.nvidia.com/gpu=all",), edits=((make_node("nvidia0"),),))
    table = replace(TABLE, devices=(*TABLE.devices, managing))
    asked = f"{VISIBLE}management.nvidia.com/gpu=all"
    shim.write(table, namespaces=("watchers",), accept_mounts=True)
    assert shim.create(make_spec(asked, privileged=True)).gpus == ["nvidia0"]
    name = "io.kubernetes.cri.sandbox-namespace"
    assert shim.create(make_spec(asked, annotations={name: "watchers"})).gpus == ["nvidia0"]
    refused = [
        make_spec(asked),
        make_spec(asked, annotations={name: "tenant"}),
        make_spec(asked, annotations={name: "tenant", name.upper(): "watchers"}),
        make_spec(asked, annotations={"io.kubernetes.cri-o.SandboxID": "1", name: "watchers"}),
        make_spec(annotations={"cdi.k8s.io/x": "management.nvidia.com/gpu=all"}),
        make_spec(mounts=make_mounts("/cdi/management.nvidia.com/gpu/all")),
    ]
    for spec in refused:
        done = shim.create(spec)
        assert (done.status, done.spec) == (1, spec)
        assert "management.nvidia.com/gpu=all is for privileged containers" in done.said
    shim.write(table, default_kind="management.nvidia.com/gpu", mode="cdi")
    assert shim.create(make_spec(f"{VISIBLE}all")).status == 1


def test_annotations_come_first(shim: Shim) -> None:
    """Sorted by key; names of other vendors are the engine's, and bare ones count in mode cdi alone."""
    annotations = {
        "cdi.k8s.io/b": "nvidia.com/gpu=2,other.com/nic=0",
        "cdi.k8s.io/a": "nvidia.com/gpu=1",
        "x": "nvidia.com/gpu=0",
    }
    assert shim.create(make_spec(f"{VISIBLE}0", annotations=annotations)).gpus == ["nvidia1", "nvidia2"]
    bare = make_spec(f"{VISIBLE}0", annotations={"cdi.k8s.io/a": "2"})
    assert shim.create(bare).gpus == ["nvidia0"]
    shim.write(TABLE, mode="cdi")
    assert shim.create(bare).gpus == ["nvidia2"]
    refused = shim.create(make_spec(annotations={"cdi.k8s.io/a": "example.com/device"}))
    assert "nvidia.com/gpu=example.com/device" in refused.said


def test_swarm_variables_take_the_place(shim: Shim) -> None:
    """In the order of the configuration; without any the usual one counts."""
    shim.write(TABLE, swarm=("DOCKER_SWARM", "ANOTHER"))
    assert shim.create(make_spec("ANOTHER=2", "DOCKER_SWARM=1", f"{VISIBLE}0")).gpus == ["nvidia1", "nvidia2"]
    assert shim.create(make_spec(f"{VISIBLE}0")).gpus == ["nvidia0"]


@pytest.mark.parametrize(
    ("env", "supported", "wanted"),
    [
        ([], 0x7F, "cu"),
        (["NVIDIA_DRIVER_CAPABILITIES="], 0x7F, "cu"),
        (["NVIDIA_DRIVER_CAPABILITIES=all"], 0x7F, "cug"),
        (["NVIDIA_DRIVER_CAPABILITIES=utility"], 0x7F, "u"),
        (["NVIDIA_DRIVER_CAPABILITIES=graphics, compute"], 0x7F, "cg"),
        ([OLD], 0x7F, "cug"),
        ([OLD, "NVIDIA_DRIVER_CAPABILITIES="], 0x7F, "cu"),
        ([], 0x01, "c"),
        (["NVIDIA_DRIVER_CAPABILITIES=all"], 0x0C, "g"),
        ([], 0x00, ""),
    ],
)
def test_capabilities_count(env: list[str], supported: int, wanted: str, shim: Shim) -> None:
    """A container has what it wants of the driver, of what is supported."""
    shim.write(TABLE, supported=type(TABLE.policy.supported)(supported))
    done = shim.create(make_spec(f"{VISIBLE}0", *env))
    places = {
        each["destination"]: letter
        for each in done.spec.get("mounts", [])
        for letter in "cug"
        if {"c": "libcuda", "u": "smi", "g": "GLX"}[letter] in each["destination"]
    }
    assert set(places.values()) == set(wanted)
    assert ("/dev/nvidia-uvm" in done.nodes) is ("c" in wanted)
    groups = done.spec["process"]["user"].get("additionalGids", [])
    assert groups == ([44] if "g" in wanted else [])


@pytest.mark.parametrize(
    ("requirement", "is_met"),
    [
        ("cuda>=12.4", True),
        ("cuda>12.4", False),
        ("cuda<=12.4", True),
        ("cuda<12.10", True),
        ("cuda=12.4.0", True),
        ("cuda!=12.4", False),
        ("cuda>=13.0 brand=tesla,driver>=470,driver<551", True),
        ("cuda>=13.0 brand=tesla,driver>=470,driver<550", False),
        ("brand=TESLA", True),
        ("brand!=tesla", False),
        ("arch>=9.0", True),
        ("arch<9", False),
        ("nonsense>=1", False),
        ("cuda>=12.4 nonsense>=1", False),
        ("nonsense>=1,cuda>=13", False),
        ("", True),
        ("cuda=foo", False),
        ("cuda", False),
        ("brand<tesla", False),
    ],
)
def test_requirements_are_enforced(requirement: str, is_met: bool, shim: Shim) -> None:
    """Unless they are switched off, by the container or on the node."""
    env = (f"{VISIBLE}0", f"NVIDIA_REQUIRE_CUDA={requirement}", "NVIDIA_REQUIRE_JETPACK=cuda>99")
    done = shim.create(make_spec(*env))
    assert (done.status == 7) is is_met, done.said
    assert is_met or "condition" in done.said or "invalid requirement" in done.said
    assert shim.create(make_spec(*env, "NVIDIA_DISABLE_REQUIRE=true")).status == 7
    shim.write(TABLE, disable_require=True)
    assert shim.create(make_spec(*env)).status == 7


@pytest.mark.parametrize(
    ("version", "said"),
    [
        *((version, "") for version in ("0", "8", "9.0.116", "v11.6", "12.4.99")),
        (
            "12.5.0",
            "unsatisfied condition: cuda>=12.5, please update your driver to a newer version, or use an earlier",
        ),
        *((version, "invalid CUDA_VERSION") for version in INVALID_VERSIONS),
    ],
)
def test_old_images_demand_the_cuda_that_they_have(version: str, said: str, shim: Shim) -> None:
    """By its first two numbers."""
    done = shim.create(make_spec(f"CUDA_VERSION={version}"))
    assert (done.status == 7) is (not said)
    assert said in done.said
