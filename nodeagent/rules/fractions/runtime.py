"""By which way the node's container runtime is told parts of GPUs, and whether there is one; pure.

Parts are told by CDI names that mean something only when the container starts. A runtime without CDI is told by the
runtime shim, which looks the same names up at the same moment. Without either the GPU would have to be chosen at the
admission, from ids that the kubelet picks for each resource by itself: that is the guess that is refused.
"""

from typing import Final

from nodeagent.model.plugin import ContainerAnswer, ContainerMount
from nodeagent.model.runtime import RuntimeState
from nodeagent.model.shim_names import place_request

_OR: Final = "or have it create every container through the runtime shim (`runtime.shim`, `shim.default_runtime`)"


def is_by_shim(state: RuntimeState | None) -> bool:
    """Whether the shim tells containers their parts, because the runtime takes no CDI devices."""
    return state is not None and state.cdi_enabled is False and state.through_shim


def explain_no_cdi(state: RuntimeState | None) -> str:
    """Why a runtime cannot be told parts, with what to do about it; empty where it can, or where nobody knows.

    One that does not tell its version has not answered: its files alone are not taken for its word.
    """
    if state is None or state.cdi_enabled is not False or state.through_shim or not state.version:
        return ""
    name = f"{state.kind} {state.version} takes no CDI devices"
    if state.restart_needed:
        return f"{name} before it is restarted: {state.restart_needed}"
    remedy = state.problem or f"switch them on in {state.config_file}, as `nodeagent runtime plan` shows"
    return f"{name}: {remedy}; {_OR}"


def render_answer(cdi_name: str, state: RuntimeState | None) -> ContainerAnswer:
    """What the kubelet is answered, so that whoever creates the container looks this name up; nothing for none."""
    if not cdi_name:
        return ContainerAnswer()
    if is_by_shim(state):
        request = ContainerMount(container_path=place_request(cdi_name), host_path="/dev/null", read_only=False)
        return ContainerAnswer(mounts=(request,))
    return ContainerAnswer(cdi_devices=(cdi_name,))
