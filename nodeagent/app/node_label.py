"""The node's label that chose the named configuration, stored for a start while the API server is away.

Owns the file, and the fallback for a missing or invalid configuration: the agent starts with the default, and reports
why. The file lies in the state directory as set before any named configuration.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from nodeagent.config.errors import ConfigurationInvalid
from nodeagent.config.load import Loaded
from nodeagent.edge.host.files.sealed_file import SealedFile
from nodeagent.edge.kube.credentials import find_credentials

NAME: Final = "configuration-label"
SEAL: Final = ("nodeagent-configuration-label", 1)


class Recalled(Struct, frozen=True):
    """The label followed by the agent before, and whether its configuration still exists."""

    file: Path
    label: str = ""
    """The stored label; empty where the node had no label, or without a store."""
    in_force: str = ""
    """The label whose configuration is in force at the start; empty for the default."""
    refusal: str = ""
    """Why the stored label is not in force."""
    trouble: str = ""
    """Why the file cannot be used."""


def recall_label(
    loaded: Loaded, reload_settings: Callable[[str], Loaded], environ: Mapping[str, str]
) -> tuple[Loaded, Recalled]:
    """The settings with the configuration followed last, or else the given settings.

    `reload_settings` reads the same sources with the configuration of a label; it raises `ConfigurationInvalid`.
    """
    settings = loaded.settings
    file = settings.node.state_dir / NAME
    nothing = loaded, Recalled(file)
    if settings.device_plugin.config_dir is None or settings.kubernetes.enabled == "false":
        return nothing
    # Where no label can ever be read, a label read long ago must not count.
    if find_credentials(settings.kubernetes.kubeconfig, environ) is None:
        return nothing
    found = SealedFile(file, *SEAL).read()
    label, trouble = (found.body or b"").decode("utf-8", "replace"), "; ".join(found.troubles)
    if not label:
        return loaded, Recalled(file, trouble=trouble)
    try:
        chosen = reload_settings(label)
    except ConfigurationInvalid as error:
        refusal = "; ".join(str(problem) for problem in error.problems)
    else:
        if not chosen.unchosen:
            return chosen, Recalled(file, label=label, in_force=label, trouble=trouble)
        refusal = chosen.unchosen
    return loaded, Recalled(file, label=label, refusal=refusal, trouble=trouble)
