"""Events on their way to NVSentinel's platform connector, over a real socket."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeagent.edge.grpc.calls import CallRefused
from nodeagent.edge.grpc.errors import Status
from nodeagent.edge.nvsentinel import connector as module
from nodeagent.edge.nvsentinel.connector import ConnectorUnavailable, PlatformConnector
from nodeagent.edge.nvsentinel.proto import platform_connector_pb2 as wire
from nodeagent.model.repairers import NvsentinelAction, NvsentinelEvent
from tests.fakes.nvsentinel import ACTIONS, METHOD, PUBLISHED, STRATEGIES, FakePlatformConnector

EVENT = NvsentinelEvent(
    check="NodeagentXid79",
    entities=(("GPU", "3"), ("GPU_UUID", "GPU-3")),
    error_code="79",
    message="GPU 3 is ill",
    action=NvsentinelAction.RESTART_BM,
    is_fatal=True,
    at_seconds=1_700_000_000.25,
    is_acted_on=True,
)
END = NvsentinelEvent(
    check="NodeagentXid79",
    entities=EVENT.entities,
    error_code="",
    message="no longer",
    action=NvsentinelAction.NONE,
    is_fatal=False,
    at_seconds=1_700_000_001.0,
    is_healthy=True,
)


def test_numbers_are_those_of_the_published_definition() -> None:
    """Of each field, action and strategy that the agent writes."""
    described = wire.DESCRIPTOR.message_types_by_name
    for name, message in described.items():
        for field in message.fields:
            assert PUBLISHED[name][field.name][0] == field.number, f"{name}.{field.name}"
    assert dict(wire.RecommendedAction.items()).items() <= ACTIONS.items()
    assert {each.name: each.value for each in NvsentinelAction}.items() <= ACTIONS.items()
    assert dict(wire.ProcessingStrategy.items()) == STRATEGIES
    assert module.METHOD == METHOD


async def test_an_event_arrives_in_the_form_of_the_definition(short_dir: Path) -> None:
    """Read by the published definition and not by the agent's own."""
    async with FakePlatformConnector().serving(short_dir / "s") as nvsentinel:
        await PlatformConnector(short_dir / "s", "node-1").tell([EVENT, END])
    fault, end = nvsentinel.events
    assert (fault.version, fault.agent, fault.componentClass, fault.nodeName) == (1, "nodeagent", "GPU", "node-1")
    assert (fault.checkName, list(fault.errorCode), fault.message) == ("NodeagentXid79", ["79"], "GPU 3 is ill")
    assert (fault.isFatal, fault.isHealthy, fault.recommendedAction) == (True, False, ACTIONS["RESTART_BM"])
    assert fault.processingStrategy == STRATEGIES["EXECUTE_REMEDIATION"]
    assert (fault.generatedTimestamp.seconds, fault.generatedTimestamp.nanos) == (1_700_000_000, 250_000_000)
    assert [(each.entityType, each.entityValue) for each in fault.entitiesImpacted] == list(EVENT.entities)
    assert (end.isHealthy, end.isFatal, list(end.errorCode)) == (True, False, [])
    assert end.processingStrategy == STRATEGIES["STORE_ONLY"]
    assert nvsentinel.standing == {}


async def test_an_end_with_other_entities_ends_nothing(short_dir: Path) -> None:
    """As NVSentinel has it; an end without entities ends all of the check."""
    async with FakePlatformConnector().serving(short_dir / "s") as nvsentinel:
        connector = PlatformConnector(short_dir / "s", "node-1")
        await connector.tell([EVENT, replace(END, entities=(("GPU", "3"),))])
        assert len(nvsentinel.standing) == 1
        await connector.tell([replace(END, entities=())])
        assert nvsentinel.standing == {}


async def test_who_does_not_take_events_is_named_with_its_setting(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody there, a refusal, half an answer, none in time: each an error of the agent's own."""
    socket = short_dir / "s"
    connector = PlatformConnector(socket, "node-1")
    prefix = rf"cannot tell NVSentinel at {socket} \(signals\.nvsentinel\.socket\): "
    with pytest.raises(ConnectorUnavailable, match=prefix + r".*No such file"):
        await connector.tell([EVENT])
    async with FakePlatformConnector("another").serving(socket) as nvsentinel:
        with pytest.raises(ConnectorUnavailable, match=prefix + "node_mismatch: node-1; it is tried again"):
            await connector.tell([EVENT])
        assert nvsentinel.events == []
        nvsentinel.refusal = CallRefused(Status.UNAVAILABLE, "later")
        with pytest.raises(ConnectorUnavailable, match=prefix + "later"):
            await connector.tell([EVENT])
        nvsentinel.is_silent = True
        monkeypatch.setattr(module, "ANSWER_SECONDS", 0.05)
        with pytest.raises(ConnectorUnavailable, match=prefix + r"no answer within 0\.05 s"):
            await connector.tell([EVENT])
