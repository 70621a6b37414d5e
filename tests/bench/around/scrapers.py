"""Prometheus, as far as a server feels it: keep-alive connections that ask for `/metrics` at their own pace."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextmanager
def scraping(port: int, *, scrapers: int, pause_seconds: float) -> Iterator[list[float]]:
    """Scrape during the block; the list holds the milliseconds of each once the block is over."""
    millis: list[float] = []
    done = threading.Event()
    threads = [
        threading.Thread(target=_scrape, args=(port, pause_seconds, done, millis), daemon=True) for _ in range(scrapers)
    ]
    for number, thread in enumerate(threads):
        done.wait(pause_seconds * number / scrapers / 2)
        thread.start()
    try:
        yield millis
    finally:
        done.set()
        for thread in threads:
            thread.join()


def _scrape(port: int, pause_seconds: float, done: threading.Event, millis: list[float]) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while not done.wait(pause_seconds):
            began = time.perf_counter()
            line.sendall(REQUEST)
            _read_answer(line)
            millis.append((time.perf_counter() - began) * 1000)


def _read_answer(line: socket.socket) -> None:
    """Head and body; a body without a stated length would be a defect of the server here."""
    received = line.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    left = length - len(body)
    while left > 0:
        left -= len(line.recv(min(left, 262144)))
