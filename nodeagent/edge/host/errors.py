"""Failures between the agent and its own host, one class for each situation that a caller handles differently.

HostError
├── FileUnreadable        a needed file cannot be read
├── FileTooLarge          a readable file is too large for the kind of file expected
├── FileNotWritten        new content did not become durable; says whether the old content is still in place
├── LibraryCacheInvalid   ld.so.cache is not of its format
├── StateLocked           another agent uses the state directory
├── KernelLogUnavailable  the kernel log cannot be read (any longer)
├── DeviceNodeNotApplied  a device node or its link could not be made right
├── ModulesNotLoaded      the host's modprobe did not load kernel modules
├── ModulesNotUnloaded    the host's modprobe did not unload kernel modules
├── DirectoryNotPrivate   a private directory is another user's, or open to another user
├── ProgramMissing        a program of ours for the host is not part of this installation
├── ProgramUnfit          a program of ours does not run on this host
├── ProgramNameTaken      a foreign program has the name that ours should have
├── VgpuFileInvalid       a limits or usage file is of another format, is damaged, or is for other devices
├── ShimTableUnfit        the runtime shim would refuse its new table
├── HostStuck             file work did not come back in time
└── ProcessNotEnded       a process above its limit could not be ended
"""

import errno
import os
from pathlib import Path

from nodeagent.model.errors import NodeagentError

_REMEDIES = {
    errno.ENOSPC: "free space on its file system",
    errno.EDQUOT: "raise the quota or free space on its file system",
    errno.EFBIG: "raise the file size limit of the process (LimitFSIZE=)",
    errno.EROFS: "remount its file system read-write",
    errno.EACCES: "run nodeagent as root or mend the permissions of the path",
    errno.EPERM: "run nodeagent as root, with the capability that the operation needs",
    errno.ENOENT: "create the directory",
    errno.ENOTDIR: "put a directory where the path expects one",
    errno.EISDIR: "remove the directory that is in place of the file",
    errno.ELOOP: "remove the symbolic link in the path",
    errno.EIO: "check the disk, `dmesg` has the details",
    errno.EMFILE: "raise the limit of open files (LimitNOFILE=)",
    errno.ENFILE: "raise the host's limit of open files (fs.file-max)",
    errno.ENAMETOOLONG: "choose a shorter path",
}


def describe_os_error(error: OSError) -> str:
    """The operating system's own words for an error, in lower case."""
    text = error.strerror or os.strerror(error.errno or 0)
    return text[:1].lower() + text[1:]


def suggest_remedy(error: OSError, path: Path | None = None) -> str:
    """A person's remedy for an error of the operating system, met at `path` or below it."""
    if error.errno == errno.ENOSPC and path is not None and _has_no_inode(path):
        return "its file system has no inode left (`df -i`): remove files from it"
    return _REMEDIES.get(error.errno or 0, "look up what the operating system reports and retry")


def _has_no_inode(path: Path) -> bool:
    """Whether the file system has too many files: the kernel has one word for inodes and for bytes."""
    try:
        # A new file may be missing, and another file in its place may be on another file system.
        system = os.statvfs(path.parent)
    except OSError:
        return False
    return system.f_files > 0 and system.f_favail == 0


class HostError(NodeagentError):
    """A failure of the agent's own host."""


class FileUnreadable(HostError):
    """A needed file cannot be read."""

    def __init__(self, path: Path, error: OSError) -> None:
        remedy = "check that the path is right" if error.errno == errno.ENOENT else suggest_remedy(error)
        super().__init__(f"cannot read {path}: {describe_os_error(error)}: {remedy}")
        self.path, self.errno = path, error.errno

    @property
    def is_absent(self) -> bool:
        """Whether the file is simply missing."""
        return self.errno in {errno.ENOENT, errno.ENOTDIR}


class FileTooLarge(HostError):
    """A file is larger than any honest file in its place."""

    def __init__(self, path: Path, limit_bytes: int) -> None:
        super().__init__(f"cannot read {path}: it is larger than {limit_bytes} bytes: move it aside")
        self.path, self.limit_bytes = path, limit_bytes


class FileNotWritten(HostError):
    """New content did not become durable."""

    def __init__(self, path: Path, step: str, error: OSError, *, replaced: bool) -> None:
        outcome = "the new content is in place but may not survive a power cut" if replaced else "the old file stays"
        super().__init__(
            f"cannot write {path}: {step}: {describe_os_error(error)} ({outcome}): {suggest_remedy(error, path)}"
        )
        self.path, self.step, self.errno, self.replaced = path, step, error.errno, replaced


class LibraryCacheInvalid(HostError):
    """The file in place of ld.so.cache is of another format, or is damaged."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"cannot read the cache of shared libraries: {reason}: run `ldconfig` in the driver root")
        self.reason = reason


class StateLocked(HostError):
    """Another agent holds the lock on the state directory."""

    def __init__(self, path: Path, holder_pid: int | None, holder_host: str = "") -> None:
        holder = f"process {holder_pid}" if holder_pid is not None else "another process"
        if holder_host:
            holder += f" of {holder_host}"
        super().__init__(f"cannot lock {path}: {holder} holds it: stop that nodeagent first")
        self.path, self.holder_pid, self.holder = path, holder_pid, holder


class KernelLogUnavailable(HostError):
    """The kernel log cannot be read."""

    def __init__(self, path: Path, error: OSError) -> None:
        remedy = (
            "give nodeagent CAP_SYSLOG"
            if error.errno in {errno.EPERM, errno.EACCES}
            else "mount the host's /dev/kmsg into the container"
        )
        super().__init__(f"cannot read the kernel log {path}: {describe_os_error(error)}: {remedy}")
        self.path, self.errno = path, error.errno


class DirectoryNotPrivate(HostError):
    """A directory that must be private is another user's, or writable for others."""

    def __init__(self, path: Path, problem: str, remedy: str = "") -> None:
        remedy = remedy or "look at what is in it, then have its owner or root remove it"
        super().__init__(
            f"{path} cannot be trusted: {problem}; {remedy}, or set TMPDIR (and no XDG_RUNTIME_DIR) to a directory "
            "that only you may write"
        )
        self.path, self.problem = path, problem


class DeviceNodeNotApplied(HostError):
    """A device node or its link under /dev/char could not be made right."""

    def __init__(self, path: Path, step: str, error: OSError) -> None:
        super().__init__(f"cannot {step} {path}: {describe_os_error(error)}: {suggest_remedy(error)}")
        self.path, self.step, self.errno = path, step, error.errno


class ModulesNotLoaded(HostError):
    """The host's modprobe did not load kernel modules; the message is modprobe's own, or why it was not run."""


class ModulesNotUnloaded(HostError):
    """The host's modprobe did not unload kernel modules; the message is modprobe's own, or why it was not run."""


class ProgramMissing(HostError):
    """A program of ours was not built with this installation."""

    def __init__(self, path: Path, what: str, without: str) -> None:
        super().__init__(
            f"cannot install {what}: {path} is missing: in a checkout `make native` builds it; without it {without}"
        )
        self.path = path


class ProgramUnfit(HostError):
    """A program does not run where the container runtime would start it, or cannot be shown to run there."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path} cannot be shown to run on the host: {reason}")
        self.path = path


class ProgramNameTaken(HostError):
    """A foreign program has the name that a program of ours should have."""

    def __init__(self, path: Path, target: Path, key: str) -> None:
        super().__init__(
            f"cannot make {path} a link to {target}: another program is there: remove the package that it is from,"
            f" or leave `{key}` empty"
        )
        self.path = path


class OwnCommandUnknown(HostError):
    """The agent was not started by its command, so that no link can lead to the command."""

    def __init__(self, name: str, started: Path) -> None:
        super().__init__(
            f"no link {name} is made, because the agent was started as {started}: start it by its command `nodeagent`,"
            " or leave `cdi.nvidia_name_dir` empty"
        )


class VgpuFileInvalid(HostError):
    """A limits or usage file of a container is of another format, is damaged, or is for other devices."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot use {path}: {reason}: end the container, so that its files are made anew")
        self.path, self.reason = path, reason


class HostStuck(HostError):
    """File work did not come back in time: the file system under the path hangs."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"no answer about {path}: {reason}: check the file system it is on")
        self.path, self.reason = path, reason


class ProcessNotEnded(HostError):
    """A process with more than its fraction could not be ended."""

    def __init__(self, pid: int, error: OSError) -> None:
        super().__init__(
            f"process {pid} cannot be ended: {error.strerror or error}: the agent needs the host's PID namespace and"
            " the right to end processes of others (CAP_KILL)"
        )
        self.pid = pid


class ShimTableUnfit(HostError):
    """The runtime shim would refuse its new table."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the table of the runtime shim cannot be written: {reason}; the one in place stays")
        self.reason = reason
