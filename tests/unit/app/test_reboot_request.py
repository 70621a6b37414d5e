"""A reboot is requested by one channel: a command, a file, the node's annotation, or a server."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeagent.app.wiring.repairs import RebootRequest
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.hardware import RepairsSettings
from nodeagent.config.sections.repairers import RebootAnnotation, RebootWebhook
from nodeagent.core.log.audit import Change, keeping
from nodeagent.edge.http.webhook import Webhook
from nodeagent.edge.kube.errors import ApiUnreachable
from nodeagent.edge.kube.node import KubeNode
from tests.fakes.node_api import FakeNodeApi


def make_request(root: Path, node: KubeNode | None = None, **settings: object) -> RebootRequest:
    chosen = Settings(repairs=RepairsSettings(mode="act", **settings))  # type: ignore[arg-type]
    live = LiveSettings(replace(chosen, node=replace(chosen.node, host_root=root)))
    return RebootRequest(live, "node-1", node)


async def test_the_file_is_written_on_the_host_with_the_reason(tmp_path: Path) -> None:
    """Where `/var/run` is a link, as on every host."""
    (tmp_path / "var").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "var" / "run").symlink_to("/run")
    changes: list[Change] = []
    with keeping(changes.append):
        answer = await make_request(tmp_path, reboot_by="reboot_required_file").request("session 4")
    assert answer.code == 0
    assert (tmp_path / "run" / "reboot-required").read_text() == "session 4\n"
    assert [(one.action, one.detail) for one in changes] == [("request a reboot of the node", "session 4")]


async def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "var").write_text("no directory")
    answer = await make_request(tmp_path, reboot_by="reboot_required_file").request("session 4")
    assert answer.code is None
    assert "/var/run/reboot-required" in answer.said


async def test_the_command_is_run(tmp_path: Path) -> None:
    command = ("sh", "-c", f"echo asked > {tmp_path}/asked; exit 7")
    answer = await make_request(tmp_path, reboot_by="command", reboot_command=command).request("session 4")
    assert answer.code == 7
    assert (tmp_path / "asked").read_text() == "asked\n"


async def test_the_node_is_annotated_and_the_annotation_removed(tmp_path: Path) -> None:
    """With the configured value, or the reason; trouble of the API server is an answer."""
    node = FakeNodeApi()
    request = make_request(tmp_path, node, reboot_by="node_annotation")
    assert (await request.request("session 4")).code == 0
    assert node.node.annotations == {"nodeagent.io/reboot-requested": "session 4"}
    assert (await request.withdraw()).code == 0
    assert node.node.annotations == {}
    own = RebootAnnotation(key="example.com/reboot", value="now")
    request = make_request(tmp_path, node, reboot_by="node_annotation", reboot_annotation=own)
    await request.request("session 4")
    assert node.node.annotations == {"example.com/reboot": "now"}
    node.trouble = ApiUnreachable("annotate the node", "https://api", "connection refused")
    assert "connection refused" in (await request.request("session 4")).said
    nobody = await make_request(tmp_path, reboot_by="node_annotation").request("session 4")
    assert (nobody.code, nobody.said) == (None, "there is no API server to annotate the node in")


async def test_the_webhook_is_asked_and_a_server_that_does_not_answer_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit log has the server and the reason; neither path nor token."""
    posted = list[tuple[Webhook, Mapping[str, object]]]()

    async def post(webhook: Webhook, document: Mapping[str, object]) -> None:
        posted.append((webhook, document))

    settings = RebootWebhook(url="https://reboots.example.com/nodes?key=h1dden", token_file=tmp_path / "token")
    request = make_request(tmp_path, reboot_by="webhook", reboot_webhook=settings)
    changes: list[Change] = []
    with keeping(changes.append), monkeypatch.context() as patched:
        patched.setattr("nodeagent.app.wiring.repairs.post_document", post)
        assert (await request.request("session 4")).code == 0
    assert posted == [
        (
            Webhook(settings.url, settings.token_file, None, 30.0),
            {"request": "reboot", "node": "node-1", "reason": "session 4"},
        )
    ]
    assert [(one.name, one.detail, one.outcome) for one in changes] == [("reboots.example.com", "session 4", "done")]
    refused = await request.request("session 4")
    assert refused.code is None
    assert "reboots.example.com has not taken the request: [Errno 2]" in refused.said
