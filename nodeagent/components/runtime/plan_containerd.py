"""The least change to containerd's configuration, for every version of it.

Owns what each release does with imports: 2.0 and later merge a drop-in key by key, so a drop-in holds our keys alone;
1.x replaces the whole section by the drop-in's, so there the file that has the section is edited in place.
The version of a drop-in is that of the main file: a newer one silently wipes settings or stops the daemon.
"""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any, Final

from nodeagent.components.runtime.choose import ChosenRuntime, parse_version
from nodeagent.components.runtime.plan import CLASS, HEADER, OWN_NAME, RuntimePlan, Wanted, apply_to_tree, list_changes
from nodeagent.components.runtime.toml_edit import KeyPath, get, get_table, merge, parse_toml, set_keys
from nodeagent.model.runtime import ConfigTree, FileChange, RuntimeFlavour

_SECTIONS: Final[dict[int, KeyPath]] = {
    1: ("plugins", "cri"),
    2: ("plugins", "io.containerd.grpc.v1.cri"),
    3: ("plugins", "io.containerd.cri.v1.runtime"),
    4: ("plugins", "io.containerd.cri.v1.runtime"),
}
_RUNC: Final = "io.containerd.runc.v2"
_K0S_DROP_INS: Final = "/etc/k0s/containerd.d"
_CRI_PLUGINS: Final = ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")


def plan_containerd(runtime: ChosenRuntime, tree: ConfigTree, wanted: Wanted) -> RuntimePlan:
    """What to write.

    Raises:
        ConfigUnparsable: a file is no TOML.
        ConfigUneditable: a file cannot be extended.
    """
    config = _Config(runtime, tree)
    if problem := config.find_obstacle(wanted):
        return RuntimePlan(cdi_enabled=config.cdi_enabled, problem=problem)
    keys = config.list_missing(wanted)
    if not keys:
        return RuntimePlan(cdi_enabled=config.cdi_enabled)
    changes = config.plan_writes(keys)
    after = _Config(runtime, apply_to_tree(tree, changes))
    if left := after.list_missing(wanted):
        names = ", ".join(".".join(key) for key in left)
        return RuntimePlan(
            cdi_enabled=config.cdi_enabled,
            problem=f"another file sets {names} after ours: take it out of {config.find_setter(next(iter(left)))}",
        )
    return RuntimePlan(cdi_enabled=config.cdi_enabled, changes=changes)


def highest_config_version(version: tuple[int, int]) -> int:
    """The newest configuration version that a release of containerd reads."""
    if version < (2, 0):
        return 2
    return 3 if version < (2, 3) else 4


class _Config:
    """A configuration as containerd reads it."""

    def __init__(self, runtime: ChosenRuntime, tree: ConfigTree) -> None:
        self._runtime, self._tree = runtime, tree
        self._release = parse_version(runtime.version)
        self._documents = [(file, parse_toml(file.path, file.content)) for file in tree.files]
        self._main, main = self._documents[0]
        newest = 2 if self._release < (2, 0) else 3
        self._version = main.get("version", 1 if main else newest)
        self._section = _SECTIONS.get(self._version if isinstance(self._version, int) else 0, ())
        self._merged = self._merge()

    @property
    def cdi_enabled(self) -> bool:
        """Whether CDI is on, by the files and by what the release does without being told."""
        if self._release < (1, 7):
            return False
        told = get(self._merged, (*self._section, "enable_cdi"))
        return told if isinstance(told, bool) else self._release >= (2, 0)

    def find_obstacle(self, wanted: Wanted) -> str:
        """Why nothing can be done, or nothing should be."""
        problems = [*self._tree.problems, *(file.problem for file in self._tree.files if file.problem)]
        if problems:
            return problems[0]
        if self._release == (0, 0):
            return f"the version of the containerd at {self._runtime.socket} is not known"
        highest = highest_config_version(self._release)
        if not self._section or self._version > highest:
            return (
                f"{self._main.path} has configuration version {self._version!r}, this containerd"
                f" ({self._runtime.version}) reads up to {highest}: mend the file first"
            )
        disabled = self._merged.get("disabled_plugins")
        if isinstance(disabled, list) and any(plugin in _CRI_PLUGINS for plugin in disabled):
            return f'{self._main.path} switches CRI off: take "cri" out of `disabled_plugins`, then restart containerd'
        return self._find_refusal(wanted)

    def _find_refusal(self, wanted: Wanted) -> str:
        """What is well configured and still cannot have what is wanted."""
        if wanted.cdi and self._release < (1, 7):
            return "containerd 1.6 knows no CDI: upgrade it to 1.7 or later, or set `runtime.legacy_class: true`"
        managed = self._runtime.flavour in {RuntimeFlavour.K3S, RuntimeFlavour.RKE2}
        if managed and self.list_missing(wanted):
            return (
                f"{self._runtime.flavour} writes containerd's configuration itself at every start:"
                f" take the setting out of its template beside {self._main.path}; it adds the class"
                f" `{CLASS}` by itself once the NVIDIA container runtime is installed"
            )
        return ""

    def list_missing(self, wanted: Wanted) -> dict[KeyPath, Any]:
        """The keys that are not as wanted, with the values they should have."""
        keys: dict[KeyPath, Any] = {}
        if wanted.cdi and not self.cdi_enabled:
            keys[*self._section, "enable_cdi"] = True
        runtimes: KeyPath = (*self._section, "containerd", "runtimes")
        if wanted.wrapper and get(self._merged, (*runtimes, CLASS)) is None:
            keys |= self._describe_class((*runtimes, CLASS), get_table(self._merged, runtimes), wanted.wrapper)
        return keys

    def plan_writes(self, keys: dict[KeyPath, Any]) -> tuple[FileChange, ...]:
        """The files to write so that the keys are in force."""
        if self._release < (2, 0) or self._version == 1 or self._runtime.flavour is RuntimeFlavour.MICROK8S:
            return self._plan_edit(keys)
        return self._plan_drop_in(keys)

    def find_setter(self, key: KeyPath) -> str:
        """The last file that says something about a key."""
        return next((file.path for file, document in reversed(self._documents) if get(document, key) is not None), "it")

    def _merge(self) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for _, document in self._documents:
            if self._release >= (2, 0):
                merged = merge(merged, document)
                continue
            plugins = get_table(merged, ("plugins",)) | get_table(document, ("plugins",))
            merged = merge(merged, document) | ({"plugins": plugins} if plugins else {})
        return merged

    def _describe_class(self, at: KeyPath, runtimes: dict[str, Any], wrapper: str) -> dict[KeyPath, Any]:
        """The class as a copy of the runtime in use, so that it keeps its cgroup driver and annotations."""
        default = get(self._merged, (*self._section, "containerd", "default_runtime_name"))
        base: dict[str, Any] = next(
            (runtimes[name] for name in (default, "runc", "crun") if isinstance(runtimes.get(name), dict)), {}
        )
        entry: dict[str, Any] = {"runtime_type": _RUNC} | {
            name: value for name, value in base.items() if name not in {"options", "runtime_engine", "runtime_root"}
        }
        options = {**base.get("options", {}), "BinaryName": wrapper}
        if self._version == 1:
            options["Runtime"] = wrapper
        flat: dict[KeyPath, Any] = {(*at, name): value for name, value in entry.items()}
        return flat | {(*at, "options", name): value for name, value in options.items()}

    def _plan_edit(self, keys: dict[KeyPath, Any]) -> tuple[FileChange, ...]:
        """Into the last file that has the section, because that one replaces all others."""
        having = [file for file, document in self._documents if get(document, self._section) is not None]
        file = having[-1] if having else self._main
        content = file.content or b"version = %d\n" % self._version
        return list_changes(self._tree, [(file.path, set_keys(file.path, content, keys))])

    def _plan_drop_in(self, keys: dict[KeyPath, Any]) -> tuple[FileChange, ...]:
        path = self._find_drop_in()
        known = next((file.content for file in self._tree.files if file.path == path and file.content), None)
        content = known or HEADER + b"version = %d\n" % self._version
        contents = [(path, set_keys(path, content, keys))]
        if self._runtime.flavour is not RuntimeFlavour.K0S and not self._imports(path):
            contents.append((self._main.path, self._add_import(str(PurePosixPath(path).parent / "*.toml"))))
        return list_changes(self._tree, contents)

    def _find_drop_in(self) -> str:
        if self._runtime.flavour is RuntimeFlavour.K0S:
            return f"{_K0S_DROP_INS}/{OWN_NAME}.toml"
        return str(PurePosixPath(self._main.path).parent / "conf.d" / f"{OWN_NAME}.toml")

    def _imports(self, path: str) -> bool:
        directory = PurePosixPath(self._main.path).parent
        patterns = self._documents[0][1].get("imports", ())
        return any(fnmatchcase(path, str(directory / pattern)) for pattern in _only_texts(patterns))

    def _add_import(self, pattern: str) -> bytes:
        present = list(_only_texts(self._documents[0][1].get("imports", ())))
        content = self._main.content or b"version = %d\n" % self._version
        if present:
            return set_keys(self._main.path, content, {("imports",): [*present, pattern]})
        # A new line at the top: below the first table header it would belong to that table.
        line = f'imports = ["{pattern}"]\n'.encode()
        version_line = content.startswith(b"version")
        head, newline, rest = content.partition(b"\n") if version_line else (b"", b"", content)
        edited = head + newline + line + rest
        parse_toml(self._main.path, edited)
        return edited


def _only_texts(values: Any) -> Iterable[str]:
    return (value for value in values if isinstance(value, str)) if isinstance(values, list) else ()
