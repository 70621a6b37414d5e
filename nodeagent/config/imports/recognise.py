"""Recognises the product of a document by keys of that product alone.

Owns Kubernetes' wrappings: objects, lists of objects, ConfigMaps that contain documents.
"""

import tomllib
from collections.abc import Iterable, Mapping
from typing import Final, cast

from nodeagent.config.imports import dcgm_exporter, device_plugin
from nodeagent.config.imports.container_toolkit import import_toolkit_file, is_toolkit_file
from nodeagent.config.imports.driver_pods import import_driver_object
from nodeagent.config.imports.engine import IN_OUR_CHART, Imported, NamedFile, merge_imported, translate
from nodeagent.config.imports.gpu_manager import (
    import_extra_config,
    import_gpu_manager_text,
    is_extra_config,
    is_gpu_manager_text,
)
from nodeagent.config.imports.gpu_operator import import_policy
from nodeagent.config.imports.workloads import KINDS, import_workload
from nodeagent.model.yaml_text import YamlUnreadable, parse_yaml_documents

_FIELD_PREFIXES: Final = ("DCGM_FI_", "DCGM_EXP_", "dcgm_")
_OPERATOR_KEYS: Final = frozenset({"toolkit", "devicePlugin", "dcgmExporter", "gfd", "migManager", "validator"})
_PLUGIN_FILE_KEYS: Final = frozenset({"flags", "sharing", "imex"})
_PLUGIN_VALUE_KEYS: Final = frozenset({"migStrategy", "deviceListStrategy", "compatWithCPUManager", "failOnInitError"})
_EXPORTER_VALUE_KEYS: Final = frozenset({"serviceMonitor", "customMetrics", "extraHostVolumes", "hpcJobMapping"})
_KNOWN: Final = (
    "a ClusterPolicy, an NVIDIADriver, a device plugin configuration, a ConfigMap of such, Helm values of these or of"
    " DCGM exporter, a DCGM exporter field list, a mig-parted file, the container toolkit's config.toml, gpu-manager's"
    " command line or extra configuration, a DaemonSet of gpu-manager, the device plugin, GPU feature discovery or DCGM"
    " exporter"
)

Document = Mapping[str, object]


class NotRecognised(ValueError):
    """The file is of no known kind."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"cannot import {name}: {reason}; what is read: {_KNOWN}")
        self.name, self.reason = name, reason


def import_text(name: str, text: str, *, entry: str = "") -> Imported:
    """Import one file.

    Args:
        name: The name of the file; a field list is set as `metrics.fields_file` by name.
        text: The content of the file.
        entry: The entry of a ConfigMap with several configurations.

    Raises:
        NotRecognised: The file is of no known kind.
    """
    if is_field_list(text):
        return Imported({"metrics.fields_file": name})
    if (toolkit := _parse_toolkit_file(text)) is not None:
        return import_toolkit_file(toolkit)
    try:
        documents = _parse(name, text)
    except NotRecognised:
        if is_gpu_manager_text(text):
            return import_gpu_manager_text(text)
        raise
    if not documents:
        raise NotRecognised(name, "it is empty")
    return _import_all(name, documents, entry)


def _import_all(name: str, documents: Iterable[Document], entry: str) -> Imported:
    """The documents of a file or list; beside one that is known, others are of its deployment."""
    parts: list[Imported] = []
    unknown: list[NotRecognised] = []
    for document in documents:
        try:
            parts.append(_import_document(name, document, entry))
        except NotRecognised as error:
            if "kind" not in document:
                raise
            unknown.append(error)
            parts.append(Imported(notes=(f"{document['kind']}: {IN_OUR_CHART}",)))
    if unknown and len(unknown) == len(parts):
        raise unknown[0]
    return _join(parts)


def is_field_list(text: str) -> bool:
    """Whether a text is a DCGM exporter list: lines of name, type, help."""
    lines = [line.strip() for line in text.splitlines()]
    wanted = [line for line in lines if line and not line.startswith("#")]
    return bool(wanted) and all(line.startswith(_FIELD_PREFIXES) and line.count(",") >= 1 for line in wanted)


def _parse_toolkit_file(text: str) -> dict[str, object] | None:
    """The toolkit's file, the only known TOML document; hardly any YAML text is valid TOML."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None
    return document if is_toolkit_file(document) else None


def _parse(name: str, text: str) -> list[Document]:
    try:
        documents = [document for document in parse_yaml_documents(text) if document is not None]
    except YamlUnreadable as error:
        raise NotRecognised(name, str(error)) from error
    if not all(isinstance(document, dict) for document in documents):
        raise NotRecognised(name, "it is not a mapping")
    return documents


def _import_document(name: str, document: Document, entry: str) -> Imported:
    kind = document.get("kind")
    if kind == "List" and isinstance(document.get("items"), list):
        items = cast("list[Document]", document["items"])
        return _import_all(name, [item for item in items if isinstance(item, dict)], entry)
    if kind == "ClusterPolicy":
        return import_policy(_mapping(document.get("spec")))
    if kind == "NVIDIADriver":
        return import_driver_object(document)
    if kind == "ConfigMap":
        return _import_config_map(name, _mapping(document.get("data")), entry)
    if kind in KINDS and (found := import_workload(document)):
        return _join(found)
    if kind is not None and "apiVersion" in document:
        raise NotRecognised(name, f"an object of kind {kind}")
    return _import_plain(name, document)


def _import_plain(name: str, document: Document) -> Imported:
    keys = document.keys()
    if "mig-configs" in keys:
        names = ", ".join(str(each) for each in _mapping(document["mig-configs"]))
        note = f"mig-configs ({names}): read as they are where mig.layouts_file names this file and mig.manage is true"
        return Imported(notes=(note,))
    if keys & _OPERATOR_KEYS:
        return import_policy(document)
    if keys & _PLUGIN_FILE_KEYS or document.get("version") == "v1":
        return translate(document, device_plugin.FILE)
    if keys & _PLUGIN_VALUE_KEYS:
        return translate(document, device_plugin.VALUES)
    if keys & _EXPORTER_VALUE_KEYS:
        return translate(document, dcgm_exporter.VALUES)
    if is_extra_config(document):
        return import_extra_config(document)
    raise NotRecognised(name, f"nothing is known by the keys {', '.join(sorted(map(str, keys))) or '(none)'}")


def _import_config_map(name: str, data: Document, entry: str) -> Imported:
    if entry and entry not in data:
        raise NotRecognised(name, f"it has no entry {entry!r}, only {', '.join(map(str, data)) or 'none'}")
    chosen = {entry: data[entry]} if entry else data
    if len(chosen) > 1:
        names = ", ".join(map(str, chosen))
        advice = "mount it as it is and set device_plugin.config_dir, or choose one by --entry"
        return Imported(notes=(f"{names}: several configurations; {advice}",))
    parts: dict[str, Imported] = {}
    for key, value in chosen.items():
        if is_field_list(str(value)):
            note = "a field list; mount it and set metrics.fields_file to where it is"
            parts[str(key)] = Imported(notes=(note,))
        else:
            parts[str(key)] = import_text(f"{name}, entry {key}", str(value))
    return merge_imported(parts)


def _join(parts: Iterable[Imported]) -> Imported:
    settings: dict[str, object] = {}
    notes: dict[str, None] = {}
    files: list[NamedFile] = []
    values: dict[str, object] = {}
    groups: list[Document] = []
    for part in parts:
        settings.update(part.settings)
        notes |= dict.fromkeys(part.notes)
        files += part.files
        values.update(part.values)
        groups += part.groups
    return Imported(settings, tuple(notes), tuple(files), values, tuple(groups))


def _mapping(value: object) -> Document:
    return value if isinstance(value, dict) else {}
