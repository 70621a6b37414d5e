"""What the agent relies on of a container runtime, by its own questions and by the fields on the wire."""

import json

import pytest

from nodeagent.edge.container_runtime.cri import ask_runtime, list_containers
from nodeagent.edge.container_runtime.protobuf_fields import parse_fields, parse_numbers, parse_text_map, parse_texts
from nodeagent.edge.grpc.caller import call_unary
from nodeagent.edge.grpc.errors import AnswerRefused, Status
from nodeagent.model.fractions import ContainerState
from tests.support.wire.runtimes import OpenRuntime, RuntimeUnderTest

VERBOSE = b"\x08\x01"


async def ask(runtime: RuntimeUnderTest, name: str, request: bytes = b"") -> bytes:
    return await call_unary(runtime.socket, f"/runtime.v1.RuntimeService/{name}", request, timeout_seconds=10)


async def test_a_runtime_says_who_it_is(open_runtime: OpenRuntime) -> None:
    """The version of the interface, a name, a version, and the version of the API."""
    async with open_runtime() as runtime:
        told = parse_texts(await ask(runtime, "Version"))
        assert (told[1], told[2], told[4]) == ("0.1.0", "containerd", "v1")
        assert told[3].startswith("v2.")
        answer = await ask_runtime(str(runtime.socket))
        assert (answer.name, answer.version) == ("containerd", told[3])


async def test_a_runtime_says_what_is_in_force(open_runtime: OpenRuntime) -> None:
    """Whether CDI is switched on, its runtime classes with the one that is nameless, and whether it is ready."""
    async with open_runtime() as runtime:
        answer = await ask_runtime(str(runtime.socket))
        assert (answer.cdi_enabled, answer.default_handler, answer.is_ready) == (True, "runc", True)
        assert answer.handlers is not None
        assert {"", "runc"} <= {*answer.handlers}
        status = await ask(runtime, "Status", VERBOSE)
        config = json.loads(parse_text_map(status, 2)["config"])
        assert config["enableCDI"] is True
        assert config["containerd"]["runtimes"]["runc"]["runtimeType"] == "io.containerd.runc.v2"
        (found,) = [content for number, content in parse_fields(status) if number == 1]
        conditions = {parse_texts(each).get(1, ""): parse_numbers(each).get(2, 0) for _, each in parse_fields(found)}
        # A third one says whether the configuration has anything that goes with a later version.
        assert conditions.keys() == {"RuntimeReady", "NetworkReady", "ContainerdHasNoDeprecationWarnings"}
        assert (conditions["RuntimeReady"], conditions["NetworkReady"]) == (1, 1)


async def test_details_are_told_to_who_asks_for_them(open_runtime: OpenRuntime) -> None:
    """Without the field `verbose` there is no configuration in the answer."""
    async with open_runtime() as runtime:
        assert parse_text_map(await ask(runtime, "Status"), 2) == {}


async def test_containers_say_whose_they_are(open_runtime: OpenRuntime) -> None:
    """A container that runs and one that has ended, each with its state, its name, and the labels of its pod."""
    async with open_runtime() as runtime:
        running, ended = await runtime.run_pod("runs"), await runtime.end_pod("ended")
        found = {each.id: each for each in await list_containers(str(runtime.socket))}
        assert {found[running].state, found[ended].state} == {ContainerState.RUNNING, ContainerState.EXITED}
        assert found[running].state is ContainerState.RUNNING
        for number, pod in ((running, "runs"), (ended, "ended")):
            assert (found[number].name, found[number].namespace, found[number].pod) == ("main", "default", pod)
            assert found[number].pod_uid
            assert len(number) == 64


async def test_a_version_that_is_not_served_is_refused(open_runtime: OpenRuntime) -> None:
    """By a status of its own, with the name of what was asked for."""
    async with open_runtime() as runtime:
        service = "runtime.v1alpha2.RuntimeService"
        with pytest.raises(AnswerRefused) as refused:
            await call_unary(runtime.socket, f"/{service}/Version", b"", timeout_seconds=10)
        assert (refused.value.status, refused.value.text) == (Status.UNIMPLEMENTED, f"unknown service {service}")
