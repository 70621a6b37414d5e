"""The status page: what one rendering costs the event loop, and what twenty readers cost the agent."""

import select
import socket
import time
from collections.abc import Callable, Sequence

from nodeagent.components.web.detail_pages import render_path
from nodeagent.components.web.page import render_document
from tests.bench.node import bench_node
from tests.bench.rows import Row
from tests.support.nodes import make_full_view

GPUS, READERS = 8, 20
RENDERINGS = 300
WATCH_SECONDS = 15.0
SETTLE_SECONDS = 5.0


def measure() -> list[Row]:
    """Both."""
    return [*_measure_rendering(), _measure_readers()]


def _measure_rendering() -> list[Row]:
    view = make_full_view(GPUS)
    millis, size = [], 0
    for _ in range(RENDERINGS):
        began = time.process_time()
        page = render_path("/", view)
        assert page is not None
        size = len(render_document(page, "1").encode())
        millis.append(1000 * (time.process_time() - began))
    return [
        Row("rendering the page, 8 GPUs with 7 MIG devices", "ms", millis, limit=5, limit_is_for=0.99),
        Row("the page, uncompressed", "KB", [size / 1000], limit=60),
    ]


def _measure_readers() -> Row:
    with bench_node() as node, node.running_agent() as agent:
        agent.wait_ready()
        time.sleep(SETTLE_SECONDS)
        idle = _measure_share(agent.cpu_seconds)
        readers = [socket.create_connection(("127.0.0.1", agent.port)) for _ in range(READERS)]
        try:
            for reader in readers:
                reader.sendall(b"GET /live?page=/ HTTP/1.1\r\nHost: bench\r\n\r\n")
            with_readers = _measure_share(agent.cpu_seconds, readers)
        finally:
            for reader in readers:
                reader.close()
    return Row("20 live readers, of one core", "%", [max(0.0, with_readers - idle)], limit=2)


def _measure_share(cpu_seconds: Callable[[], float], readers: Sequence[socket.socket] = ()) -> float:
    before, began = cpu_seconds(), time.perf_counter()
    while time.perf_counter() - began < WATCH_SECONDS:
        for reader in select.select(readers, (), (), 0.5)[0]:
            reader.recv(1 << 20)
    return 100 * (cpu_seconds() - before) / (time.perf_counter() - began)
