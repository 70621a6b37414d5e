"""A containerd configuration as each release reads it: the tables in force, and the resulting runtimes.

Owns the observations of the real daemons. 1.x takes a plugin's section whole from the last file with the section, and a
file with runtimes names all of them. 2.0 to 2.2 migrate no CRI tables of version 1, and none where files of two
versions meet; from 2.3 on each file is migrated by itself. 2.x merges key by key and always has `runc`; 2.4 has no
switch for CDI any more.
"""

from collections.abc import Collection, Sequence
from os.path import normpath
from pathlib import PurePosixPath
from typing import Any, Final

from nodeagent.components.runtime.toml_edit import KeyPath, get, get_table, merge, parse_toml
from nodeagent.model.runtime import ConfigTree

_PLUGINS: Final = {1: "cri", 2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
_CRI: Final = (*_PLUGINS.values(), "io.containerd.cri.v1.images")
_NEWEST_SECTION: Final = 3
_DEFAULT: Final = "runc"


def highest_config_version(release: tuple[int, int]) -> int:
    """The newest configuration version of a release of containerd."""
    if release < (2, 0):
        return 2
    return 3 if release < (2, 3) else 4


class ContainerdConfig:
    """The configuration files as read by one release."""

    def __init__(self, release: tuple[int, int], tree: ConfigTree) -> None:
        self._release = release
        self.documents = [(file, parse_toml(file.path, file.content)) for file in tree.files]
        self.main, main = self.documents[0]
        # An empty file has no version; any other file without a version has version 1.
        self.version: Any = main.get("version", 1 if main else min(highest_config_version(release), _NEWEST_SECTION))
        self.section: KeyPath = self._find_section()
        self._merged = self._merge()

    @property
    def is_readable(self) -> bool:
        """Whether the release reads files of this version at all."""
        whole = isinstance(self.version, int) and not isinstance(self.version, bool)
        return whole and 1 <= self.version <= highest_config_version(self._release)

    @property
    def ignored_tables(self) -> str:
        """Why CRI tables of the files do not count, with the remedy; empty when all count."""
        if self._release >= (2, 3):
            return ""
        if self.version == 1 and self._release >= (2, 0):
            told = "has configuration version 1" if "version" in self.documents[0][1] else "gives no version"
            return (
                f"{self.main.path} {told}, and this release ignores the CRI tables of such a file: turn it"
                " into the newest version with `containerd config migrate`, check it, restart containerd"
            )
        harmless = {self.version, 0, 1 if self._release >= (2, 0) else 0}
        for file, document in self.documents[1:]:
            version = document.get("version", self.version)
            if version not in harmless:
                return (
                    f"{file.path} has configuration version {version!r} and {self.main.path} {self.version}, and this"
                    " release then ignores the CRI tables of one of them: give both the same version"
                )
        return ""

    @property
    def switched_off(self) -> str:
        """The plugin by whose name CRI is switched off, and the file; empty when CRI is on."""
        for file, document in self.documents:
            names = document.get("disabled_plugins")
            for name in names if isinstance(names, list) else ():
                if name in _CRI:
                    return f"{file.path} switches CRI off: take {name!r} out of `disabled_plugins`"
        return ""

    @property
    def cdi_enabled(self) -> bool:
        """Whether CDI is on, by the files and by the release's default."""
        if self._release < (1, 7):
            return False
        told = get(self._merged, (*self.section, "enable_cdi"))
        has_switch = isinstance(told, bool) and self._release < (2, 4)
        return told if has_switch else self._release >= (2, 0)

    @property
    def runtimes(self) -> dict[str, Any]:
        """The daemon's future runtimes, with their tables in the files."""
        named = get_table(self._merged, (*self.section, "containerd", "runtimes"))
        return named if self.replaces_runtimes else {_DEFAULT: {}} | named

    @property
    def replaces_runtimes(self) -> bool:
        """Whether the files' table of runtimes takes the place of the built-in table, as in 1.x."""
        told = get(self._merged, (*self.section, "containerd", "runtimes"))
        return self._release < (2, 0) and isinstance(told, dict)

    @property
    def default_runtime(self) -> str:
        """The runtime of a container without a runtime class."""
        told = get(self._merged, (*self.section, "containerd", "default_runtime_name"))
        return told if isinstance(told, str) and told else _DEFAULT

    @property
    def lacks_default(self) -> bool:
        """Whether the default runtime is no runtime, and CRI therefore does not start."""
        # Version 1 could describe the default runtime in a table of its own.
        described = get(self._merged, (*self.section, "containerd", "default_runtime")) is not None
        return self.default_runtime not in self.runtimes and not described

    @property
    def imports(self) -> list[str] | None:
        """The imports of the main file; `None` without an `imports` key."""
        return _list_imports(self.documents[0][1])

    def imports_file(self, path: str, patterns: Sequence[str] | None = None) -> bool:
        """Whether the main file would import a file of the given name, by `patterns` or else by the main file's own."""
        directory = PurePosixPath(self.main.path).parent
        told = self.imports if patterns is None else patterns
        return any(PurePosixPath(path).match(normpath(directory / pattern)) for pattern in told or ())

    def find_relative_import(self) -> str:
        """A relative pattern matching one of the files; empty when there is no such pattern."""
        paths = [PurePosixPath(file.path) for file, _ in self.documents]
        for file, document in self.documents:
            for pattern in _list_imports(document) or ():
                absolute = normpath(PurePosixPath(file.path).parent / pattern)
                if "*" in pattern and not pattern.startswith("/") and any(path.match(absolute) for path in paths):
                    return f"{file.path} imports {pattern!r}"
        return ""

    def find_setter(self, key: KeyPath) -> str:
        """The last file with a value for the key."""
        return next((file.path for file, document in reversed(self.documents) if get(document, key) is not None), "it")

    def find_section_file(self) -> str:
        """The last file with the CRI section, in 1.x the only section in force; else the main file."""
        having = [file.path for file, document in self.documents if get(document, self.section) is not None]
        return having[-1] if having else self.main.path

    def _find_section(self) -> KeyPath:
        version = self.version if self.is_readable else _NEWEST_SECTION
        if (2, 0) <= self._release < (2, 3) and version == 1:
            version = _NEWEST_SECTION
        return ("plugins", _PLUGINS[min(version, _NEWEST_SECTION)])

    def _merge(self) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for _, document in self.documents:
            if self._release < (2, 0):
                plugins = get_table(merged, ("plugins",)) | get_table(document, ("plugins",))
                merged = merge(merged, document) | ({"plugins": plugins} if plugins else {})
            else:
                merged = merge(merged, self._migrate(document) if self._release >= (2, 3) else document)
        return merged

    def _migrate(self, document: dict[str, Any]) -> dict[str, Any]:
        """The CRI tables of a file under the main file's name, for a file of any version."""
        own = document.get("version", 1)
        tables: dict[str, Any] = {}
        for version, plugin in _PLUGINS.items():
            if not isinstance(own, int) or version >= min(own, _NEWEST_SECTION):
                tables = merge(tables, get_table(document, ("plugins", plugin)))
        others = {name: table for name, table in get_table(document, ("plugins",)).items() if name not in _CRI}
        return document | {"plugins": others | ({self.section[1]: tables} if tables else {})}


def arrange_imports(tree: ConfigTree) -> ConfigTree:
    """The files in containerd's order of reading, where some are new or import others than before.

    Files that no import reaches stay last.

    Raises:
        ConfigUnparsable: a file is no TOML.
    """
    known = {file.path: file for file in tree.files}
    ordered = [tree.files[0].path]
    for path in ordered:
        for pattern in _list_imports(parse_toml(path, known[path].content)) or ():
            absolute = normpath(PurePosixPath(path).parent / pattern)
            found = sorted(each for each in known if PurePosixPath(each).match(absolute))
            ordered += [each for each in found if each not in ordered]
    ordered += [path for path in known if path not in ordered]
    return ConfigTree(files=tuple(known[path] for path in ordered), problems=tree.problems)


def drop_dormant(tree: ConfigTree, paths: Collection[str]) -> ConfigTree:
    """The files without the members of `paths` imported by no other file: the daemon does not read them.

    Raises:
        ConfigUnparsable: a possible importer is no TOML.
    """
    patterns = [
        normpath(PurePosixPath(file.path).parent / pattern)
        for file in tree.files
        if file.path not in paths
        for pattern in _list_imports(parse_toml(file.path, file.content)) or ()
    ]
    dormant = {path for path in paths if not any(PurePosixPath(path).match(pattern) for pattern in patterns)}
    kept = tuple(file for file in tree.files if file.path not in dormant)
    return ConfigTree(files=kept, problems=tree.problems)


def _list_imports(document: dict[str, Any]) -> list[str] | None:
    told = document.get("imports")
    return [value for value in told if isinstance(value, str)] if isinstance(told, list) else None
