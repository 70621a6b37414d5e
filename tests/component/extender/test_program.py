"""`nodeagent extender` as a process of its own, over HTTP and HTTPS."""

import json
import re
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from anyio.abc import Process

from nodeagent.extender.gpu_pod import CHOICE_DIGEST
from tests.component.extender.harness import capacity, open_server
from tests.component.http.certificates import Authority, Certificate
from tests.fakes.fleet import FakeFleet
from tests.support.programs.command_line import run_here
from tests.support.scheduling import limit

pytestmark = pytest.mark.slow
STARTED_SECONDS = 30


class RunningExtender:
    """The process, its log so far, and its address."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self._changed = anyio.Event()

    async def read_log(self) -> None:
        assert self.process.stderr is not None
        rest = b""
        async for chunk in self.process.stderr:
            *lines, rest = (rest + chunk).split(b"\n")
            self.lines += [json.loads(line) for line in lines]
            self._changed.set()
            self._changed = anyio.Event()

    async def wait_logged(self, event: str) -> dict[str, Any]:
        with anyio.fail_after(STARTED_SECONDS):
            while True:
                found = next((line for line in self.lines if line["event"] == event), None)
                if found is not None:
                    return found
                await self._changed.wait()


@asynccontextmanager
async def run_extender(server: FakeFleet, tmp_path: Path, *words: str) -> AsyncIterator[RunningExtender]:
    kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
    settings = [
        f"kubernetes.kubeconfig={kubeconfig}",
        "extender.listen=127.0.0.1:0",
        "log.format=json",
        *words,
    ]
    line = [sys.executable, "-m", "nodeagent", "extender", *(word for each in settings for word in ("--set", each))]
    async with await anyio.open_process(line, stdout=None) as process:
        extender = RunningExtender(process)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(extender.read_log)
            try:
                yield extender
            finally:
                if process.returncode is None:
                    process.terminate()
                with anyio.fail_after(STARTED_SECONDS, shield=True):
                    await process.wait()


async def ask(url: str, pod: dict[str, Any], names: Sequence[str], context: ssl.SSLContext | bool = True) -> Any:
    async with aiohttp.ClientSession() as session:
        body = {"Pod": pod, "NodeNames": list(names)}
        async with session.post(f"{url}scheduler/predicates", json=body, ssl=context) as answer:
            assert answer.status == 200
            return json.loads(await answer.read())


@pytest.mark.long
async def test_the_program_answers_leads_and_stops(tmp_path: Path) -> None:
    """From the start to SIGTERM: the lease is taken, the choice is written, the lease is given up."""
    async with open_server() as server:
        server.put_node("n", capacity=capacity())
        pod = server.put_pod("a", limit(30, 4))
        async with run_extender(server, tmp_path, "kubernetes.namespace=gpu") as extender:
            url = (await extender.wait_logged("extender_started"))["url"]
            await extender.wait_logged("extender_ready")
            assert (await ask(url, pod, ["n"]))["NodeNames"] == ["n"]
            assert server.annotations("a")["tencent.com/predicate-node"] == "n"
            await extender.wait_logged("leading_changed")
            assert server.objects["leases"]["nodeagent-extender"]["spec"]["holderIdentity"]
            async with aiohttp.ClientSession() as session:
                async with session.get(f"{url}metrics") as answer:
                    assert (
                        'nodeagent_extender_answers_total{verb="predicates",result="placed"} 1' in await answer.text()
                    )
                async with session.post(f"{url}scheduler/predicates", data=b"[" * 100_000) as answer:
                    assert "cannot read the request" in (await answer.json())["Error"]
            extender.process.send_signal(signal.SIGHUP)
            await extender.wait_logged("reload_refused")
            extender.process.terminate()
            with anyio.fail_after(STARTED_SECONDS):
                assert await extender.process.wait() == 0
        assert server.objects["leases"]["nodeagent-extender"]["spec"]["holderIdentity"] == ""


@pytest.mark.long
async def test_tls_is_by_files(tmp_path: Path) -> None:
    """As for the agent's own endpoint; a body over the limit is refused."""
    authority = Authority(tmp_path)
    mine = authority.issue("extender")
    config = tmp_path / "web.yaml"
    config.write_text(f"tls_server_config: {{cert_file: {mine.cert}, key_file: {mine.key}}}\n")
    words = (f"extender.web_config_file={config}", "extender.leader_election=false", "extender.max_request_bytes=2048")
    async with open_server() as server:
        server.put_node("n", capacity=capacity())
        pod = server.put_pod("a", limit(30, 4))
        async with run_extender(server, tmp_path, *words) as extender:
            url = (await extender.wait_logged("extender_started"))["url"]
            assert url.startswith("https://127.0.0.1:")
            await extender.wait_logged("extender_ready")
            context = ssl.create_default_context(cafile=str(authority.root.cert))
            assert (await ask(url, pod, ["n"], context))["NodeNames"] == ["n"]
            async with aiohttp.ClientSession() as session:
                async with session.post(f"{url}scheduler/predicates", data=b" " * 3000, ssl=context) as answer:
                    assert answer.status == 413
            assert server.requests["get leases"] == 0


def write_web_config(tmp_path: Path, mine: Certificate, authority: Certificate) -> Path:
    """As the chart has it: whoever asks shows a certificate of the same authority."""
    config = tmp_path / "web.yaml"
    tls = {
        "cert_file": str(mine.cert),
        "key_file": str(mine.key),
        "client_ca_file": str(authority.cert),
        "client_auth_type": "RequireAndVerifyClientCert",
    }
    config.write_text(json.dumps({"tls_server_config": tls}))
    return config


@pytest.mark.long
async def test_only_the_scheduler_is_answered_and_probes_are_answered_elsewhere(tmp_path: Path) -> None:
    """By its certificate; those of strangers are refused before they have asked, and probes see nothing of pods."""
    (tmp_path / "others").mkdir()
    authority, others = Authority(tmp_path), Authority(tmp_path / "others")
    client, stranger = authority.issue("scheduler"), others.issue("scheduler")
    config = write_web_config(tmp_path, authority.issue("extender"), authority.root)
    words = (f"extender.web_config_file={config}", "extender.probe_listen=127.0.0.1:0")
    async with open_server() as server:
        server.put_node("n", capacity=capacity())
        pod = server.put_pod("a", limit(30, 4))
        async with run_extender(server, tmp_path, *words, "extender.leader_election=false") as extender:
            started = await extender.wait_logged("extender_started")
            await extender.wait_logged("extender_ready")
            for shown in (None, stranger):
                context = ssl.create_default_context(cafile=str(authority.root.cert))
                if shown is not None:
                    context.load_cert_chain(shown.cert, shown.key)
                with pytest.raises((aiohttp.ClientError, OSError)):
                    await ask(started["url"], pod, ["n"], context)
            assert server.requests["patch pods"] == 0
            context = ssl.create_default_context(cafile=str(authority.root.cert))
            context.load_cert_chain(client.cert, client.key)
            assert (await ask(started["url"], pod, ["n"], context))["NodeNames"] == ["n"]
            async with aiohttp.ClientSession() as session:
                said = {}
                for path in ("livez", "readyz", "metrics", "explain?pod=default/a", "version", ""):
                    async with session.get(f"{started['probes']}{path}") as answer:
                        said[path] = answer.status
                async with session.post(f"{started['probes']}scheduler/predicates", json={}) as answer:
                    said["predicates"] = answer.status
                async with session.get(f"{started['probes']}metrics") as answer:
                    metrics = await answer.text()
            assert [path for path, status in said.items() if status == 200] == ["livez", "readyz", "metrics"]
            ends = dict(re.findall(r'certificate_expires_timestamp_seconds\{of="(\w+)"\} (\S+)', metrics))
            assert ends.keys() == {"client", "server"}
            # Both are good for two days, which is told before they end.
            reason = (await extender.wait_logged("certificate_expires_soon"))["reason"]
            assert "the extender's certificate" in reason
            assert "put a new one in its place" in reason


@pytest.mark.long
async def test_keys_are_replaced_while_it_runs(tmp_path: Path) -> None:
    """A choice proves itself by the first."""
    file = tmp_path / "keys"
    file.write_text("a" * 32)
    words = (f"extender.choice_keys_file={file}", "extender.leader_election=false")
    async with open_server() as server:
        server.put_node("n", capacity=capacity())
        pods = [server.put_pod(name, limit(30, 1)) for name in "ab"]
        async with run_extender(server, tmp_path, *words) as extender:
            url = (await extender.wait_logged("extender_started"))["url"]
            await extender.wait_logged("extender_ready")
            assert (await ask(url, pods[0], ["n"]))["NodeNames"] == ["n"]
            digest = server.annotations("a")[CHOICE_DIGEST]
            file.write_text("b" * 32 + "\n" + "a" * 32)
            assert (await extender.wait_logged("choice_keys_replaced"))["count"] == 2
            assert (await ask(url, pods[1], ["n"]))["NodeNames"] == ["n"]
            assert server.annotations("b")[CHOICE_DIGEST] != digest
            async with aiohttp.ClientSession() as session, session.get(f"{url}metrics") as answer:
                assert "nodeagent_extender_choice_keys 2" in await answer.text()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "cannot reach the cluster: there is neither kubernetes.kubeconfig nor a pod's service account"),
        (("kubernetes.kubeconfig=/nonexistent", "extender.listen=192.0.2.1:1"), "cannot listen on 192.0.2.1:1"),
        (("kubernetes.kubeconfig=/nonexistent", "extender.web_config_file=/nonexistent"), "/nonexistent"),
        (
            ("kubernetes.kubeconfig=/nonexistent", "extender.choice_keys_file=/dev/null"),
            "extender.choice_keys_file /dev/null",
        ),
    ],
)
@pytest.mark.may_block("the command fails before its loop does anything")
def test_what_cannot_start_says_why(words: tuple[str, ...], reason: str) -> None:
    """In one line, with exit code 2."""
    code, _, err = run_here("extender", *(word for each in words for word in ("--set", each)))
    assert code == 2
    assert reason in err
