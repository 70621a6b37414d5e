"""The lines of the NVIDIA driver in the kernel log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.edge.host.machine.kernel_log_lines import (
    DriverLine,
    InitFailureLine,
    KernelRecord,
    LostGpuLine,
    SxidLine,
    XidLine,
    parse_driver_line,
    parse_record,
)
from nodeagent.model.ids import PciAddress

GPU = PciAddress("0000:1b:00.0")
SWITCH = PciAddress("0000:c1:00.0")
LOST_AT_PROBE = (
    "NVRM: The NVIDIA GPU 0000:1b:00.0\nNVRM: (PCI ID: 10de:2330) installed in this system has\n"
    "NVRM: fallen off the bus and is not responding to commands."
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "NVRM: Xid (PCI:0000:1b:00): 13, pid=4242, name=python3, Graphics SM Warp Exception",
            XidLine(address=GPU, xid=13, message="Graphics SM Warp Exception"),
        ),
        (
            "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.",
            XidLine(address=GPU, xid=79, message="GPU has fallen off the bus."),
        ),
        ("NVRM: Xid (PCI:0000:1b:00): 43", XidLine(address=GPU, xid=43)),
        ("NVRM: Xid (0000:1b:00): 31, x", XidLine(address=GPU, xid=31, message="x")),
        ("NVRM: Xid (PCI:00000000:1B:00): 31, x", XidLine(address=GPU, xid=31, message="x")),
        (
            "NVRM: Xid (PCI:0000:1b:00 GPU-I:07): 31, pid=1, name=a b, MMU Fault",
            XidLine(address=GPU, xid=31, message="MMU Fault", gpu_instance_id=7),
        ),
        (
            "NVRM: Xid (PCI:0000:1b:00 GPU-I:07 GPU-CI:00 NEW:1): 31, MMU Fault",
            XidLine(address=GPU, xid=31, message="MMU Fault", gpu_instance_id=7, compute_instance_id=0),
        ),
        (
            "NVRM: Xid (PCI:0000:1b:00): 119, pid='<unknown>', name=<unknown>, Timeout after 6s",
            XidLine(address=GPU, xid=119, message="Timeout after 6s"),
        ),
        (
            "NVRM: Xid (PCI:0000:1b:00): 94, pid=7, name=x, Contained: SM (0x1). RST: No, D-RST: No",
            XidLine(address=GPU, xid=94, message="Contained: SM (0x1). RST: No, D-RST: No"),
        ),
        (
            "NVRM: Xid (PCI:0000:1b:00): 13, pid=7, name=(odd): 79, real text",
            XidLine(address=GPU, xid=13, message="real text"),
        ),
        ("NVRM: Xid (PCI:0000:1b:00): many, x", XidLine(address=GPU, xid=None, message="x")),
        ("NVRM: Xid (PCI:0000:1b:00): 123456, x", XidLine(address=GPU, xid=None, message="x")),
        ("NVRM: Xid (): 48, x", XidLine(address=None, xid=48, message="x")),
        ("NVRM: Xid (somewhere): 48, x", XidLine(address=None, xid=48, message="x")),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 27 LTSSM Fault Up",
            SxidLine(
                address=SWITCH, switch=3, sxid=20034, fatal=True, link=27, message="Fatal, Link 27 LTSSM Fault Up"
            ),
        ),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 11012, Non-fatal, Link 46 egress (First)",
            SxidLine(
                address=SWITCH,
                switch=0,
                sxid=11012,
                fatal=False,
                link=46,
                message="Non-fatal, Link 46 egress (First)",
            ),
        ),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 11012, Severity 0 Engine instance 46",
            SxidLine(address=SWITCH, switch=0, sxid=11012, message="Severity 0 Engine instance 46"),
        ),
        ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 10003", SxidLine(address=SWITCH, switch=0, sxid=10003)),
        ("nvidia-nvswitch0: SXid (nowhere): 10003", None),
        ("NVRM: GPU at PCI:0000:1b:00: GPU-5a3b0c1d-0000-1111-2222-333344445555", None),
        (
            "NVRM: GPU 0000:1b:00.0: GPU has fallen off the bus.",
            LostGpuLine(address=GPU, message="GPU has fallen off the bus."),
        ),
        (
            "NVRM: GPU 0000:1b:00.0: RmInitAdapter failed! (0x24:0x65:1456)",
            InitFailureLine(address=GPU, message="RmInitAdapter failed! (0x24:0x65:1456)"),
        ),
        (
            LOST_AT_PROBE,
            LostGpuLine(address=GPU, message=LOST_AT_PROBE.removeprefix("NVRM: ")),
        ),
        (
            "NVRM: fallen off the bus and is not responding to commands.",
            LostGpuLine(address=None, message="fallen off the bus and is not responding to commands."),
        ),
        ("NVRM: API mismatch: the client has the version 580.65.06", None),
        ("NVRM: The NVIDIA GPU 0000:1b:00.0 (PCI ID: 10de:2330)", None),
        ("NVRM: loading NVIDIA UNIX x86_64 Kernel Module", None),
        ("usb 1-1: NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.", None),
        ("", None),
    ],
)
def test_driver_line_is_understood(text: str, expected: DriverLine | None) -> None:
    """Each known form gives its record; MIG attributions and unknown words are kept, foreign lines are not ours."""
    assert parse_driver_line(text) == expected


@pytest.mark.long
@given(st.text(max_size=200))
def test_any_text_is_a_line_or_none(text: str) -> None:
    for head in ("", "NVRM: Xid (PCI:0000:1b:00", "NVRM: Xid (", "nvidia-nvswitch0: SXid (", "NVRM: GPU "):
        parse_driver_line(head + text)


@given(
    process=st.text(st.characters(codec="ascii", exclude_characters=",\n"), max_size=15),
    message=st.text(st.characters(codec="ascii"), max_size=40),
)
def test_process_name_never_hides_number_and_place(process: str, message: str) -> None:
    """Whatever a user calls a process, XID and address are those of the driver."""
    line = parse_driver_line(f"NVRM: Xid (PCI:0000:1b:00): 13, pid=9, name={process}, {message}")
    assert isinstance(line, XidLine)
    assert (line.address, line.xid) == (GPU, 13)


def test_record_is_taken_apart() -> None:
    """Header and text are separated; unknown header fields and the record's properties are ignored."""
    raw = b"3,1042,83000123,-,caller=T1;NVRM: a;b\n SUBSYSTEM=pci\n DEVICE=+pci:0000:1b:00.0\nodd\n odd\n"
    assert parse_record(raw) == KernelRecord(
        sequence=1042,
        monotonic_usec=83000123,
        level=3,
        facility=0,
        text="NVRM: a;b",
    )


def test_record_of_user_space_shows_its_facility() -> None:
    """Facility and level come from one number."""
    record = parse_record(b"14,1,2,-;hello\n")
    assert record is not None
    assert (record.facility, record.level) == (1, 6)


def test_escaped_bytes_are_restored() -> None:
    """Escapes become bytes, then text; broken UTF-8 is replaced, other backslashes stay."""
    record = parse_record(rb"6,1,2,-;a\x0ab \xc3\xa9 \xff \x5cx41 \q")
    assert record is not None
    assert record.text == "a\nb é � \\x41 \\q"


@pytest.mark.parametrize(
    "raw",
    [b"", b"x", b";text", b"6,1;text", b"6,x,2,-;text", b"6,-1,2,-;t", b"6,1,,-;t", b"6," + b"9" * 5000 + b",1;t"],
)
def test_malformed_record_is_none(raw: bytes) -> None:
    assert parse_record(raw) is None


@given(st.binary(max_size=100))
def test_any_bytes_are_a_record_or_none(raw: bytes) -> None:
    parse_record(raw)
