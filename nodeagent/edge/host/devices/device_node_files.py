"""Creates missing device nodes of the driver, and repairs wrong nodes and wrong links.

Owns mknod and the links under /dev/char. Refuses to remove files of other vendors, and to stop at the first failure: a
node that cannot be made is reported, and the other nodes are made all the same.
A node is put in place by rename, so that no process ever opens a half-made node.
"""

import os
import secrets
import stat
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from msgspec import structs

from nodeagent.core.log.audit import noting
from nodeagent.edge.host.devices.device_nodes import (
    CapabilityFile,
    DeviceNode,
    DriverNumbers,
    NodeChange,
    NodeStatus,
    NodeStep,
    diff_device_node,
    list_impossible_nodes,
    parse_mig_minors,
    plan_capability_path,
    plan_device_nodes,
    render_link_target,
)
from nodeagent.edge.host.devices.kernel_modules import parse_character_majors, parse_fields, parse_node_parameters
from nodeagent.edge.host.errors import DeviceNodeNotApplied
from nodeagent.edge.host.files.atomic_file import remove_leftovers
from nodeagent.edge.host.files.pseudo_file import list_names, read_attribute
from nodeagent.model.driver import NodeRepair

_DIRECTORY_MODE = 0o755


class DeviceNodeFiles:
    """The device nodes of one dev root."""

    def __init__(
        self,
        dev_root: Path,
        *,
        proc_root: Path = Path("/proc"),
        host_root: Path = Path("/"),
        imex_channels: tuple[int, ...] = (),
    ) -> None:
        self._dev_root, self._proc_root, self._host_root = dev_root, proc_root, host_root
        self._imex_channels = imex_channels

    def read_missing(self) -> tuple[str, ...]:
        """Paths of missing nodes that containers need."""
        numbers = read_driver_numbers(self._proc_root)
        nodes = plan_device_nodes(numbers)
        missing = tuple(f"/dev/{node.name}" for node in nodes if node.required and not self._is_there(node))
        return missing + list_impossible_nodes(numbers)

    def plan(self) -> tuple[NodeChange, ...]:
        """The changes that make every node and link right; none where the driver forbids changes."""
        numbers = structs.replace(read_driver_numbers(self._proc_root), imex_channels=self._imex_channels)
        if not numbers.parameters.modify:
            return ()
        changes: list[NodeChange] = []
        for node in plan_device_nodes(numbers):
            target = render_link_target(node, self._dev_root, self._host_root)
            changes += diff_device_node(node, self._read_status(node), target)
        return tuple(changes)

    def repair(self) -> NodeRepair:
        """Make every node and link right, as far as this process may."""
        done: list[str] = []
        failed: list[str] = []
        for change in self.plan():
            try:
                self._apply(change)
                done.append(f"{change.step} {self._describe(change)}")
            except DeviceNodeNotApplied as error:
                failed.append(str(error))
        return NodeRepair(done=tuple(done), failed=tuple(failed))

    def _is_there(self, node: DeviceNode) -> bool:
        found = self._read_status(node)
        return stat.S_ISCHR(found.mode) and (found.major, found.minor) == (node.major, node.minor)

    def _read_status(self, node: DeviceNode) -> NodeStatus:
        link = self._link_path(node)
        target = str(link.readlink()) if link.is_symlink() else None
        blocked = target is None and os.path.lexists(link)
        try:
            found = self._node_path(node).lstat()
        except OSError:
            return NodeStatus(link_target=target, link_blocked=blocked)
        return NodeStatus(
            exists=True,
            mode=found.st_mode,
            uid=found.st_uid,
            gid=found.st_gid,
            major=os.major(found.st_rdev),
            minor=os.minor(found.st_rdev),
            link_target=target,
            link_blocked=blocked,
        )

    def _apply(self, change: NodeChange) -> None:
        path = self._node_path(change.node)
        try:
            with noting("file", self._describe(change), change.step.value):
                self._carry_out(change, path)
        except OSError as error:
            raise DeviceNodeNotApplied(path, change.step, error) from error

    def _carry_out(self, change: NodeChange, path: Path) -> None:
        match change.step:
            case NodeStep.CREATE | NodeStep.REPLACE:
                _put_in_place(path, partial(_make_node, node=change.node))
            case NodeStep.SET_OWNERSHIP:
                _set_ownership(path, change.node)
            case NodeStep.LINK:
                target = render_link_target(change.node, self._dev_root, self._host_root)
                _put_in_place(self._link_path(change.node), lambda link: link.symlink_to(target))

    def _describe(self, change: NodeChange) -> str:
        name = f"/dev/{change.node.name}"
        return f"/dev/char/{change.node.link_name} to {name}" if change.step is NodeStep.LINK else name

    def _node_path(self, node: DeviceNode) -> Path:
        return self._dev_root / "dev" / node.name

    def _link_path(self, node: DeviceNode) -> Path:
        return self._host_root / "dev" / "char" / node.link_name


def read_driver_numbers(proc_root: Path = Path("/proc")) -> DriverNumbers:
    """Collect device numbers as far as the kernel reports them."""
    driver = proc_root / "driver" / "nvidia"
    return DriverNumbers(
        majors=parse_character_majors(read_attribute(proc_root / "devices")),
        gpu_minors=tuple(_read_gpu_minors(driver / "gpus")),
        capabilities=tuple(_read_capabilities(proc_root)),
        parameters=parse_node_parameters(read_attribute(driver / "params")),
    )


def _read_gpu_minors(gpus: Path) -> Iterable[int]:
    for address in list_names(gpus):
        minor = parse_fields(read_attribute(gpus / address / "information")).get("Device Minor")
        if minor is not None:
            yield minor


def _read_capabilities(proc_root: Path) -> Iterable[CapabilityFile]:
    capabilities = proc_root / "driver" / "nvidia" / "capabilities"
    minors = parse_mig_minors(read_attribute(proc_root / "driver" / "nvidia-caps" / "mig-minors"))
    for name, minor in minors.items():
        fields = parse_fields(read_attribute(capabilities / plan_capability_path(name)))
        # mig-minors lists every possible capability; the file exists for present capabilities.
        if "DeviceFileMode" in fields:
            yield CapabilityFile(
                minor=fields.get("DeviceFileMinor", minor),
                mode=fields["DeviceFileMode"],
                modify=fields.get("DeviceFileModify", 1) != 0,
            )


def _put_in_place(path: Path, make: Callable[[Path], None]) -> None:
    if not path.parent.is_dir():
        path.parent.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
    remove_leftovers(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        make(temporary)
        temporary.rename(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _make_node(path: Path, node: DeviceNode) -> None:
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(node.major, node.minor))
    _set_ownership(path, node)


def _set_ownership(path: Path, node: DeviceNode) -> None:
    os.chown(path, node.uid, node.gid)
    # After chown, which may clear bits; mknod's own mode is subject to the umask.
    path.chmod(node.mode)
