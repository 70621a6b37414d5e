"""DaemonSets and pods of the products: the options and variables of their containers."""

from collections.abc import Iterator, Mapping
from typing import Final

from nodeagent.config.imports import dcgm_exporter, device_plugin, feature_discovery
from nodeagent.config.imports.engine import Imported, Tables, prefix, translate
from nodeagent.config.imports.gpu_manager import import_gpu_manager

KINDS: Final = frozenset({"DaemonSet", "Deployment", "Pod"})
_SHELLS: Final = ("sh", "bash")
_GPU_MANAGER: Final = "gpu-manager"
_EXPORTER_REASONS: Final = {
    **{f"args.{name}": reason for name, reason in dcgm_exporter.OPTION_REASONS.items()},
    **{f"env.{name}": reason for name, reason in dcgm_exporter.VARIABLE_REASONS.items()},
}
_PROGRAMS: Final = {
    "device-plugin": Tables(
        {**prefix("args", device_plugin.OPTIONS), **prefix("env", device_plugin.VARIABLES)}, device_plugin.REASONS
    ),
    "gpu-feature-discovery": Tables(
        {**prefix("args", feature_discovery.OPTIONS), **prefix("env", feature_discovery.VARIABLES)},
        feature_discovery.REASONS,
    ),
    "dcgm-exporter": Tables(
        {**prefix("args", dcgm_exporter.OPTIONS), **prefix("env", dcgm_exporter.VARIABLES)}, _EXPORTER_REASONS
    ),
}
"""By a part of the names of image and program."""

Document = Mapping[str, object]


def import_workload(document: Document) -> tuple[Imported, ...]:
    """The imports of all containers that run a known program."""
    return tuple(found for each in _list_containers(document) if (found := _import_container(each)) is not None)


def _list_containers(document: Document) -> Iterator[Document]:
    spec = _mapping(document.get("spec"))
    template = _mapping(_mapping(spec.get("template")).get("spec"))
    containers = (template or spec).get("containers")
    yield from (each for each in containers if isinstance(each, dict)) if isinstance(containers, list) else ()


def _import_container(container: Document) -> Imported | None:
    command, arguments = (_words(container.get(key)) for key in ("command", "args"))
    names = " ".join((str(container.get("image")).rpartition("/")[2], *command[:1], str(container.get("name"))))
    options = [*command[1:], *arguments]
    if command and command[0].rpartition("/")[2] in _SHELLS:
        options = [inner for word in options if word != "-c" for inner in word.split()]
    if _GPU_MANAGER in names:
        entries = container.get("env")
        pairs = [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []
        variables = {str(each["name"]): str(each["value"]) for each in pairs if "name" in each and "value" in each}
        return import_gpu_manager(options, variables, is_in_pod=True)
    tables = next((tables for name, tables in _PROGRAMS.items() if name in names), None)
    first = next((number for number, word in enumerate(options) if word.startswith("-")), len(options))
    return translate({"args": options[first:], "env": container.get("env")}, tables) if tables is not None else None


def _words(value: object) -> list[str]:
    return [str(word) for word in value] if isinstance(value, list) else []


def _mapping(value: object) -> Document:
    return value if isinstance(value, dict) else {}
