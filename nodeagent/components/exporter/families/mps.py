"""MPS daemons: readiness, starts, and number of clients; pure."""

from nodeagent.components.exporter.serving.exposition import Family, Labels, make_family
from nodeagent.model.mps import MpsDaemon, MpsPhase, MpsState


def build_mps_families(state: MpsState) -> tuple[Family, ...]:
    """A series for each daemon."""
    daemons = [(_label(one), one) for one in state.daemons]
    return (
        make_family(
            "nodeagent_mps_daemon_ready",
            "gauge",
            "1 for an MPS daemon that is ready, 0 for one that waits, is started, is broken or is ended.",
            [(labels, float(one.phase is MpsPhase.READY)) for labels, one in daemons],
        ),
        make_family(
            "nodeagent_mps_daemon_starts_total",
            "counter",
            "How often the daemon was started since the agent runs.",
            [(labels, float(one.starts)) for labels, one in daemons],
        ),
        make_family(
            "nodeagent_mps_clients",
            "gauge",
            "Processes that work through the daemon, at the last look.",
            [(labels, float(len(one.clients))) for labels, one in daemons],
        ),
    )


def _label(daemon: MpsDaemon) -> Labels:
    return (("daemon", daemon.name), ("owner", daemon.owner))
