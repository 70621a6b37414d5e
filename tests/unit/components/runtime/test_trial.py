"""What a daemon that is started on the side gets to read, and what its answer is held against."""

import tomllib
from typing import Any

import pytest

from nodeagent.components.runtime.plan import RuntimePlan, Wanted
from nodeagent.components.runtime.trial import find_wrong, render_control, render_trial
from nodeagent.model.runtime import SCRATCH, ConfigFile, ConfigTree, TrialAnswer

CRI2 = "io.containerd.grpc.v1.cri"
CRI3 = "io.containerd.cri.v1.runtime"
IMAGES = "io.containerd.cri.v1.images"
SERVER = """
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
temp = "/var/tmp"
plugin_dir = "/opt/plugins"
oom_score = -999
imports = ["conf.d/*.toml"]
required_plugins = ["io.containerd.grpc.v1.cri"]
disabled_plugins = ["io.containerd.differ.v1.erofs"]
[grpc]
address = "/run/containerd/containerd.sock"
tcp_address = "0.0.0.0:1"
[debug]
address = "/run/containerd/debug.sock"
[metrics]
address = "0.0.0.0:1338"
[cgroup]
path = "/containerd"
[plugins."io.containerd.snapshotter.v1.devmapper"]
pool_name = "real"
[plugins."io.containerd.nri.v1.nri"]
disable = false
[plugins."io.containerd.grpc.v1.cri"]
stream_server_port = "10010"
stream_server_address = "0.0.0.0"
enable_cdi = true
[plugins."io.containerd.grpc.v1.cri".cni]
conf_dir = "/etc/cni/net.d"
bin_dir = "/opt/cni/bin"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "devmapper"
[plugins."io.containerd.grpc.v1.cri".containerd.default_runtime]
runtime_type = "a"
cni_conf_dir = "/etc/other"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.kata]
runtime_type = "b"
snapshotter = "stargz"
cni_conf_dir = "/etc/kata"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes]
odd = 5
"""


def render(*texts: str) -> list[dict[str, Any]]:
    files = (ConfigFile(path=f"/etc/containerd/{number}", content=text.encode()) for number, text in enumerate(texts))
    return [
        tomllib.loads((file.content or b"").decode()) for file in render_trial(ConfigTree(files=tuple(files))).files
    ]


def test_nothing_of_the_nodes_own_daemon_is_shared() -> None:
    """Every address, port, directory and storage is left out or lies in the scratch directory."""
    (copy,) = render(SERVER)
    assert {name for name in copy if name not in {"plugins", "disabled_plugins"}} == {
        "version",
        "imports",
        "grpc",
        "ttrpc",
    }
    assert (copy["version"], copy["imports"]) == (2, [])
    assert (copy["grpc"], copy["ttrpc"]) == ({"address": f"{SCRATCH}/grpc"}, {"address": f"{SCRATCH}/ttrpc"})
    assert copy["disabled_plugins"][0] == "io.containerd.differ.v1.erofs"
    assert {"io.containerd.nri.v1.nri", "io.containerd.snapshotter.v1.devmapper"} <= set(copy["disabled_plugins"])
    assert copy["plugins"] == {
        CRI2: {
            "enable_cdi": True,
            "cni": {"conf_dir": f"{SCRATCH}/cni", "bin_dir": "/opt/cni/bin"},
            "containerd": {
                "snapshotter": "native",
                "default_runtime": {"runtime_type": "a", "cni_conf_dir": f"{SCRATCH}/cni"},
                "runtimes": {
                    "kata": {"runtime_type": "b", "snapshotter": "native", "cni_conf_dir": f"{SCRATCH}/cni"},
                    "odd": 5,
                },
            },
        }
    }


def test_version_3_says_the_same_in_two_tables() -> None:
    """And its storage may differ by platform."""
    text = f'version = 3\n[plugins."{IMAGES}".runtime_platforms.kata]\nsnapshotter = "stargz"\nplatform = "p"\n'
    (copy,) = render(text)
    assert copy["plugins"] == {
        CRI3: {"cni": {"conf_dir": f"{SCRATCH}/cni"}, "containerd": {}},
        IMAGES: {
            "snapshotter": "native",
            "runtime_platforms": {"kata": {"snapshotter": "native", "platform": "p"}},
        },
    }


def test_version_4_has_its_sockets_among_the_plugins() -> None:
    """The old tables would be unknown there."""
    (copy,) = render("version = 4\n")
    assert "grpc" not in copy
    assert copy["plugins"]["io.containerd.server.v1.ttrpc"] == {"address": f"{SCRATCH}/ttrpc"}


@pytest.mark.parametrize("text", ["", "version = 1\n", "disabled_plugins = 5\n"])
def test_version_1_knows_plugins_by_short_names(text: str) -> None:
    """For releases that read it as it is."""
    (copy,) = render(text)
    assert {"devmapper", "io.containerd.snapshotter.v1.devmapper"} <= set(copy["disabled_plugins"])
    assert set(copy["plugins"]) == {"cri"}


def test_imports_are_named_one_by_one_and_given_no_table_of_their_own() -> None:
    """In 1.x such a table would take the place of the main file's."""
    main, first, second = render("version = 2\n", "version = 2\n", f'[plugins."{CRI2}"]\nenable_cdi = true\n')
    assert main["imports"] == ["import-1.toml", "import-2.toml"]
    assert first == {"version": 2, "plugins": {}}
    assert second["plugins"][CRI2]["containerd"] == {"snapshotter": "native"}


def test_programs_of_others_cannot_take_part() -> None:
    """They may be what CRI needs, so that is told."""
    file = ConfigFile(path="x", content=b'[proxy_plugins.stargz]\naddress = "/run/x.sock"\n')
    trial = render_trial(ConfigTree(files=(file,)))
    assert "stargz" in trial.left_out
    assert b"proxy_plugins" not in (trial.files[0].content or b"")
    assert render_control().left_out == ""


READY = TrialAnswer(is_ready=True, handlers=("", "runc", "nvidia"), cdi_enabled=True)
PLAN = RuntimePlan(cdi_enabled=False, handlers=("runc", "nvidia"))


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        (READY, ""),
        (TrialAnswer(is_ready=True, handlers=("runc", "nvidia")), ""),
        (TrialAnswer(said="it has no CRI"), "it has no CRI"),
        (TrialAnswer(), "CRI does not come up"),
        (TrialAnswer(is_ready=True, handlers=("nvidia",)), "CRI comes up without the runtime runc"),
        (TrialAnswer(is_ready=True), "CRI comes up without the runtime runc and nvidia"),
        (TrialAnswer(is_ready=True, handlers=PLAN.handlers, cdi_enabled=False), "CRI comes up with CDI switched off"),
    ],
)
def test_an_answer_is_held_against_the_plan(answer: TrialAnswer, wrong: str) -> None:
    """Ready, with every runtime, and with CDI where the daemon tells of it."""
    assert find_wrong(answer, PLAN, Wanted()) == wrong
    if answer.cdi_enabled is False:
        assert find_wrong(answer, PLAN, Wanted(cdi=False)) == ""
