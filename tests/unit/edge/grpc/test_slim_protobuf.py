"""Protobuf as the agent loads it, each time in an interpreter of its own."""

import os
import subprocess
import sys

import pytest

IN_PYTHON = "google.protobuf.text_format"
ROUND = f"""
import sys
from nodeagent.edge.kubelet.proto import device_plugin_pb2 as wire
asked = wire.AllocateRequest(container_requests=[wire.ContainerAllocateRequest(devices_ids=["a", "b"])])
heard = wire.AllocateRequest.FromString(asked.SerializeToString())
assert list(heard.container_requests[0].devices_ids) == ["a", "b"]
print({IN_PYTHON!r} in sys.modules)
"""


def run(script: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.split()


def test_messages_of_the_c_core_do_without_those_in_python() -> None:
    """They are encoded, decoded and shown all the same."""
    assert run(f"{ROUND}\nassert 'devices_ids' in str(heard)") == ["False"]


def test_who_wants_them_has_them() -> None:
    """Whatever is asked of the module loads it."""
    later = (
        "from google.protobuf.internal import python_message as pure; print(pure.GeneratedProtocolMessageType.__name__)"
    )
    assert run(f"{ROUND}\n{later}") == ["False", "GeneratedProtocolMessageType"]
    plain = "import google.protobuf.internal.python_message as pure; print(pure.GeneratedProtocolMessageType.__name__)"
    assert run(f"{ROUND}\n{plain}") == ["False", "GeneratedProtocolMessageType"]


def test_protobuf_without_its_c_core_works_as_ever() -> None:
    """An installation may have none for its processor."""
    assert run(ROUND, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="python") == ["True"]


@pytest.mark.parametrize("before", ["import google.protobuf.internal.python_message", "import google.protobuf.message"])
def test_what_is_loaded_already_is_left_alone(before: str) -> None:
    """Somebody else's import first changes nothing but what is spared."""
    assert run(f"{before}\n{ROUND}") == [str("python_message" in before)]
