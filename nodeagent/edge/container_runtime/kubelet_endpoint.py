"""The kubelet's configured runtime socket: from the command line, or else from the configuration file.

Refuses to ask the kubelet itself: the kubelet's server wants credentials of no other use to the agent.
"""

from typing import Final

from nodeagent.model.yaml_text import YamlUnreadable, parse_yaml

_ENDPOINT_FLAG: Final = "--container-runtime-endpoint"
_CONFIG_FLAG: Final = "--config"
_ENDPOINT_KEY: Final = "containerRuntimeEndpoint"


def parse_kubelet_endpoint(arguments: tuple[str, ...]) -> str:
    """The socket in the kubelet's command line; empty without the flag."""
    return _find_flag(_ENDPOINT_FLAG, arguments).removeprefix("unix://")


def parse_kubelet_config_flag(arguments: tuple[str, ...]) -> str:
    """The configuration file in the kubelet's command line; empty without the flag."""
    return _find_flag(_CONFIG_FLAG, arguments)


def parse_kubelet_config(content: bytes) -> str:
    """The socket in the kubelet's configuration file; empty for a file without a socket or not readable as YAML."""
    try:
        document = parse_yaml(content)
    except YamlUnreadable:
        # The kubelet would not have started with such a file, and so runs with another file.
        return ""
    endpoint = document.get(_ENDPOINT_KEY) if isinstance(document, dict) else None
    return endpoint.removeprefix("unix://") if isinstance(endpoint, str) else ""


def _find_flag(flag: str, arguments: tuple[str, ...]) -> str:
    for number, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == flag:
            return value if equals else "".join(arguments[number + 1 : number + 2])
    return ""
