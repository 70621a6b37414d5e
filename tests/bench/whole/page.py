"""The status page: what one rendering costs the event loop, what twenty readers cost the agent and the pods that wait,
and how long a reader waits in a real browser.
"""

import select
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nodeagent.components.web.page.details import render_path
from nodeagent.components.web.page.overview import render_document
from tests.bench.around.node import bench_node
from tests.bench.rows import Row
from tests.bench.whole.admission import settle
from tests.support.nodes import make_full_view
from tests.support.programs.agent_process import AgentProcess, running_simulation
from tests.support.programs.browser import Browser, running_browser

GPUS, READERS = 8, 20
RENDERINGS = 300
WATCH_SECONDS = 15.0
SETTLE_SECONDS = 5.0
LOADS, XIDS = 20, 10
TURNS, PODS_A_TURN = 15, 60
WATCH_SCRIPT = """
  const gpus = document.getElementById('gpus');
  const look = () => { if (!window.shownAt && gpus.textContent.includes('lost')) window.shownAt = Date.now(); };
  new MutationObserver(look).observe(gpus, { childList: true, subtree: true });
"""
PAUSE_SECONDS = 1.0
"""Between two turns: readers that come and go load a whole page each, which is no part of the measure."""


def measure() -> list[Row]:
    """All; the browser's rows only where there is a Chromium."""
    rows = [*_measure_rendering(), _measure_readers(), *_measure_pods()]
    if shutil.which("chromium") is None:
        sys.stderr.write("no chromium on the PATH: loads and live updates are not measured\n")
        return rows
    return [*rows, *_measure_browser()]


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
                reader.sendall(b"GET /live?page=/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
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


def _measure_pods() -> list[Row]:
    """What pods wait, turn and turn about with twenty live readers and without; the readers' ratio is the measure."""
    alone: list[float] = []
    read: list[float] = []
    with bench_node() as node, node.running_agent() as agent:
        settle(node, agent, devices=8)
        for _ in range(TURNS):
            time.sleep(PAUSE_SECONDS)
            alone += node.kubelet.admit(1, PODS_A_TURN)
            with _reading(agent.port):
                time.sleep(PAUSE_SECONDS)
                read += node.kubelet.admit(1, PODS_A_TURN)
    without, beside = (
        Row("prefer + Allocate, nobody reads", "ms", alone),
        Row("prefer + Allocate, 20 live pages", "ms", read),
    )
    ratios = [beside.percentile(share) / without.percentile(share) for share in (0.5, 0.99)]
    return [
        without,
        beside,
        Row("  times as long beside 20 live pages, p50", "x", ratios[:1], limit=1.1),
        Row("  times as long beside 20 live pages, p99", "x", ratios[1:], limit=1.5),
    ]


@contextmanager
def _reading(port: int) -> Iterator[None]:
    """Twenty readers who take in what comes."""
    readers = [socket.create_connection(("127.0.0.1", port)) for _ in range(READERS)]
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            for reader in select.select(readers, (), (), 0.1)[0]:
                reader.recv(1 << 20)

    thread = threading.Thread(target=read, name="page readers")
    try:
        for reader in readers:
            reader.sendall(b"GET /live?page=/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
        thread.start()
        yield
    finally:
        is_over.set()
        thread.join()
        for reader in readers:
            reader.close()


def _measure_browser() -> list[Row]:
    """A real browser on a simulated node with eight GPUs and six pods."""
    with tempfile.TemporaryDirectory(prefix="na-") as directory, running_browser() as browser:
        with running_simulation(Path(directory), "--pods", "6") as agent:
            agent.wait_for("/api/v1/allocations", "namespace")
            time.sleep(SETTLE_SECONDS)
            return [*_measure_loads(agent, browser), _measure_live_updates(agent, browser)]


def _measure_loads(agent: AgentProcess, browser: Browser) -> list[Row]:
    navigation = "performance.getEntriesByType('navigation')[0]"
    loads, paints, bytes_sent = [], [], []
    for _ in range(LOADS):
        browser.call("Page.navigate", url="about:blank")
        browser.open(agent.url)
        browser.wait_for(
            f"{navigation}.loadEventEnd > 0 && performance.getEntriesByName('first-contentful-paint').length"
        )
        loads.append(float(browser.ask(f"{navigation}.loadEventEnd")))
        paints.append(float(browser.ask("performance.getEntriesByName('first-contentful-paint')[0].startTime")))
        bytes_sent.append(float(browser.ask(f"{navigation}.transferSize")) / 1000)
    return [
        Row("page loaded in Chromium", "ms", loads, limit=300),
        Row("  first words painted", "ms", paints),
        Row("  transferred", "KB", bytes_sent, limit=60, limit_is_for=0.99),
    ]


def _measure_live_updates(agent: AgentProcess, browser: Browser) -> Row:
    """From the injection of an XID until the open page shows it; both times are of this machine's clock."""
    browser.open(agent.url)
    browser.wait_for("document.getElementById('live').className === 'on'")
    browser.ask(WATCH_SCRIPT)
    seconds = []
    for _ in range(XIDS):
        browser.ask("window.shownAt = 0")
        began = time.time()
        agent.post("/api/v1/faults", {"fault": "xid", "arguments": ["79", "3"]})
        browser.wait_for("window.shownAt > 0")
        seconds.append(float(browser.ask("window.shownAt")) / 1000 - began)
        agent.post("/api/v1/faults", {"fault": "clear", "arguments": []})
        browser.wait_for("!document.getElementById('gpus').textContent.includes('lost')")
        time.sleep(PAUSE_SECONDS)
    return Row("XID injected until the page shows it", "s", seconds, limit=1, limit_is_for=0.99)
