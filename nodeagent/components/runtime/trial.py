"""Makes a planned configuration harmless, to start the node's own containerd with a copy of it.

Owns the list of things that such a daemon must not share with the node's: data and state directories, sockets, ports,
storage of snapshotters, plugins of others, NRI, CNI's directory. The rest of the files decides whether CRI comes up
and with which runtimes: versions, imports, CRI's own tables, disabled plugins.

The copies lie side by side; `SCRATCH` in them stands for the directory, known to the edge alone.
"""

from typing import Any, Final

import tomlkit

from nodeagent.components.runtime.plan import RuntimePlan, Wanted
from nodeagent.components.runtime.toml_edit import get_table, parse_toml
from nodeagent.model.runtime import SCRATCH, ConfigFile, ConfigTree, TrialAnswer
from nodeagent.model.values import Value

_RUNTIME: Final = "io.containerd.cri.v1.runtime"
_IMAGES: Final = "io.containerd.cri.v1.images"
_CRI_TABLES: Final = ("cri", "io.containerd.grpc.v1.cri", _RUNTIME, _IMAGES)
_NEWEST_COMBINED: Final = 2
"""The newest version with all of CRI in one table."""
_NEWEST_FLAT: Final = 3
"""The newest version with the sockets outside of the plugins' tables."""
_SNAPSHOTTER: Final = "native"
"""A snapshotter that keeps its snapshots in plain directories below the daemon's own."""
_SHARED: Final = (
    *(f"io.containerd.snapshotter.v1.{name}" for name in ("aufs", "blockfile", "btrfs", "devmapper", "erofs", "zfs")),
    "io.containerd.nri.v1.nri",
    "io.containerd.internal.v1.opt",
    "io.containerd.internal.v1.restart",
    "io.containerd.monitor.container.v1.restart",
    "io.containerd.internal.v1.tracing",
    "io.containerd.tracing.processor.v1.otlp",
)
_OLD_NAMES: Final = tuple(name.rpartition(".")[2] for name in _SHARED)
"""The names by which a file of version 1 switches plugins off in 1.x."""
_PLAIN: Final = ConfigTree(files=(ConfigFile(path="config.toml", content=b"version = 2\n"),))
"""A configuration that every release reads."""


class Trial(Value, frozen=True):
    """Copies to start a daemon with."""

    files: tuple[ConfigFile, ...]
    """The main file first; each path is a name beside the others."""
    left_out: str = ""
    """Programs that CRI may need and a copy must not have; empty when the copy has everything that counts."""


def render_trial(tree: ConfigTree) -> Trial:
    """The configuration without anything noticeable for the node's daemon.

    Raises:
        ConfigUnparsable: a file is no TOML.
    """
    documents = [parse_toml(file.path, file.content) for file in tree.files]
    names = ["config.toml", *(f"import-{number}.toml" for number in range(1, len(documents)))]
    copies = [_make_harmless(document, is_main=not number) for number, document in enumerate(documents)]
    _add_own(copies[0], names[1:])
    files = (
        ConfigFile(path=name, content=tomlkit.dumps(copy).encode()) for name, copy in zip(names, copies, strict=True)
    )
    proxies = [name for document in documents for name in get_table(document, ("proxy_plugins",))]
    left_out = f"programs beside containerd ({', '.join(proxies)}) cannot take part" if proxies else ""
    return Trial(files=tuple(files), left_out=left_out)


def render_control() -> Trial:
    """A configuration for containerd to come up with wherever a trial works at all."""
    return render_trial(_PLAIN)


def find_wrong(answer: TrialAnswer, plan: RuntimePlan, wanted: Wanted) -> str:
    """The first failure of a daemon with the planned files; empty for a daemon that follows the plan."""
    if not answer.is_ready:
        return answer.said or "CRI does not come up"
    lost = [name for name in plan.handlers if name not in (answer.handlers or ())]
    if lost:
        return f"CRI comes up without the runtime {' and '.join(lost)}"
    if wanted.cdi and answer.cdi_enabled is False:
        return "CRI comes up with CDI switched off"
    return ""


def _make_harmless(document: dict[str, Any], *, is_main: bool) -> dict[str, Any]:
    """The keys that decide about CRI, without any others."""
    copy = {name: document[name] for name in ("version", "disabled_plugins") if name in document}
    plugins = get_table(document, ("plugins",))
    tables: dict[str, dict[str, Any]] = {name: get_table(plugins, (name,)) for name in _CRI_TABLES if name in plugins}
    # In 1.x a table in an import would take the place of the main file's.
    for name in _list_expected_tables(document) if is_main else ():
        tables.setdefault(name, {})
    for name, table in tables.items():
        _make_table_harmless(name, table)
    return copy | {"plugins": tables}


def _list_expected_tables(document: dict[str, Any]) -> tuple[str, ...]:
    """The tables for CNI and the snapshots in a main file of the document's version."""
    version = document.get("version", 1)
    if version == 1:
        return ("cri",)
    return _CRI_TABLES[1:2] if version == _NEWEST_COMBINED else _CRI_TABLES[2:]


def _make_table_harmless(name: str, table: dict[str, Any]) -> None:
    for key in ("stream_server_address", "stream_server_port"):
        table.pop(key, None)
    if name == _IMAGES:
        table["snapshotter"] = _SNAPSHOTTER
        entries = get_table(table, ("runtime_platforms",))
        table["runtime_platforms"] = {key: _move_entry(entry) for key, entry in entries.items()}
        return
    table["cni"] = {**get_table(table, ("cni",)), "conf_dir": f"{SCRATCH}/cni"}
    containerd = get_table(table, ("containerd",))
    if name != _RUNTIME:
        containerd["snapshotter"] = _SNAPSHOTTER
    for key in ("default_runtime", "untrusted_workload_runtime"):
        if key in containerd:
            containerd[key] = _move_entry(containerd[key])
    if isinstance(containerd.get("runtimes"), dict):
        containerd["runtimes"] = {key: _move_entry(entry) for key, entry in containerd["runtimes"].items()}
    table["containerd"] = containerd


def _move_entry(entry: Any) -> Any:
    """A runtime with storage and network directory in the scratch directory."""
    own = {"snapshotter": _SNAPSHOTTER, "cni_conf_dir": f"{SCRATCH}/cni"}
    return entry | {key: own[key] for key in entry.keys() & own.keys()} if isinstance(entry, dict) else entry


def _add_own(main: dict[str, Any], imports: list[str]) -> None:
    version = main.get("version", 1)
    told = main.get("disabled_plugins")
    disabled = (*_SHARED, *(_OLD_NAMES if version == 1 else ()))
    main["disabled_plugins"] = [*(told if isinstance(told, list) else ()), *disabled]
    main["imports"] = imports
    addresses = {name: {"address": f"{SCRATCH}/{name}"} for name in ("grpc", "ttrpc")}
    if isinstance(version, int) and version > _NEWEST_FLAT:
        main["plugins"] |= {f"io.containerd.server.v1.{name}": table for name, table in addresses.items()}
    else:
        main |= addresses
