"""A client of NVSentinel's platform connector: events in the connector's own form.

The agent shows no token: the connector then takes events about the connector's own node alone.
Refuses to retry: the caller knows what is still to be told.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from nodeagent.edge.grpc.caller import call_unary
from nodeagent.edge.grpc.errors import AnswerBroken, AnswerRefused
from nodeagent.edge.nvsentinel.proto import platform_connector_pb2 as wire
from nodeagent.model.errors import NodeagentError
from nodeagent.model.repairers import NvsentinelEvent

METHOD: Final = "/datamodels.PlatformConnector/HealthEventOccurredV1"
ANSWER_SECONDS: Final = 10.0
_VERSION: Final = 1
_AGENT, _COMPONENT_CLASS = "nodeagent", "GPU"


class ConnectorUnavailable(NodeagentError):
    """The platform connector has not taken the events."""

    def __init__(self, socket: str, reason: str) -> None:
        super().__init__(f"cannot tell NVSentinel at {socket} (signals.nvsentinel.socket): {reason}; it is tried again")
        self.socket, self.reason = socket, reason


class PlatformConnector:
    """The platform connector of this node."""

    def __init__(self, socket: Path, node: str) -> None:
        self._socket, self._node = socket, node

    async def tell(self, events: Sequence[NvsentinelEvent]) -> None:
        """Hand the events over, all or none.

        Raises:
            ConnectorUnavailable: nobody listens, the connector refuses the events, or its answer makes no sense.
        """
        request = wire.HealthEvents(version=_VERSION, events=[encode_event(each, self._node) for each in events])
        try:
            await call_unary(self._socket, METHOD, request.SerializeToString(), timeout_seconds=ANSWER_SECONDS)
        except TimeoutError as error:
            raise ConnectorUnavailable(str(self._socket), f"no answer within {ANSWER_SECONDS:g} s") from error
        except (AnswerRefused, AnswerBroken, OSError) as error:
            raise ConnectorUnavailable(str(self._socket), str(error)) from error


def encode_event(event: NvsentinelEvent, node: str) -> wire.HealthEvent:
    """The event in NVSentinel's form."""
    encoded = wire.HealthEvent(
        version=_VERSION,
        agent=_AGENT,
        componentClass=_COMPONENT_CLASS,
        checkName=event.check,
        isFatal=event.is_fatal,
        isHealthy=event.is_healthy,
        message=event.message,
        recommendedAction=wire.RecommendedAction.Name(event.action),
        errorCode=[event.error_code] if event.error_code else [],
        entitiesImpacted=[wire.Entity(entityType=kind, entityValue=value) for kind, value in event.entities],
        nodeName=node,
        processingStrategy=wire.EXECUTE_REMEDIATION if event.is_acted_on else wire.STORE_ONLY,
    )
    encoded.generatedTimestamp.FromMicroseconds(round(event.at_seconds * 1e6))
    return encoded
