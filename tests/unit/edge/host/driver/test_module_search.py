"""The search for the kernel module, on a host made of files and on the lines of real kernel logs.

Where the words are from: `kernel/module/signing.c` (with the module's name in some releases), `kernel/module/main.c`
and `security/lockdown/lockdown.c` of Linux; `nv.c` and `nv-pci.c` of NVIDIA's kernel modules; users' logs of both.
"""

import os
from pathlib import Path

import pytest

from nodeagent.edge.host.driver.module_search import find_refusal, read_module_search
from nodeagent.edge.host.driver.roots import DriverRoots
from nodeagent.model.driver import ModuleRefusal, ModuleSearch, RefusalKind
from tests.unit.edge.host.machine.test_kmsg import LogPipe
from tests.unit.edge.host.tree import HostTree

KERNEL = "6.8.0-50-generic"
OTHER = "6.8.0-45-generic"
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
MISMATCH = "nvidia: version magic '6.8.0-45-generic SMP preempt' should be '6.8.0-50-generic SMP preempt'"
LOADED = "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build"


def search(host: HostTree, *, driver: str = "", log: Path | None = None) -> ModuleSearch:
    roots = DriverRoots(host=host.root, driver=host.root / driver, dev=host.root)
    return read_module_search(roots, proc_root=host.proc, sys_root=host.sys, kernel_log=log)


@pytest.fixture
def booted(host: HostTree) -> HostTree:
    """A host whose kernel has a table of modules, none of them NVIDIA's, and headers."""
    host.write("proc/sys/kernel/osrelease", f"{KERNEL}\n")
    host.link("lib", "usr/lib")
    host.write(f"usr/lib/modules/{KERNEL}/modules.dep", "kernel/drivers/video/fbdev/nvidia/nvidiafb.ko.zst: a\n")
    host.link(f"usr/lib/modules/{KERNEL}/build", f"/usr/src/linux-headers-{KERNEL}")
    host.write(f"usr/src/linux-headers-{KERNEL}/Makefile")
    return host


def test_a_host_without_a_driver_has_nothing_to_say(booted: HostTree) -> None:
    """Modules of similar names, and packages beside the driver, are none of the driver."""
    booted.write(
        f"lib/modules/{OTHER}/modules.dep", "updates/dkms/nvidia-uvm.ko: x\nkernel/nvidia-wmi-ec-backlight.ko:\n"
    )
    booted.write("var/lib/dkms/nvidia-fs/2.20/source/dkms.conf")
    booted.write("var/lib/dkms/zfs/2.2/source/dkms.conf")
    found = search(booted)
    assert found == ModuleSearch(kernel=KERNEL, table_time=found.table_time)


@pytest.mark.parametrize(
    "file",
    [
        "updates/dkms/nvidia.ko",
        "updates/dkms/nvidia.ko.zst",
        "extra/nvidia.ko.xz",
        "updates/dkms/nvidia-current.ko.xz",
        "updates/dkms/nvidia-current-open.ko.xz",
        "updates/dkms/nvidia-tesla-535.ko",
        "kernel/nvidia-580-open/nvidia.ko",
    ],
)
def test_the_module_is_found_by_the_names_of_distributions(booted: HostTree, file: str) -> None:
    """The parts of the driver beside it are of no interest."""
    parts = "updates/dkms/nvidia-current-open-uvm.ko.xz:\nupdates/dkms/nvidia-current-drm.ko: x\n"
    booted.write(f"lib/modules/{KERNEL}/modules.dep", f"{parts}{file}: kernel/drivers/acpi/video.ko.zst\n")
    booted.write(f"lib/modules/{OTHER}/modules.dep", f"{file}:\n")
    found = search(booted)
    assert (found.file, found.other_kernels) == (file, (OTHER,))
    assert found.table_time == (booted.root / f"lib/modules/{KERNEL}/modules.dep").stat().st_mtime_ns


def test_parts_of_the_driver_alone_are_no_driver(booted: HostTree) -> None:
    booted.write(f"lib/modules/{KERNEL}/modules.dep", "updates/dkms/nvidia-current-open-uvm.ko.xz: x\n")
    assert search(booted).file == ""


def test_a_build_that_waits_for_headers_is_seen(booted: HostTree) -> None:
    """The link to the headers stays when their package goes; links of kernels in the tree of DKMS are no versions."""
    booted.write("var/lib/dkms/nvidia/580.65.06/source/dkms.conf")
    booted.link(f"var/lib/dkms/nvidia/kernel-{OTHER}-x86_64", f"580.65.06/{OTHER}/x86_64")
    assert (search(booted).dkms, search(booted).headers) == (("nvidia/580.65.06",), True)
    (booted.root / f"usr/src/linux-headers-{KERNEL}/Makefile").unlink()
    (booted.root / f"usr/src/linux-headers-{KERNEL}").rmdir()
    assert not search(booted).headers


def test_headers_are_looked_for_on_the_host_and_not_beside_the_agent(booted: HostTree, tmp_path: Path) -> None:
    """An absolute link of the host is the host's, wherever the agent sees its root."""
    (tmp_path / "elsewhere").mkdir()
    booted.link(f"lib/modules/{KERNEL}/build", str(tmp_path / "elsewhere"))
    assert not search(booted).headers


@pytest.mark.parametrize(
    ("content", "state"), [(b"\6\0\0\0\1", True), (b"\6\0\0\0\0", False), (b"", None), (b"\6\0\0\0", None)]
)
def test_secure_boot_is_the_last_byte_of_its_variable(host: HostTree, content: bytes, state: bool | None) -> None:
    if content:
        host.write(SECURE_BOOT, content)
    assert search(host).secure_boot is state


def test_hidden_modules_are_unknown_and_not_missing(booted: HostTree) -> None:
    """A strict unit shows an empty directory in their place: then DKMS without headers says nothing."""
    booted.write("var/lib/dkms/nvidia/580.65.06/source/dkms.conf")
    booted.write("proc/sys/kernel/osrelease", "9.9.9-hidden\n")
    assert search(booted) == ModuleSearch()
    booted.write("proc/sys/kernel/osrelease", "")
    assert search(booted) == ModuleSearch()


def test_a_table_that_is_not_made_yet_has_no_module(booted: HostTree) -> None:
    (booted.root / f"usr/lib/modules/{KERNEL}/modules.dep").unlink()
    assert search(booted) == ModuleSearch(kernel=KERNEL)


def test_files_of_the_host_say_nothing_of_a_driver_container(booted: HostTree) -> None:
    """The container has modules of its own."""
    booted.write(f"lib/modules/{OTHER}/modules.dep", "updates/dkms/nvidia.ko:\n")
    assert search(booted, driver="run/nvidia/driver") == ModuleSearch()


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("Loading of module with unavailable key is rejected", RefusalKind.SIGNATURE),
        ("Loading of unsigned module is rejected", RefusalKind.SIGNATURE),
        ("Loading of module with unsupported crypto is rejected", RefusalKind.SIGNATURE),
        ("nvidia: loading of module with unavailable key is rejected", RefusalKind.SIGNATURE),
        ("zfs: loading of module with unavailable key is rejected", None),
        ("Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7", RefusalKind.SIGNATURE),
        ("Lockdown: systemd-logind: hibernation is restricted; see man kernel_lockdown.7", None),
        (MISMATCH, RefusalKind.OTHER_KERNEL),
        ("nvidia: disagrees about version of symbol module_layout", RefusalKind.OTHER_KERNEL),
        ("nvidia: Unknown symbol drm_gem_object_free (err -2)", RefusalKind.OTHER_KERNEL),
        ("zfs: disagrees about version of symbol module_layout", None),
        ("nvidia: module license 'NVIDIA' taints kernel.", None),
        ("NVRM: The NVIDIA probe routine was not called for 1 device(s).", RefusalKind.CLAIMED),
        (
            "NVRM: The GPU\nNVRM: installed in this system requires use of the NVIDIA open kernel modules.",
            RefusalKind.OPEN_NEEDED,
        ),
        ("NVRM: installed in this system is not supported by open", RefusalKind.OPEN_UNFIT),
        ("NVRM: installed in this system is not supported by the", RefusalKind.UNKNOWN_GPU),
        ("NVRM: installed in this system is not supported by the 304.131", RefusalKind.UNKNOWN_GPU),
        ("NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:", RefusalKind.NO_ADDRESSES),
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", None),
    ],
)
def test_lines_of_the_kernel_are_read(line: str, kind: RefusalKind | None) -> None:
    """The line is kept as it is, on one line."""
    found = find_refusal(["usb 4-1: new device", line, "EXT4-fs (sda1): mounted"])
    assert found == (None if kind is None else ModuleRefusal(kind=kind, line=line.replace("\n", " ")))


def test_the_last_refusal_counts_and_none_from_before_the_last_load() -> None:
    """What kept the module out before it came in is history; what it says of GPUs afterwards is not."""
    gpu = "NVRM: installed in this system requires use of the NVIDIA open kernel modules."
    unsigned = "Loading of unsigned module is rejected"
    assert find_refusal([unsigned, MISMATCH]) == ModuleRefusal(kind=RefusalKind.OTHER_KERNEL, line=MISMATCH)
    assert find_refusal([unsigned, LOADED]) is None
    assert find_refusal([unsigned, LOADED, gpu]) == ModuleRefusal(kind=RefusalKind.OPEN_NEEDED, line=gpu)
    assert find_refusal([]) is None


def test_the_kernel_log_is_read_to_its_end(host: HostTree) -> None:
    """Records of the kernel alone: user space could say anything."""
    pipe = LogPipe()
    try:
        pipe.say(1, "usb 4-1: new device")
        pipe.say(2, MISMATCH)
        pipe.say(3, "Loading of unsigned module is rejected", priority=14)
        assert search(host, log=pipe.path).refusal == ModuleRefusal(kind=RefusalKind.OTHER_KERNEL, line=MISMATCH)
    finally:
        os.close(pipe.reader)
        os.close(pipe.writer)


def test_a_log_that_cannot_be_read_leaves_the_files(booted: HostTree) -> None:
    booted.write(f"lib/modules/{KERNEL}/modules.dep", "updates/dkms/nvidia.ko:\n")
    found = search(booted, log=booted.root / "none")
    assert (found.file, found.refusal) == ("updates/dkms/nvidia.ko", None)


def test_a_flood_of_records_does_not_hold_the_reader(host: HostTree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that grows as fast as it is read is read no further than its ring is long."""
    monkeypatch.setattr("nodeagent.edge.host.driver.module_search._BATCHES", 2)
    monkeypatch.setattr("nodeagent.edge.host.machine.kmsg._BUDGET", 2)
    pipe = LogPipe()
    try:
        for number in range(5):
            pipe.say(number, f"line {number}" if number < 4 else MISMATCH)
        assert search(host, log=pipe.path).refusal is None
    finally:
        os.close(pipe.reader)
        os.close(pipe.writer)
