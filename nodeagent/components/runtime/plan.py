"""What a plan to change a runtime's configuration says, whatever the runtime."""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from nodeagent.model.runtime import ConfigFile, ConfigTree, FileChange
from nodeagent.model.values import Value

HEADER: Final = b"# Written by nodeagent; `nodeagent runtime unconfigure` takes it away.\n"
CLASS: Final = "nvidia"


class Wanted(Value, frozen=True):
    """What the runtime should be able to do."""

    cdi: bool = True
    wrapper: str = ""
    """The program behind the runtime class `nvidia`; empty when the class is not wanted."""
    names: tuple[str, ...] | None = None
    """Where the class must be this program, its other names; `None` where whoever made the class is left in peace."""
    default: bool = False
    """Whether containers that ask for no runtime get this one."""

    def lacks_class(self, program: str | None) -> bool:
        """Whether something has to be written, when this program is behind the class now; `None` when there is none."""
        if not self.wrapper or program is None:
            return bool(self.wrapper)
        return self.names is not None and program not in (self.wrapper, *self.names)


class RuntimePlan(Value, frozen=True):
    """What has to be written so that it can; nothing when it can already."""

    cdi_enabled: bool
    """Whether the files as they are switch CDI on."""
    changes: tuple[FileChange, ...] = ()
    problem: str = ""
    """Why it cannot be done, in one line with the remedy; empty when it can."""
    handlers: tuple[str, ...] = ()
    """The runtimes that it will then have at least; what is tried out before writing is held against them."""


def find_unread(tree: ConfigTree) -> str:
    """Why not all of the files could be read; empty when they could."""
    return next((problem for problem in (*tree.problems, *(file.problem for file in tree.files)) if problem), "")


def list_changes(tree: ConfigTree, contents: Iterable[tuple[str, bytes | None]]) -> tuple[FileChange, ...]:
    """The files whose content is to be another, or that are to go."""
    before = {file.path: file.content for file in tree.files}
    return tuple(
        FileChange(path=path, before=before.get(path), after=content)
        for path, content in contents
        if before.get(path) != content
    )


def plan_move(tree: ConfigTree, former: str, own: str, *, is_read: bool = True) -> tuple[FileChange, ...]:
    """Give our file of an earlier release its name of today; one that nothing reads any more only goes."""
    contents = {file.path: file.content for file in tree.files}
    ours = contents.get(former)
    if ours is None or not ours.startswith(HEADER):
        return ()
    moved = contents.get(own) or (ours if is_read else None)
    return list_changes(tree, [(own, moved), (former, None)])


def join_changes(earlier: Iterable[FileChange], later: Iterable[FileChange]) -> tuple[FileChange, ...]:
    """Both as one: what was written twice in a row leads back to what was there before the first time."""
    joined = {change.path: change for change in earlier}
    for change in later:
        known = joined.get(change.path)
        if known is not None and known.after == change.before:
            joined[change.path] = replace(change, before=known.before)
        else:
            joined[change.path] = change
    return tuple(joined.values())


def apply_to_tree(tree: ConfigTree, changes: Iterable[FileChange]) -> ConfigTree:
    """The tree as it will be: changed files in their place, new ones last, as their names sort last."""
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
