"""NVIDIA's programs that the agent is measured beside, each built from its module into the cache.

The DRA driver's module locks a pre-release of Kubernetes and a client of Fabric Manager, which not every module proxy
has. Where the driver does not build as it is, it is built with the release of that Kubernetes and without that client,
which is called behind a feature gate that is off by default; the driver's name in the table says so.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from tests.integration.nvidia_claims import DRA_DRIVER
from tests.integration.nvidia_plugin.program import MODULE, SUM, VERSION
from tests.integration.runtimes.releases import NotBuilt, run_go
from tests.integration.runtimes.toolkit.program import (
    RUNTIME,
    TOOLKIT,
    GoModule,
    build,
    compile_program,
    find_obstacle,
)
from tests.support.files.cache import locked

PLUGIN_MODULE: Final = GoModule(MODULE, VERSION, SUM)
DRA_MODULE: Final = GoModule(*DRA_DRIVER)
CLAIMS_PROGRAM: Final = "gpu-kubelet-plugin"
FABRIC_CLIENT: Final = "github.com/NVIDIA/go-nvfm"
FABRIC_FILES: Final = "client_nvfm*.go"
KUBERNETES: Final = "k8s.io/kubernetes=k8s.io/kubernetes@v1.37.2"


class Built(NamedTuple):
    """An original that can be started."""

    program: Path
    name: str
    """As the table calls it."""


def build_plugin() -> Built:
    return _build(PLUGIN_MODULE, "nvidia-device-plugin", f"NVIDIA's plugin {VERSION}")


def build_discovery() -> Built:
    return _build(PLUGIN_MODULE, "gpu-feature-discovery", f"GFD {VERSION}")


def build_installer() -> Built:
    return _build(TOOLKIT, "nvidia-ctk-installer", f"toolkit installer {TOOLKIT.version}")


def build_cdi_hook() -> Built:
    return _build(TOOLKIT, "nvidia-cdi-hook", f"nvidia-cdi-hook {TOOLKIT.version}")


def build_runtime() -> Built:
    return _build(TOOLKIT, RUNTIME, f"{RUNTIME} {TOOLKIT.version}")


def take_the_driver() -> Built:
    """Where the agent is held against the calls that the work is made of."""
    return Built(Path(), "the fake driver's own time")


def build_claims() -> Built:
    """NVIDIA's DRA driver, as it is or with what this file says of it.

    Raises:
        NotBuilt: neither builds here.
    """
    name = f"NVIDIA's DRA driver {DRA_MODULE.version}"
    try:
        return _build(DRA_MODULE, CLAIMS_PROGRAM, name)
    except NotBuilt:
        changed = f"{name} (Kubernetes {KUBERNETES.rpartition('@v')[2]}, no Fabric Manager)"
        return Built(_build_changed(), changed)


def _build(module: GoModule, program: str, name: str) -> Built:
    obstacle = find_obstacle()
    if obstacle:
        raise NotBuilt([program, module.version], obstacle)
    return Built(build(program, module), name)


def _build_changed() -> Path:
    program = DRA_MODULE.programs / "changed" / CLAIMS_PROGRAM
    program.parent.mkdir(parents=True, exist_ok=True)
    with locked(program.parent / "lock"), tempfile.TemporaryDirectory(prefix="nodeagent-dra-") as directory:
        if not program.exists():
            source = Path(directory) / "module"
            shutil.copytree(DRA_MODULE.fetch(), source)
            # The module cache is read only, and so is a copy of it.
            for path in (source, *source.rglob("*")):
                path.chmod(0o755)
            fabric = source / "pkg" / "fabricmanager"
            for path in fabric.glob(FABRIC_FILES):
                path.unlink()
            shutil.copyfile(Path(__file__).with_name("no_fabric.go"), fabric / "no_fabric.go")
            edit = ["go", "mod", "edit", f"-droprequire={FABRIC_CLIENT}", f"-replace={KUBERNETES}"]
            run_go(edit, source)
            compile_program(source, CLAIMS_PROGRAM, program, "-mod=mod")
    return program
