"""How a container gets its fractions: by its runtime, if there is any way, and with the mounts for its limits; pure.

Fractions go by CDI names resolved only when the container starts. For a runtime without CDI the
runtime shim resolves the same names at the same moment. Without either the GPU would have to be chosen at the
admission, from ids picked by the kubelet for each resource by itself: a guess, and refused.
"""

from typing import Final

from nodeagent.model.fractions import PLACE, LibraryFiles, LimitsFolder
from nodeagent.model.plugin import ContainerAnswer, ContainerMount
from nodeagent.model.runtime import RuntimeState
from nodeagent.model.shim_names import place_request

_OR: Final = "or have it create every container through the runtime shim (`runtime.shim`, `shim.default_runtime`)"


def is_by_shim(state: RuntimeState | None) -> bool:
    """Whether the shim delivers fractions to containers, because the runtime takes no CDI devices."""
    return state is not None and state.cdi_enabled is False and state.through_shim


def explain_no_cdi(state: RuntimeState | None) -> str:
    """Why a runtime cannot deliver fractions, with the remedy; empty where it can, or where unknown.

    A runtime of unknown version has not answered: files alone are not taken for an answer.
    """
    if state is None or state.cdi_enabled is not False or state.through_shim or not state.version:
        return ""
    name = f"{state.kind} {state.version} takes no CDI devices"
    if state.restart_needed:
        return f"{name} before it is restarted: {state.restart_needed}"
    remedy = state.problem or f"switch them on in {state.config_file}, as `nodeagent runtime plan` shows"
    return f"{name}: {remedy}; {_OR}"


def explain_no_device_names(state: RuntimeState | None) -> str:
    """Why a runtime cannot deliver fractions of a class's devices, of which the shim knows nothing; empty if it can."""
    if state is not None and is_by_shim(state):
        remedy = f"switch them on in {state.config_file}, as `nodeagent runtime plan` shows"
        return f"{state.kind} {state.version} takes no CDI devices, and the shim gives parts of GPUs alone: {remedy}"
    return explain_no_cdi(state)


def render_answer(cdi_name: str, state: RuntimeState | None) -> ContainerAnswer:
    """The answer to the kubelet, for the container's creator to look the CDI name up; empty without a name."""
    if not cdi_name:
        return ContainerAnswer()
    if is_by_shim(state):
        request = ContainerMount(container_path=place_request(cdi_name), host_path="/dev/null", read_only=False)
        return ContainerAnswer(mounts=(request,))
    return ContainerAnswer(cdi_devices=(cdi_name,))


PRELOAD: Final = "/etc/ld.so.preload"
"""The file by which a container's dynamic linker loads libraries before all others."""

OWN_BYTES: Final = 1 << 20
"""For the usage file of a container that shares a claim, several times: processes that start at once each make one."""


def plan_fraction_mounts(folder: LimitsFolder, library: LibraryFiles | None) -> tuple[ContainerMount, ...]:
    """The mounts; the library's are among them where the library enforces the limits."""
    mounts = [ContainerMount(container_path=f"{PLACE}/limits", host_path=folder.limits)]
    if folder.shared:
        mounts += [
            ContainerMount(container_path=f"{PLACE}/shared", host_path=folder.shared, read_only=False),
            ContainerMount(container_path=f"{PLACE}/own", memory_bytes=OWN_BYTES, read_only=False),
        ]
    else:
        mounts.append(ContainerMount(container_path=f"{PLACE}/usage", host_path=folder.usage, read_only=False))
    if library is not None:
        name = library.library.rpartition("/")[2]
        mounts += [
            ContainerMount(container_path=f"{PLACE}/{name}", host_path=library.library),
            ContainerMount(container_path=PRELOAD, host_path=library.preload),
        ]
    return tuple(mounts)
