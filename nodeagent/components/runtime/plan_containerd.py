"""The least change to containerd's configuration, for every version of it.

Owns the imports of each release: 2.0 and later merge a drop-in key by key, so a drop-in holds the agent's keys alone;
1.x replaces the whole section by the drop-in's, so there the file with the section is edited in place.
The version of a drop-in is the main file's version: a newer one silently wipes settings or stops the daemon.
The main file imports the agent's drop-in and nothing else: files of others in the directory stay unread.
"""

import re
from pathlib import PurePosixPath
from typing import Any, Final

from nodeagent.components.runtime.choose import ChosenRuntime
from nodeagent.components.runtime.containerd_config import (
    ContainerdConfig,
    arrange_imports,
    drop_dormant,
    highest_config_version,
)
from nodeagent.components.runtime.containerd_template import (
    GENERATING,
    IMPORTED,
    fill_template,
    find_go_template,
    find_gpu_lock,
)
from nodeagent.components.runtime.plan import (
    CLASS,
    HEADER,
    RuntimePlan,
    Wanted,
    apply_to_tree,
    join_changes,
    list_changes,
    plan_move,
)
from nodeagent.components.runtime.toml_edit import KeyPath, get, get_table, parse_toml, set_keys
from nodeagent.model.nvidia import RUNTIME_PROGRAM, VENDOR
from nodeagent.model.runtime import FORMER_NAME, OWN_NAME, ConfigTree, FileChange, RuntimeFlavour

_RUNC: Final = "runc"
_RUNC_SHIM: Final = "io.containerd.runc.v2"
_RUNC_SHIMS: Final = {"", _RUNC_SHIM, "io.containerd.runc.v1", "io.containerd.runtime.v1.linux"}
_FIRST_BESIDE: Final = {(1, 6): 36, (1, 7): 18}
"""The patch releases from which relative patterns are known to be looked for beside the file."""
_PATCH: Final = re.compile(r"\d+\.\d+\.(\d+)")
_K0S_DROP_INS: Final = "/etc/k0s/containerd.d"
_PATTERN_SUFFIX: Final = ".t*ml"
"""Fits the agent's drop-in alone. A starred name may be missing; a missing name without a star stops the daemon."""


def plan_containerd(runtime: ChosenRuntime, tree: ConfigTree, wanted: Wanted) -> RuntimePlan:
    """Plan the files to write.

    Raises:
        ConfigUnparsable: a file is no TOML.
        ConfigUneditable: a file cannot be extended.
    """
    if template := find_go_template(runtime):
        problem = (
            f"{template} is a template that {runtime.flavour} alone can read: leave `runtime.config_file` unset, so"
            " that what is made of it is read"
        )
        return RuntimePlan(cdi_enabled=runtime.release >= (2, 0), problem=problem)
    planner = _Planner(runtime, tree, wanted)
    enabled = planner.config.cdi_enabled
    if problem := planner.find_obstacle():
        return RuntimePlan(cdi_enabled=enabled, problem=problem)
    changes = planner.plan_move()
    moved = _Planner(runtime, arrange_imports(apply_to_tree(tree, changes)), wanted)
    if keys := moved.list_missing():
        changes = join_changes(changes, moved.plan_writes(keys))
    elif not changes:
        return RuntimePlan(cdi_enabled=enabled)
    after = _Planner(runtime, arrange_imports(apply_to_tree(tree, changes)), wanted)
    if after.list_missing():
        changes = join_changes(changes, after.plan_last_import())
        after = _Planner(runtime, arrange_imports(apply_to_tree(tree, changes)), wanted)
    if left := after.list_missing():
        names = ", ".join(".".join(key) for key in left)
        setter = after.config.find_setter(next(iter(left)))
        problem = f"another file sets {names} after ours: take it out of {setter}"
        return RuntimePlan(cdi_enabled=enabled, problem=problem)
    return RuntimePlan(cdi_enabled=enabled, changes=changes, handlers=tuple(after.config.runtimes))


def list_drop_ins(runtime: ChosenRuntime, name: str = OWN_NAME) -> tuple[str, ...]:
    """The possible places of the agent's own file; of several places, the first with an import counts."""
    if runtime.flavour is RuntimeFlavour.K0S:
        return (f"{_K0S_DROP_INS}/{name}.toml",)
    directories = IMPORTED if runtime.flavour in GENERATING else ("conf.d",)
    return tuple(
        str(PurePosixPath(runtime.config_file).parent / directory / f"{name}.toml") for directory in directories
    )


def list_other_places(runtime: ChosenRuntime) -> tuple[str, ...]:
    """Files in force without an import: the agent's of this and of earlier releases, and MicroK8s' lock."""
    lock = find_gpu_lock(runtime)
    return (*list_drop_ins(runtime, FORMER_NAME), *list_drop_ins(runtime), *([lock] if lock else ()))


def find_read_files(runtime: ChosenRuntime, tree: ConfigTree) -> ConfigTree:
    """The files read by the daemon, without the agent's own file where the import was removed.

    Raises:
        ConfigUnparsable: a file is no TOML.
    """
    # k0s reads its directory without being told.
    if runtime.flavour is RuntimeFlavour.K0S:
        return tree
    return drop_dormant(fill_template(runtime, tree), (*list_drop_ins(runtime, FORMER_NAME), *list_drop_ins(runtime)))


def _name_import(path: str) -> str:
    return str(PurePosixPath(path).with_suffix(_PATTERN_SUFFIX))


def _is_runc(entry: dict[str, Any]) -> bool:
    told = entry.get("runtime_type", _RUNC_SHIM)
    return isinstance(told, str) and told in _RUNC_SHIMS


class _Planner:
    """The missing keys of a configuration, and the obstacles."""

    def __init__(self, runtime: ChosenRuntime, tree: ConfigTree, wanted: Wanted) -> None:
        self._runtime, self._tree, self._wanted = runtime, tree, wanted
        self._release = runtime.release
        self.config = ContainerdConfig(self._release, find_read_files(runtime, tree))
        self._main = self.config.main
        self._texts = {file.path: file.content or b"" for file in tree.files}
        """As they lie there: a template is edited, not the configuration made of it."""
        places = list_drop_ins(runtime)
        self._drop_in = next((path for path in places if self.config.imports_file(path)), places[0])

    def find_obstacle(self) -> str:
        """Why a change is impossible or unwise; empty when there is no obstacle."""
        problems = [*self._tree.problems, *(file.problem for file in self._tree.files if file.problem)]
        if problems:
            return problems[0]
        if self._release == (0, 0):
            return f"the version of the containerd at {self._runtime.socket} is not known"
        if not self.config.is_readable:
            return (
                f"{self._main.path} has configuration version {self.config.version!r}, this containerd"
                f" ({self._runtime.version}) reads up to {highest_config_version(self._release)}: mend the file first"
            )
        if self.config.switched_off:
            return f"{self.config.switched_off}, then restart containerd"
        return self._find_refusal()

    def _find_refusal(self) -> str:
        """Why a sound configuration still cannot have the wanted settings."""
        if self._wanted.cdi and not self._runtime.knows_cdi:
            return "containerd 1.6 knows no CDI: upgrade it to 1.7 or later, or set `runtime.legacy_class: true`"
        if self._seeks_elsewhere and (found := self.config.find_relative_import()):
            return (
                f"{found}, which containerd {self._runtime.version} looks for in the directory that it was started"
                " in: write the whole path, then restart containerd"
            )
        missing = self.list_missing()
        mended = {(*self._runtimes, name, "runtime_type") for name in (_RUNC, self.config.default_runtime)}
        if self.config.lacks_default and not mended & missing.keys():
            return (
                f"the default runtime {self.config.default_runtime} is not among the runtimes of {self._main.path}"
                " and its imports, so that containerd will start without CRI: add it there, or correct"
                " `default_runtime_name`"
            )
        if missing and self._runtime.flavour in GENERATING and not self._is_drop_in_imported:
            return (
                f"{self._runtime.flavour} writes containerd's configuration itself at every start:"
                f" take the setting out of its template beside {self._main.path}; it adds the class"
                f" `{CLASS}` by itself, at its next start, once it finds a program called {RUNTIME_PROGRAM}:"
                f" the {VENDOR.name} container runtime,"
                " or the shim by `shim.nvidia_name_dir: /usr/local/nvidia/toolkit`"
            )
        if missing and self.config.ignored_tables:
            return f"containerd {self._runtime.version}: {self.config.ignored_tables}"
        return ""

    @property
    def _seeks_elsewhere(self) -> bool:
        """Whether the release looks for relative patterns elsewhere than beside their file."""
        patch = _PATCH.match(self._runtime.version)
        return int(patch[1] if patch else 0) < _FIRST_BESIDE.get(self._release, 0)

    def list_missing(self) -> dict[KeyPath, Any]:
        """The keys with missing or wrong values, with the wanted values."""
        keys: dict[KeyPath, Any] = {}
        if self._wanted.cdi and not self.config.cdi_enabled:
            keys[*self.config.section, "enable_cdi"] = True
        if self._wanted.wrapper and self._lacks_builtin:
            keys[*self._runtimes, _RUNC, "runtime_type"] = _RUNC_SHIM
        if self._wanted.lacks_class(self._find_program()):
            keys |= self._describe_class()
        if self._wanted.default and self.config.default_runtime != CLASS:
            keys[*self.config.section, "containerd", "default_runtime_name"] = CLASS
        return keys

    def _find_program(self) -> str | None:
        """The program of the class now; `None` without the class."""
        known = self.config.runtimes
        return str(get(known, (CLASS, "options", "BinaryName")) or "") if CLASS in known else None

    @property
    def _runtimes(self) -> KeyPath:
        return (*self.config.section, "containerd", "runtimes")

    @property
    def _lacks_builtin(self) -> bool:
        """Whether the agent's class alone takes, or would take, the place of 1.x's own table with `runc`."""
        if self.config.replaces_runtimes:
            ours_alone = not self.config.runtimes.keys() - {CLASS}
            return ours_alone and self.config.lacks_default and self.config.default_runtime == _RUNC
        return self._release < (2, 0)

    def _describe_class(self) -> dict[KeyPath, Any]:
        """The class as a copy of the runtime in use, with the same cgroup driver and annotations."""
        known = self.config.runtimes
        program = ("BinaryName", "Runtime") if self.config.version == 1 else ("BinaryName",)
        if CLASS in known and not self._writes_drop_in:
            # A class of another maker: only its program is changed.
            return {(*self._runtimes, CLASS, "options", name): self._wanted.wrapper for name in program}
        # A class of another maker is written whole, too, where it lies in another file, which may go one day.
        bases = (known.get(name) for name in (CLASS, self.config.default_runtime, _RUNC, "crun"))
        # A runtime that is no relative of runc, such as a virtual machine, has other options and runs no wrapper.
        base: dict[str, Any] = next((each for each in bases if isinstance(each, dict) and _is_runc(each)), {})
        entry: dict[str, Any] = {
            name: value for name, value in base.items() if name not in {"options", "runtime_engine", "runtime_root"}
        }
        options = {**get_table(base, ("options",)), **dict.fromkeys(program, self._wanted.wrapper)}
        at: KeyPath = (*self._runtimes, CLASS)
        flat: dict[KeyPath, Any] = {(*at, "runtime_type"): entry.pop("runtime_type", "") or _RUNC_SHIM}
        flat |= {(*at, name): value for name, value in entry.items()}
        return flat | {(*at, "options", name): value for name, value in options.items()}

    def plan_move(self) -> tuple[FileChange, ...]:
        """Give the agent's file of an earlier release the present name, also in the main file's imports."""
        former, own = str(PurePosixPath(self._drop_in).with_stem(FORMER_NAME)), self._drop_in
        is_read = any(file.path == former for file, _ in self.config.documents)
        changes = plan_move(self._tree, former, own, is_read=is_read)
        if not changes or not is_read or self._runtime.flavour is RuntimeFlavour.K0S:
            return changes
        content = self._read_main().replace(_name_import(former).encode(), _name_import(own).encode())
        return changes + list_changes(self._tree, [(self._main.path, content)])

    def plan_writes(self, keys: dict[KeyPath, Any]) -> tuple[FileChange, ...]:
        """The files to write for the keys to be in force."""
        return self._plan_drop_in(keys) if self._writes_drop_in else self._plan_edit(keys)

    def plan_last_import(self) -> tuple[FileChange, ...]:
        """The main file with the agent's drop-in imported last, where others have put imports behind it."""
        path = self._drop_in
        own, imports = _name_import(path), self.config.imports or []
        if own not in imports:
            return ()
        others = [each for each in imports if each != own]
        last = others if self.config.imports_file(path, others) else [*others, own]
        return list_changes(
            self._tree, [(self._main.path, set_keys(self._main.path, self._read_main(), {("imports",): last}))]
        )

    @property
    def _writes_drop_in(self) -> bool:
        """Whether the agent's keys go into a file of their own."""
        can = self._release >= (2, 0) and self.config.version != 1
        return can and self._runtime.flavour is not RuntimeFlavour.MICROK8S

    @property
    def _is_drop_in_imported(self) -> bool:
        """Whether the agent's keys can be put into a file of their own without a change to another."""
        return self._writes_drop_in and self.config.imports_file(self._drop_in)

    def _plan_edit(self, keys: dict[KeyPath, Any]) -> tuple[FileChange, ...]:
        """Write the keys into the last file with the section, the only section in force."""
        path = self.config.find_section_file()
        content = self._read_main() if path == self._main.path else self._read(path)
        return list_changes(self._tree, [(path, set_keys(path, content, keys))])

    def _plan_drop_in(self, keys: dict[KeyPath, Any]) -> tuple[FileChange, ...]:
        path = self._drop_in
        content = self._read(path) or HEADER + b"version = %d\n" % self.config.version
        contents = [(path, set_keys(path, content, keys))]
        if self._runtime.flavour is not RuntimeFlavour.K0S and not self.config.imports_file(path):
            contents.append((self._main.path, self._add_import(_name_import(path))))
        return list_changes(self._tree, contents)

    def _read_main(self) -> bytes:
        """The main file; an empty file is given a version, since without one the version would be 1."""
        content = self._texts[self._main.path]
        return content if self.config.documents[0][1] else b"version = %d\n" % self.config.version + content

    def _read(self, path: str) -> bytes:
        is_read = any(file.path == path for file, _ in self.config.documents)
        return self._texts[path] if is_read else b""

    def _add_import(self, pattern: str) -> bytes:
        content = self._read_main()
        if self.config.imports is not None:
            return set_keys(self._main.path, content, {("imports",): [*self.config.imports, pattern]})
        # A new line at the top: below the first table header it would belong to that table.
        line = f'imports = ["{pattern}"]\n'.encode()
        version_line = content.startswith(b"version")
        head, newline, rest = content.partition(b"\n") if version_line else (b"", b"", content)
        edited = head + newline + line + rest
        parse_toml(self._main.path, edited)
        return edited
