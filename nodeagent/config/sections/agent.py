"""Settings of the agent as a process: node, log, HTTP endpoint, restarts and shutdown."""

from pathlib import Path
from typing import Literal

from nodeagent.config.compound import ListOf
from nodeagent.config.kinds import AbsolutePath, Address, ListenAddress, Maybe, Number, OneOf, Text, Whole
from nodeagent.config.knobs import Section, knob

HOST_NAME = Text("a host name, *.name or *", r"\*|(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?", 253)
NODE_NAME = Text("a Kubernetes node name", r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", 253)


class NodeSettings(Section):
    """The agent's node, and the agent's directories."""

    name: str | None = knob(
        Maybe(NODE_NAME),
        None,
        "name of this node in the cluster; empty means the host name",
        "the variable is the one that DaemonSets fill from the pod's spec",
        also_env="NODE_NAME",
    )
    state_dir: Path = knob(
        AbsolutePath(),
        Path("/var/lib/nodeagent"),
        "what must outlive a reboot: allocation journal, health verdicts, previous runtime configuration",
        "the file system hierarchy's place for state",
    )
    run_dir: Path = knob(
        AbsolutePath(),
        Path("/run/nodeagent"),
        "what must not outlive a reboot: admin socket, lock",
        "the file system hierarchy's place for it; short, because socket paths are limited to 107 bytes",
    )
    host_root: Path = knob(
        AbsolutePath(),
        Path("/"),
        "where the host's own / is seen; paths of the driver, its hook and the container runtime are below it",
        "a container that mounts the host's elsewhere says so here",
    )
    proc_dir: Path = knob(
        AbsolutePath(),
        Path("/proc"),
        "where the host's processes and kernel facts are seen",
        "a container that mounts the host's elsewhere says so here",
    )
    sys_dir: Path = knob(
        AbsolutePath(),
        Path("/sys"),
        "where the host's devices are seen",
        "a container that mounts the host's elsewhere says so here",
    )


class LogSettings(Section):
    """The log on standard error."""

    level: Literal["debug", "info", "warning", "error"] = knob(
        OneOf(("debug", "info", "warning", "error")),
        "info",
        "the least severity of written log lines",
        "changes of state are worth a line, repeated states are not logged at any level above debug",
        reload=True,
    )
    format: Literal["auto", "json", "console"] = knob(
        OneOf(("auto", "json", "console")),
        "auto",
        "one JSON object a line, or coloured text",
        "auto is text on a terminal and JSON anywhere else",
    )


class HttpSettings(Section):
    """The endpoint for metrics, health, status page and read-only API; changes go through the admin socket only."""

    listen: Address = knob(
        ListenAddress(),
        Address("127.0.0.1", 9400),
        "address and port; an empty host is every interface",
        "the port that Prometheus set-ups of this field scrape, open to this machine alone unless asked otherwise",
    )
    web_config_file: Path | None = knob(
        Maybe(AbsolutePath()),
        None,
        "TLS, client certificates and basic authentication, in the exporter-toolkit format",
        "plain HTTP on loopback needs none",
    )
    allowed_hosts: tuple[str, ...] = knob(
        ListOf(HOST_NAME),
        (),
        "names accepted in the header `Host`, besides the agent's addresses, the machine's names"
        " and `*.svc`; `*.example.com` is every name below example.com, `*` is any name",
        "asked over loopback, another name is refused: a page of that name would have pointed it at this machine; with "
        "names given here, connections from other machines are held to them too",
        reload=True,
    )
    max_connections: int = knob(
        Whole(8, 65536),
        256,
        "connections at a time; beyond, the one that has waited longest makes room",
        "several Prometheus replicas, probes and people fit; fewer where the limit of open files is low",
    )
    max_connections_per_address: int = knob(
        Whole(4, 65536),
        128,
        "connections of one address at a time; for a further connection the address's longest"
        " idle connection is closed",
        "a single address must not take all connections; a proxy may take half",
    )
    max_concurrent_scrapes: int = knob(
        Whole(1, 1024),
        16,
        "requests for metrics served at a time; further ones get 503",
        "several Prometheus replicas fit, a runaway client does not",
        reload=True,
    )
    max_event_streams: int = knob(
        Whole(0, 1024),
        64,
        "pages and clients that follow live events at a time; further ones get 503",
        "each costs a queue",
        reload=True,
    )
    read_timeout_seconds: float = knob(
        Number(0.1, 600),
        10.0,
        "how long a request may take to arrive: its line and headers, and then its body",
        "a slow sender must not hold a connection",
        reload=True,
    )
    write_timeout_seconds: float = knob(
        Number(0.1, 600),
        30.0,
        "how long an answer may take to leave, or one part of a stream",
        "a slow reader must not hold memory",
        reload=True,
    )
    max_request_bytes: int = knob(
        Whole(1024, 16 * 1024 * 1024),
        65536,
        "longest request body",
        "the API takes small JSON objects only",
    )


class SupervisorSettings(Section):
    """Restarts of failed components, and the limit of restarts."""

    restart_min_seconds: float = knob(
        Number(0.01, 3600),
        0.5,
        "shortest pause before a failed component is started again",
        "a single crash is over after a short pause",
        reload=True,
    )
    restart_max_seconds: float = knob(
        Number(0.01, 86400),
        60.0,
        "longest pause; pauses double, with jitter, up to it",
        "a fault that heals by itself is noticed within a minute",
        reload=True,
    )
    stable_after_seconds: float = knob(
        Number(1, 86400),
        300.0,
        "how long a component must run before its pauses start anew",
        "longer than the longest pause, so that a slow crash loop does not pass for health",
        reload=True,
    )
    crash_budget: int = knob(
        Whole(0, 1000),
        5,
        "crashes allowed within the window before a component is given up",
        "what has failed six times in an hour needs a person",
        reload=True,
    )
    crash_window_seconds: float = knob(
        Number(1, 604800),
        3600.0,
        "the window in which crashes are counted",
        "an hour forgives the rare crash and catches the loop",
        reload=True,
    )


class ShutdownSettings(Section):
    """How long stopping may take."""

    total_seconds: float = knob(
        Number(1, 600),
        18.0,
        "time from the first signal to the hard end of the process",
        "systemd and the kubelet kill after 30 s or more; ending before them is ending in order",
        reload=True,
    )
    drain_seconds: float = knob(
        Number(0, 600),
        5.0,
        "time that requests in flight get to finish",
        "an Allocate takes milliseconds; this is room for a slow disk",
        reload=True,
    )
