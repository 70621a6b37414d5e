"""Whether the node's container runtime can be told parts of GPUs at all; pure.

Parts are told by CDI names that mean something only when the container starts. Without CDI the GPU would have to be
chosen at the admission, from ids that the kubelet picks for each resource by itself: that is the guess that is refused.
"""

from nodeagent.model.runtime import RuntimeState


def explain_no_cdi(state: RuntimeState | None) -> str:
    """Why a runtime cannot be told parts, with what to do about it; empty where it can, or where nobody knows.

    One that does not tell its version has not answered: its files alone are not taken for its word.
    """
    if state is None or state.cdi_enabled is not False or not state.version:
        return ""
    name = f"{state.kind} {state.version} takes no CDI devices"
    if state.restart_needed:
        return f"{name} before it is restarted: {state.restart_needed}"
    return f"{name}: {state.problem or f'switch them on in {state.config_file}, as `nodeagent runtime plan` shows'}"
