"""The contents of a plan to change a runtime's configuration, for any runtime."""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from nodeagent.model.nvidia import RUNTIME_CLASS
from nodeagent.model.runtime import ConfigFile, ConfigTree, FileChange
from nodeagent.model.values import Value

HEADER: Final = b"# Written by nodeagent; `nodeagent runtime unconfigure` takes it away.\n"
CLASS: Final = RUNTIME_CLASS


class Wanted(Value, frozen=True):
    """The wanted abilities of the runtime."""

    cdi: bool = True
    wrapper: str = ""
    """The program behind the runtime class `nvidia`; empty when the class is not wanted."""
    names: tuple[str, ...] | None = None
    """Other names of the program that the class must be; `None` where a class of any maker is left in peace."""
    default: bool = False
    """Whether the class is also for containers that ask for no runtime."""

    def lacks_class(self, program: str | None) -> bool:
        """Whether the class has to be written with `program` behind the present class; `None` stands for no class."""
        if not self.wrapper or program is None:
            return bool(self.wrapper)
        return self.names is not None and program not in (self.wrapper, *self.names)


class RuntimePlan(Value, frozen=True):
    """The changes for the wanted abilities; empty for a runtime with all of them."""

    cdi_enabled: bool
    """Whether the files as they are switch CDI on."""
    changes: tuple[FileChange, ...] = ()
    problem: str = ""
    """Why no change is possible, in one line with the remedy; empty when one is possible."""
    handlers: tuple[str, ...] = ()
    """The runtimes that must exist afterwards; a trial before writing is compared with them."""


def find_unread(tree: ConfigTree) -> str:
    """Why some files could not be read; empty when all could."""
    return next((problem for problem in (*tree.problems, *(file.problem for file in tree.files)) if problem), "")


def list_changes(tree: ConfigTree, contents: Iterable[tuple[str, bytes | None]]) -> tuple[FileChange, ...]:
    """The files with a new content, or with none any more."""
    before = {file.path: file.content for file in tree.files}
    return tuple(
        FileChange(path=path, before=before.get(path), after=content)
        for path, content in contents
        if before.get(path) != content
    )


def plan_move(tree: ConfigTree, former: str, own: str, *, is_read: bool = True) -> tuple[FileChange, ...]:
    """Give the agent's file of an earlier release the present name; a file unread by the runtime is only removed."""
    contents = {file.path: file.content for file in tree.files}
    ours = contents.get(former)
    if ours is None or not ours.startswith(HEADER):
        return ()
    moved = contents.get(own) or (ours if is_read else None)
    return list_changes(tree, [(own, moved), (former, None)])


def join_changes(earlier: Iterable[FileChange], later: Iterable[FileChange]) -> tuple[FileChange, ...]:
    """Both lists as one: a file written twice in a row leads back to the content before the first time."""
    joined = {change.path: change for change in earlier}
    for change in later:
        known = joined.get(change.path)
        if known is not None and known.after == change.before:
            joined[change.path] = replace(change, before=known.before)
        else:
            joined[change.path] = change
    return tuple(joined.values())


def apply_to_tree(tree: ConfigTree, changes: Iterable[FileChange]) -> ConfigTree:
    """The tree after the changes: changed files in place, new files last, as their names sort last."""
    after = {change.path: change.after for change in changes}
    known = {file.path for file in tree.files}
    main = tree.files[0].path
    files = [
        ConfigFile(path=file.path, content=after.get(file.path, file.content), problem=file.problem)
        for file in tree.files
        if file.path == main or after.get(file.path, b"") is not None
    ]
    files += [ConfigFile(path=path, content=content) for path, content in after.items() if path not in known]
    return ConfigTree(files=tuple(files), problems=tree.problems)
