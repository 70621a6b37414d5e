"""The container toolkit's file: every key of it becomes a setting, or has a word on why it does not."""

from typing import Final

import pytest

from nodeagent.config.imports.container_toolkit import TABLES
from nodeagent.config.imports.engine import NO_COUNTERPART
from nodeagent.config.imports.recognise import NotRecognised, import_text
from nodeagent.config.imports.render import check_file, render_file
from nodeagent.config.schema import Settings
from nodeagent.config.sources import walk_knobs

EVERY_KEY: Final = """
accept-nvidia-visible-devices-as-volume-mounts = true
accept-nvidia-visible-devices-envvar-when-unprivileged = false
disable-require = true
supported-driver-capabilities = "compute,utility"
swarm-resource = "DOCKER_RESOURCE_GPU,OTHER"

[nvidia-container-cli]
root = "/run/nvidia/driver"
path = "/usr/bin/nvidia-container-cli"
debug = "/var/log/cli.log"
ldcache = "/etc/ld.so.cache"
environment = ["A=b"]
load-kmods = true
no-pivot = false
no-cgroups = true
ldconfig = "@/sbin/ldconfig.real"
user = "root:video"

[nvidia-container-runtime]
debug = "/var/log/runtime.log"
log-level = "info"
runtimes = ["crun", "/opt/runc"]
mode = "legacy"
[nvidia-container-runtime.modes.cdi]
default-kind = "example.com/gpu"
annotation-prefixes = ["a.b/"]
spec-dirs = ["/etc/cdi"]
[nvidia-container-runtime.modes.csv]
mount-spec-path = "/etc/x"
compat-container-root = "/y"
[nvidia-container-runtime.modes.legacy]
cuda-compat-mode = "ldconfig"
[nvidia-container-runtime.modes.jit-cdi]
nvcdi-feature-flags = ["f"]
nvcdi-disable-hooks = ["chmod"]

[nvidia-container-runtime-hook]
path = "nvidia-container-runtime-hook"
skip-mode-detection = false

[nvidia-ctk]
path = "nvidia-ctk"

[features]
allow-cuda-compat-libs-from-container = true
allow-ldconfig-from-container = true
allow-unknown-oci-spec-fields = true
disable-cuda-compat-lib-hook = true
disable-imex-channel-creation = true
ignore-imex-channel-requests = true
no-additional-gids-for-device-nodes = true
"""
SETTINGS: Final = {
    "runtime.shim": True,
    "shim.accept_mounts": True,
    "shim.accept_environment": False,
    "shim.disable_require": True,
    "shim.capabilities": ["compute", "utility"],
    "shim.swarm_resources": ["DOCKER_RESOURCE_GPU", "OTHER"],
    "driver.root": "/run/nvidia/driver",
    "shim.debug": "/var/log/runtime.log",
    "shim.runtimes": ["crun", "/opt/runc"],
    "shim.mode": "legacy",
    "shim.default_kind": "example.com/gpu",
    "shim.annotation_prefixes": ["a.b/"],
    "shim.ignore_imex": True,
    "cdi.device_groups": "never",
}


def test_every_key_is_carried_over_or_has_its_word() -> None:
    """And the file that comes of it is one of ours."""
    found = import_text("config.toml", EVERY_KEY)
    assert found.settings == SETTINGS
    notes = "\n".join(found.notes)
    assert NO_COUNTERPART not in notes
    keys = [line.partition(" = ")[0] for line in EVERY_KEY.splitlines() if " = " in line]
    imported = {path.rpartition(".")[2] for path in TABLES.targets}
    assert [key for key in keys if key not in imported and key not in notes] == []
    check_file(render_file(found))
    assert SETTINGS.keys() <= {".".join(path) for path, _ in walk_knobs(Settings)}


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("disable-require = false\n", {"runtime.shim": True, "shim.disable_require": False}),
        ('[nvidia-ctk]\npath = "nvidia-ctk"\n', {"runtime.shim": True}),
        ('[nvidia-container-runtime]\ndebug = "/dev/null"\n', {"runtime.shim": True, "shim.debug": None}),
        ('[nvidia-container-runtime]\nmode = "jit-cdi"\n', {"runtime.shim": True, "shim.mode": "auto"}),
        (
            "[nvidia-ctk]\n[features]\nno-additional-gids-for-device-nodes = false\n",
            {"runtime.shim": True, "cdi.device_groups": "auto"},
        ),
    ],
)
def test_what_it_says_keeps_its_meaning(text: str, settings: dict[str, object]) -> None:
    """A file that says little is known by its sections, or by the keys above them."""
    found = import_text("config.toml", text)
    assert found.settings == settings
    check_file(render_file(found))


def test_a_mode_that_is_not_served_is_told() -> None:
    """It is left out, and stays at its default."""
    (note,) = import_text("config.toml", '[nvidia-container-runtime]\nmode = "csv"\n').notes
    assert note == (
        "nvidia-container-runtime.mode: 'csv' is not understood: auto, cdi, jit-cdi or legacy is expected;"
        " Tegra is not served"
    )


@pytest.mark.parametrize("text", ["a = 1\n", '[plugins.cri]\nx = "y"\n', "[" * 5000])
def test_other_toml_is_not_taken_for_it(text: str) -> None:
    """A container runtime's own file, for instance."""
    with pytest.raises(NotRecognised, match=r"config\.toml"):
        import_text("other.toml", text)
