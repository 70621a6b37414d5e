"""What the agent makes of the worker's words."""

import msgspec
import pytest

from nodeagent.edge.nvml.agent import protocol
from nodeagent.edge.nvml.agent.protocol import Failure, Report, Request, render_event, translate_failure
from nodeagent.edge.nvml.errors import describe_code
from nodeagent.edge.nvml.shared import KINDS, WANTED, XID
from nodeagent.model.errors import DriverMismatch, DriverUnavailable
from nodeagent.model.events import GpuEventReported, XidReported
from nodeagent.model.ids import GpuUuid

GPU = GpuUuid("GPU-1")


def test_requests_leave_out_what_they_do_not_say() -> None:
    """The worker gets exactly the arguments that its method takes."""
    assert msgspec.json.decode(protocol.encode_request(Request(do="count"))) == {"do": "count"}
    sample = Request(do="sample", gpus=((0, "0000:1b:00.0", "GPU-1"),), whole=False)
    assert msgspec.json.decode(protocol.encode_request(sample)) == {
        "do": "sample",
        "gpus": [[0, "0000:1b:00.0", "GPU-1"]],
        "whole": False,
    }


def test_a_mismatch_is_told_apart() -> None:
    """Code 18 is the one that a new library file or a module reload cures; it names the library's version."""
    error = translate_failure(Failure(code=18, message="mismatch", library_path="/usr/lib64/libnvidia-ml.so.550.54.15"))
    assert isinstance(error, DriverMismatch)
    assert error.library_version == "550.54.15"
    assert isinstance(translate_failure(Failure(code=9, message="not loaded")), DriverUnavailable)


@pytest.mark.parametrize(
    ("path", "version"),
    [("/a/libnvidia-ml.so.570.26", "570.26"), ("/a/libnvidia-ml.so.1", ""), ("libnvidia-ml.so", ""), ("", "")],
)
def test_versions_come_from_file_names(path: str, version: str) -> None:
    """A driver version has two or three parts; the single number of a link is none."""
    assert protocol.parse_library_version(path) == version


def test_every_wanted_event_has_a_name() -> None:
    """An event without a name would be registered for and then thrown away."""
    for kind, name in KINDS.items():
        event = render_event(Report(gpu=GPU, type=kind, data=7))
        if kind == XID:
            assert event == XidReported(gpu=GPU, xid=7)
        else:
            assert event == GpuEventReported(gpu=GPU, kind=name, data=7)
    assert sum(KINDS) == WANTED


def test_what_was_not_registered_for_is_no_event() -> None:
    """A clock change, or a report without a GPU, is nothing to tell."""
    assert render_event(Report(gpu=GPU, type=0x10)) is None
    assert render_event(Report(ended=15)) is None


def test_an_instance_is_told_only_where_there_is_one() -> None:
    """NVML's all-ones number means "not of a MIG device"."""
    event = render_event(Report(gpu=GPU, type=XID, data=31, gpu_instance=1, compute_instance=0xFFFFFFFF))
    assert event == XidReported(gpu=GPU, xid=31, gpu_instance_id=1, compute_instance_id=None)


def test_codes_are_told_in_words_with_their_number() -> None:
    """Also one from a driver newer than this agent."""
    assert describe_code(9) == "the driver is not loaded (NVML code 9)"
    assert describe_code(777) == "the driver reports an error this agent does not know (NVML code 777)"
