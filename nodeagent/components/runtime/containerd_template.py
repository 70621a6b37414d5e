"""How distributions make containerd's configuration from a template at each start.

MicroK8s replaces `${NAME}` in `containerd-template.toml` by `sed`, whatever stands round it, and starts
containerd with the result. k3s and RKE2 have templates in Go's language; from early 2026 on, the results import a
directory of drop-ins.
"""

from pathlib import PurePosixPath
from typing import Final

from msgspec.structs import replace

from nodeagent.components.runtime.choose import ChosenRuntime
from nodeagent.model.nvidia import RUNTIME_PROGRAM
from nodeagent.model.runtime import ConfigFile, ConfigTree, RuntimeFlavour
from nodeagent.model.runtimes.containerd import list_snap_places

GENERATING: Final = (RuntimeFlavour.K3S, RuntimeFlavour.RKE2)
"""The distributions that write the main file themselves, over any change by others."""
IMPORTED: Final = ("config-v3.toml.d", "config.toml.d")
"""The directories beside the main file that the main files of k3s and RKE2 import, for versions 3 and 2."""
_GO_SUFFIX: Final = ".tmpl"
_DEFAULT_RUNTIME: Final = "runc"
_RUNTIME_TYPE: Final = "io.containerd.runc.v2"


def find_gpu_lock(runtime: ChosenRuntime) -> str:
    """The file by which MicroK8s' start script takes the GPU runtime for the default; empty elsewhere."""
    if runtime.flavour is not RuntimeFlavour.MICROK8S:
        return ""
    return str(PurePosixPath(runtime.config_file).parent.parent / "var/lock/gpu")


def fill_template(runtime: ChosenRuntime, tree: ConfigTree) -> ConfigTree:
    """The files as containerd is given them; of the variables, runtimes and directories are enough."""
    lock = find_gpu_lock(runtime)
    if not lock:
        return tree
    default = RUNTIME_PROGRAM if any(file.path == lock for file in tree.files) else _DEFAULT_RUNTIME
    variables = {
        **list_snap_places(runtime.config_file),
        b"${RUNTIME}": default.encode(),
        b"${RUNTIME_TYPE}": _RUNTIME_TYPE.encode(),
    }
    main, *others = tree.files
    kept = (file for file in others if file.path != lock)
    return ConfigTree(files=(_fill(main, variables), *kept), problems=tree.problems)


def find_go_template(runtime: ChosenRuntime) -> str:
    """The main file, where it is a template for k3s or RKE2 alone; empty elsewhere."""
    is_template = runtime.flavour in GENERATING and runtime.config_file.endswith(_GO_SUFFIX)
    return runtime.config_file if is_template else ""


def _fill(file: ConfigFile, variables: dict[bytes, bytes]) -> ConfigFile:
    content = file.content
    for name, value in variables.items():
        content = content.replace(name, value) if content is not None else None
    return replace(file, content=content)
