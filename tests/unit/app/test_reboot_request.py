"""A reboot is requested by one channel: a command, or the file that reboot daemons wait for."""

from pathlib import Path

from msgspec.structs import replace

from nodeagent.app.wiring.repairs import RebootRequest
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.hardware import RepairsSettings
from nodeagent.core.log.audit import Change, keeping


def make_request(root: Path, **settings: object) -> RebootRequest:
    chosen = Settings(repairs=RepairsSettings(mode="act", **settings))  # type: ignore[arg-type]
    return RebootRequest(LiveSettings(replace(chosen, node=replace(chosen.node, host_root=root))))


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
