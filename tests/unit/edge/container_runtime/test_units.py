"""Which service a process runs in, by its control groups."""

import pytest

from nodeagent.edge.container_runtime.starts import parse_unit

POD = "kubepods.slice/kubepods-pod2a.slice/cri-containerd-77.scope"


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        ("/system.slice/second.service", "second.service"),
        ("/system.slice/system-containerd.slice/containerd@two.service", "containerd@two.service"),
        ("/system.slice/snap.microk8s.daemon-containerd.service", "snap.microk8s.daemon-containerd.service"),
        ("/second.service", "second.service"),
        ("/a.slice/a-b.slice/second.service/daemon", "second.service"),
        ("/system.slice/_cgroup.service", "cgroup.service"),
        (r"/system.slice/dev-x\x2dy.service", r"dev-x\x2dy.service"),
        ("/../../system.slice/second.service", "second.service"),
        ("/../second.service", "second.service"),
    ],
)
def test_a_service_is_named_by_either_version(path: str, unit: str) -> None:
    """Also seen from a control group namespace that it is outside of."""
    assert parse_unit(f"0::{path}\n") == unit
    assert parse_unit(f"9:name=systemd:{path}\n4:memory:/other.service\n0::/\n") == unit


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/init.scope",
        "/user.slice/user-1000.slice/session-3.scope",
        "/user.slice/user-1000.slice/user@1000.service/app.slice/second.service",
        "/../user@1000.service/app.slice/second.service",
        f"/{POD}",
        f"/{POD}/system.slice/second.service",
        "/kubepods/burstable/pod2a/77/system.slice/second.service",
        "/docker/77/system.slice/second.service",
        "/../../pod2b/77/system.slice/second.service",
        "/system.slice/docker-77.scope/system.slice/second.service",
        "/system.slice/containerd.service/kubepods-pod2a.slice:cri-containerd:77",
        "/system.slice/containerd.service/kubepods/pod2a",
        "/system.slice/-rf.service",
        "/system.slice/a b.service",
        "/system.slice/.service",
        "/system.slice",
    ],
)
def test_what_is_no_service_of_this_host_names_none(path: str) -> None:
    """Pods, containers and sessions, whatever they call what they run."""
    assert parse_unit(f"0::{path}\n") == ""
    assert parse_unit(f"12:cpu:/second.service\n1:name=systemd:{path}\n0::/\n") == ""


@pytest.mark.parametrize("text", ["", "\n", "0", "0:", "nothing:of:this:kind", "4:memory:/system.slice/second.service"])
def test_what_is_hidden_or_garbled_names_none(text: str) -> None:
    """Neither does the control group of a controller alone."""
    assert parse_unit(text) == ""
