"""A kubeconfig is read by a child process: it is gone afterwards whatever becomes of it, and the agent has one line."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.kube.client import KubeClient
from nodeagent.edge.kube.credentials import CHILD, Kubeconfig
from nodeagent.edge.kube.errors import CredentialsInvalid
from tests.component.edge_kube.harness import EAGER
from tests.fakes.apiserver import NODE, FakeApiServer
from tests.support.waiting import wait_until

NODE_PATH = f"/api/v1/nodes/{NODE}"


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where certificates may lie for a moment."""
    (path := tmp_path / "scratch").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(path))
    return path


def list_files(directory: Path) -> list[Path]:
    return list(directory.iterdir())


def list_children() -> set[int]:
    return {int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


def write(path: Path, **user: Any) -> Path:
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://10.0.0.1:6443"}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(document))
    return path


def write_program(path: Path, *lines: str) -> dict[str, Any]:
    """A program that gives a token, as a kubeconfig names it: relative to itself."""
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)
    return {"apiVersion": "client.authentication.k8s.io/v1", "command": f"./{path.name}", "interactiveMode": "Never"}


def count(runs: Path) -> int:
    return len(runs.read_text().splitlines()) if runs.exists() else 0


def give(token: str, runs: Path) -> tuple[str, str]:
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": token}}
    return f"echo run >> {runs}", f"echo '{json.dumps(answer)}'"


@pytest.mark.parametrize(
    ("child", "reason"),
    [
        ("import time; time.sleep(60)", r"did not answer within 0\.5 s and was killed"),
        ("print('Fatal error'); import time; time.sleep(60)", "sent what is no frame"),
        ("import os; os.write(1, bytes([0, 0, 0, 2, 0, 0, 0, 1]) + b'{]')", "malformed"),
        ("import os; os.write(1, bytes([0, 0, 0, 2, 0, 0, 0, 1]) + b'{}')", "type"),
        ("import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL before it answered"),
        ("raise SystemExit(4)", "exited with status 4 before it answered"),
    ],
    ids=["hangs", "prints", "nonsense", "nothing", "killed", "exits"],
)
async def test_a_child_that_does_not_read_is_one_line(
    tmp_path: Path, scratch: Path, worker: WorkerThread, monkeypatch: pytest.MonkeyPatch, child: str, reason: str
) -> None:
    """With the file and what to do; no process stays, and nothing on disk."""
    if "did not answer" in reason:
        monkeypatch.setattr("nodeagent.edge.kube.credentials.LOAD_SECONDS", 0.5)
    before = list_children()
    path = write(tmp_path / "config", token="abc")
    with pytest.raises(CredentialsInvalid, match=rf"credentials in {path}: .*{reason}.*: mend them or set kubernetes"):
        await Kubeconfig(path, child=(sys.executable, "-c", child)).load(worker)
    assert list_children() <= before
    assert list_files(scratch) == []


async def test_a_program_that_hangs_ends_with_the_child(tmp_path: Path, scratch: Path, worker: WorkerThread) -> None:
    """The agent is told to stop while a program is asked for a token: both are gone, and nothing is on disk."""
    program = write_program(
        tmp_path / "give", f"echo $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid", "exec sleep 3600"
    )
    kubeconfig = Kubeconfig(write(tmp_path / "config", exec=program))
    before = list_children()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kubeconfig.load, worker)
        await wait_until((tmp_path / "pid").exists)
        tasks.cancel_scope.cancel()
    assert list_children() <= before
    assert list_files(scratch) == []
    stat = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    await wait_until(lambda: not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z")


async def test_the_child_ends_with_the_agent(tmp_path: Path, scratch: Path, worker: WorkerThread) -> None:
    """An agent that is killed takes it along; the next reading removes the directory that was left, and no other's."""
    program = write_program(
        tmp_path / "give", f"echo $PPID > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid", "exec sleep 30"
    )
    path = write(tmp_path / "config", exec=program)
    script = (
        "import anyio, pathlib\n"
        "from nodeagent.core.children.worker_thread import WorkerThread\n"
        "from nodeagent.edge.kube.credentials import Kubeconfig\n"
        f"anyio.run(Kubeconfig(pathlib.Path({str(path)!r})).load, WorkerThread('test'))\n"
    )
    environment = {**os.environ, "TMPDIR": str(scratch)}
    agent = await anyio.open_process([sys.executable, "-c", script], start_new_session=True, env=environment)
    try:
        await wait_until((tmp_path / "pid").exists)
    finally:
        agent.kill()
        await agent.wait()
    stat = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    await wait_until(lambda: not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z")
    (left,) = list_files(scratch)
    (left / "key").touch()
    (young := scratch / f"{left.name}-2").mkdir()
    os.utime(left, (0, 0))
    await Kubeconfig(write(tmp_path / "config", token="abc")).load(worker)
    assert list_files(scratch) == [young]


async def test_what_has_not_changed_is_read_by_no_child(tmp_path: Path, worker: WorkerThread) -> None:
    """A look at the files is enough; one that a kubeconfig names counts as the kubeconfig does."""
    (tmp_path / "token").write_text("first")
    kubeconfig = Kubeconfig(write(tmp_path / "config", tokenFile="token"))
    first = await kubeconfig.load(worker)
    kubeconfig._child = ("/no/child",)
    assert await kubeconfig.load(worker) is first
    assert await kubeconfig.load(worker, is_refused=True) is first, (
        "a token that a file says is no other when asked again"
    )
    (tmp_path / "token").write_text("other")
    with pytest.raises(CredentialsInvalid, match="could not be started"):
        await kubeconfig.load(worker)
    kubeconfig._child = CHILD
    assert (await kubeconfig.load(worker)).authorization == "Bearer other"


async def test_a_program_is_asked_again_when_its_token_is_refused_or_ends(
    tmp_path: Path, worker: WorkerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "runs"
    kubeconfig = Kubeconfig(write(tmp_path / "config", exec=write_program(tmp_path / "give", *give("made", runs))))
    assert (await kubeconfig.load(worker)).authorization == "Bearer made"
    await kubeconfig.load(worker)
    assert count(runs) == 1
    await kubeconfig.load(worker, is_refused=True)
    assert count(runs) == 2
    monkeypatch.setattr("nodeagent.edge.kube.credentials._find_renewal", lambda _: 0.0)
    await kubeconfig.load(worker)
    assert count(runs) == 3


async def test_a_kubeconfig_that_changes_leads_to_another_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the agent runs, without a refusal: requests go to the new one, and so does a watch of the old one."""
    monkeypatch.setattr("nodeagent.edge.kube.client.RENEW_SECONDS", 0.0)
    async with FakeApiServer().running() as old, FakeApiServer().running() as new:
        path = old.write_kubeconfig(tmp_path / "config")
        client = KubeClient(Kubeconfig(path), lambda: EAGER)
        await client.request("GET", NODE_PATH, attempted="ask")
        new.write_kubeconfig(path)
        await client.request("GET", NODE_PATH, attempted="ask")
        assert (len(old.requests), len(new.requests)) == (1, 1)
        await client.aclose()


async def test_nobody_waits_while_credentials_are_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One request waits for a child that reads them; the others go by what still holds."""
    async with FakeApiServer().running() as server:
        path = server.write_kubeconfig(tmp_path / "config")
        kubeconfig = Kubeconfig(path)
        client = KubeClient(kubeconfig, lambda: EAGER)
        await client.request("GET", NODE_PATH, attempted="begin")
        monkeypatch.setattr("nodeagent.edge.kube.client.RENEW_SECONDS", 0.0)
        path.write_text(path.read_text() + "\n")
        kubeconfig._child = (sys.executable, "-c", "import time; time.sleep(3600)")
        before = list_children()
        async with anyio.create_task_group() as tasks:

            async def renew() -> None:
                await client.request("GET", NODE_PATH, attempted="renew")

            tasks.start_soon(renew)
            await wait_until(lambda: bool(list_children() - before))
            monkeypatch.setattr("nodeagent.edge.kube.client.RENEW_SECONDS", 60.0)
            await client.request("GET", NODE_PATH, attempted="go on")
            for pid in list_children() - before:
                os.kill(pid, signal.SIGKILL)
        assert len(server.requests) == 3
        await client.aclose()
