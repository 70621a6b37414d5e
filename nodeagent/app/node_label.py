"""The node's label that chose the named configuration, remembered for a start while the API server is away.

Owns the file, and what is done where that configuration is gone or invalid: the agent starts with the default one, and
says so. The file lies where the state directory is before a named configuration has had its say.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from nodeagent.config.errors import ConfigurationInvalid
from nodeagent.config.load import Loaded

NAME: Final = "configuration-label"
SEAL: Final = ("nodeagent-configuration-label", 1)


class Recalled(Struct, frozen=True):
    """The label that the agent before this one followed, and whether its configuration is still there."""

    file: Path
    label: str = ""
    """As the file says; empty where the node had no label, or nothing is remembered."""
    in_force: str = ""
    """The label whose configuration this agent starts with; empty for the default one."""
    refusal: str = ""
    """Why that is not the remembered one."""
    trouble: str = ""
    """Why the file cannot be used."""


def recall_label(
    loaded: Loaded, load_again: Callable[[str], Loaded], environ: Mapping[str, str]
) -> tuple[Loaded, Recalled]:
    """The settings with the configuration that was followed last, or else those given.

    Args:
        loaded: the settings with the default configuration.
        load_again: the same sources with the configuration of this label; raises `ConfigurationInvalid`.
        environ: the environment, which may say that there is an API server to be followed.
    """
    settings = loaded.settings
    file = settings.node.state_dir / NAME
    nothing = loaded, Recalled(file)
    if settings.device_plugin.config_dir is None or settings.kubernetes.enabled == "false":
        return nothing
    from nodeagent.edge.host.files.sealed_file import SealedFile  # noqa: PLC0415 - few nodes need it to start
    from nodeagent.edge.kube.credentials import find_credentials  # noqa: PLC0415 - likewise

    # Where no label can ever be read, none that was read long ago may have a say.
    if find_credentials(settings.kubernetes.kubeconfig, environ) is None:
        return nothing
    found = SealedFile(file, *SEAL).read()
    label, trouble = (found.body or b"").decode("utf-8", "replace"), "; ".join(found.troubles)
    if not label:
        return loaded, Recalled(file, trouble=trouble)
    try:
        chosen = load_again(label)
    except ConfigurationInvalid as error:
        refusal = "; ".join(str(problem) for problem in error.problems)
    else:
        if not chosen.unchosen:
            return chosen, Recalled(file, label=label, in_force=label, trouble=trouble)
        refusal = chosen.unchosen
    return loaded, Recalled(file, label=label, refusal=refusal, trouble=trouble)
