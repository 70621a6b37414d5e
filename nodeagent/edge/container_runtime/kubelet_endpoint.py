"""Which socket the kubelet was told to use: by its command line, or else by its configuration file.

Refuses to ask the kubelet itself: its server wants credentials that the agent does not need for anything else.
"""

from typing import Final

from nodeagent.model.yaml_text import YamlUnreadable, parse_yaml

_ENDPOINT_FLAG: Final = "--container-runtime-endpoint"
_CONFIG_FLAG: Final = "--config"
_ENDPOINT_KEY: Final = "containerRuntimeEndpoint"


def parse_kubelet_endpoint(arguments: tuple[str, ...]) -> str:
    """The socket in the kubelet's command line; empty when it is not there."""
    return _find_flag(_ENDPOINT_FLAG, arguments).removeprefix("unix://")


def parse_kubelet_config_flag(arguments: tuple[str, ...]) -> str:
    """The configuration file in the kubelet's command line; empty when it is not there."""
    return _find_flag(_CONFIG_FLAG, arguments)


def parse_kubelet_config(content: bytes) -> str:
    """The socket in the kubelet's configuration file; empty when it has none, or is not to be understood."""
    try:
        document = parse_yaml(content)
    except YamlUnreadable:
        # The kubelet itself would not have started with it; what it runs with is another file.
        return ""
    endpoint = document.get(_ENDPOINT_KEY) if isinstance(document, dict) else None
    return endpoint.removeprefix("unix://") if isinstance(endpoint, str) else ""


def _find_flag(flag: str, arguments: tuple[str, ...]) -> str:
    for number, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == flag:
            return value if equals else "".join(arguments[number + 1 : number + 2])
    return ""
