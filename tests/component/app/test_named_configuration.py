"""Switching between named configurations, from the label's value to the settings in force, over restarts too."""

import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from threading import Event

import anyio
import anyio.to_thread
import pytest

from nodeagent.app.control import Control
from nodeagent.app.node_label import NAME, SEAL, Recalled, recall_label
from nodeagent.config.live import LiveSettings
from nodeagent.config.load import Loaded, load_settings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.clock import SystemClock
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.orders import OrderHandlers
from nodeagent.edge.host.files.sealed_file import SealedFile
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.errors import ControlRefused
from tests.bench.around.api_server import api_server
from tests.fakes.apiserver import NODE
from tests.support.programs.agent_process import running_agent
from tests.support.programs.command_line import run_here

SHARED = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n"
LABEL = "nvidia.com/device-plugin.config"
SECONDS_MAX = 5.0
FILES = {"plain": "{}", "shared": SHARED, "broken": "sharing: 5\n"}


@pytest.fixture
def main(tmp_path: Path) -> Path:
    """The agent's own file, with three named configurations beside it."""
    configs = tmp_path / "configs"
    configs.mkdir()
    for name, text in FILES.items():
        (configs / name).write_text(text)
    file = tmp_path / "config.yaml"
    (tmp_path / "state").mkdir()
    file.write_text(
        f"device_plugin: {{config_dir: {configs}, default_config: plain}}\n"
        f"node: {{state_dir: {tmp_path / 'state'}}}\n"
        "kubernetes: {kubeconfig: /absent}\n"
    )
    return file


@pytest.fixture
def live(main: Path) -> LiveSettings:
    """The settings as they are at the start, without a label."""
    return LiveSettings(load(main, "").settings)


def load(main: Path, node_label: str) -> Loaded:
    return load_settings(main, environ={}, node_label=node_label)


def start_again(main: Path) -> tuple[LiveSettings, Recalled]:
    """What the next agent begins with, which hears nothing of an API server."""
    loaded, recalled = recall_label(load(main, ""), partial(load, main), {})
    return LiveSettings(loaded.settings), recalled


def find_file(main: Path) -> Path:
    return main.parent / "state" / NAME


def is_shared(live: LiveSettings) -> bool:
    return live.now.sharing.timeSlicing is not None


@asynccontextmanager
async def open_control(
    main: Path,
    live: LiveSettings,
    reload_settings: Callable[[str], Loaded] | None = None,
    *,
    recalled: Recalled | None = None,
    codes: dict[str, str] | None = None,
) -> AsyncIterator[Control]:
    """`codes` gets the conditions that are set at the end."""
    clock = SystemClock()
    bus = Bus(clock)
    conditions = Conditions(bus, clock, CATALOGUE)
    control = Control(
        bus,
        conditions,
        live,
        OrderHandlers(),
        reload_settings or partial(load, main),
        recalled or Recalled(find_file(main)),
    )
    try:
        yield control
    finally:
        control.close()
        if codes is not None:
            codes.update({each.code: each.detail for each in conditions.all_set()})


async def test_a_label_puts_its_configuration_in_force(main: Path, live: LiveSettings) -> None:
    async with open_control(main, live) as control:
        assert not is_shared(live)
        assert "sharing.timeSlicing" in await control.follow_label("shared")
        await control.reload()
        assert is_shared(live)
        await control.follow_label("")
        assert not is_shared(live)


async def test_an_unknown_name_changes_nothing(main: Path, live: LiveSettings) -> None:
    """The present configuration stays, also over a reload, and the reason names those that there are."""
    async with open_control(main, live) as control:
        await control.follow_label("shared")
        with pytest.raises(ControlRefused, match=r"typo.*broken, plain, shared"):
            await control.follow_label("typo")
        await control.reload()
        assert is_shared(live)


async def test_an_invalid_configuration_changes_nothing(main: Path, live: LiveSettings) -> None:
    """What does not load is not put in force."""
    async with open_control(main, live) as control:
        before = live.now
        with pytest.raises(ControlRefused, match="sharing"):
            await control.follow_label("broken")
        assert live.now == before


async def test_a_reload_without_the_file_of_the_label_changes_nothing(main: Path, live: LiveSettings) -> None:
    """Its settings stay in force, it is said why, and the file's return is taken up by the next reload."""
    async with open_control(main, live) as control:
        await control.follow_label("shared")
        file = main.parent / "configs" / "shared"
        file.unlink()
        with pytest.raises(ControlRefused, match=r"'shared'.*broken, plain"):
            await control.reload()
        assert is_shared(live)
        file.write_text("{}")
        await control.reload()
        assert not is_shared(live)


async def test_a_reload_meanwhile_does_not_undo_a_label(main: Path, live: LiveSettings) -> None:
    """It waits until the label is followed, and then reads what that asks for."""
    begun, go_on = Event(), Event()

    def load_slowly(node_label: str) -> Loaded:
        begun.set()
        assert go_on.wait(SECONDS_MAX)
        return load(main, node_label)

    async with open_control(main, live, load_slowly) as control, anyio.create_task_group() as tasks:
        tasks.start_soon(control.follow_label, "shared")
        assert await anyio.to_thread.run_sync(begun.wait, SECONDS_MAX)
        tasks.start_soon(control.reload)
        await anyio.wait_all_tasks_blocked()
        go_on.set()
    assert is_shared(live)


async def test_the_label_is_followed_by_the_next_agent_too(main: Path, live: LiveSettings) -> None:
    """Before it hears of the API server; what was refused is not remembered, and a label that is gone no longer."""
    async with open_control(main, live) as control:
        await control.follow_label("shared")
        with pytest.raises(ControlRefused, match="typo"):
            await control.follow_label("typo")
    again, recalled = await anyio.to_thread.run_sync(start_again, main)
    assert is_shared(again)
    codes: dict[str, str] = {}
    async with open_control(main, again, recalled=recalled, codes=codes) as control:
        await control.reload()
        assert is_shared(again)
        await control.follow_label("")
    assert codes == {}
    last, recalled = await anyio.to_thread.run_sync(start_again, main)
    assert not is_shared(last)
    assert recalled == Recalled(find_file(main))


@pytest.mark.parametrize("text", [None, "sharing: 5\n"])
async def test_a_remembered_configuration_that_cannot_be_used_is_told(
    main: Path, live: LiveSettings, text: str | None
) -> None:
    """The default one serves, as without a label, until the label is heard of anew."""
    async with open_control(main, live) as control:
        await control.follow_label("shared")
    file = main.parent / "configs" / "shared"
    file.unlink()
    if text is not None:
        file.write_text(text)
    again, recalled = await anyio.to_thread.run_sync(start_again, main)
    assert not is_shared(again)
    codes: dict[str, str] = {}
    async with open_control(main, again, recalled=recalled, codes=codes) as control:
        await control.reload()
    assert set(codes) == {"named-configuration-unknown"}
    assert "shared" in codes["named-configuration-unknown"]


async def test_a_label_that_cannot_be_kept_is_told(main: Path, live: LiveSettings) -> None:
    """It is followed all the same; a file that is damaged is told of until the next label is kept."""
    codes: dict[str, str] = {}
    find_file(main).parent.rmdir()
    async with open_control(main, live, codes=codes) as control:
        await control.follow_label("shared")
    assert is_shared(live)
    assert set(codes) == {"configuration-not-remembered"}
    find_file(main).parent.mkdir()
    find_file(main).write_text("damaged")
    again, recalled = await anyio.to_thread.run_sync(start_again, main)
    before: dict[str, str] = {}
    async with open_control(main, again, recalled=recalled, codes=before):
        pass
    assert "its first line is damaged" in before["configuration-not-remembered"]
    after: dict[str, str] = {}
    async with open_control(main, again, recalled=recalled, codes=after) as control:
        await control.follow_label("shared")
    assert after == {}
    assert is_shared((await anyio.to_thread.run_sync(start_again, main))[0])


@pytest.mark.parametrize("line", ["kubernetes: {enabled: 'false'}\n", "kubernetes: {}\n", "device_plugin: {}\n"])
def test_a_label_that_nobody_can_take_away_has_no_say(main: Path, line: str) -> None:
    """Where no label is read any more, the configuration is that of a node without one."""
    SealedFile(find_file(main), *SEAL).write(b"shared")
    assert is_shared(start_again(main)[0])
    kept = [
        one for one in main.read_text().splitlines(keepends=True) if one.partition(":")[0] != line.partition(":")[0]
    ]
    main.write_text("".join([*kept, line]))
    assert not is_shared(start_again(main)[0])


@pytest.mark.long
def test_a_restart_without_the_api_server_keeps_the_configuration(main: Path, short_dir: Path) -> None:
    """A whole agent, killed while the API server is away, offers afterwards what it offered before."""
    words: tuple[str, ...] = ("--config", str(main), "--set", "gpus.source=simulated:t4", "--set", f"node.name={NODE}")
    with api_server() as api:
        kubeconfig = api.server.write_kubeconfig(short_dir / "kubeconfig")
        words = (*words, "--set", f"kubernetes.kubeconfig={kubeconfig}", "--set", "labels.hold_seconds=0")
        with running_agent(short_dir, *words) as agent:
            agent.wait_for("/api/v1/labels", '"nvidia.com/gpu.replicas":"1"')
            api.set_label(LABEL, "shared")
            agent.wait_for("/api/v1/labels", '"nvidia.com/gpu.replicas":"4"')
            agent.process.send_signal(signal.SIGKILL)
            agent.process.wait()
    with running_agent(short_dir, *words) as agent:
        assert '"nvidia.com/gpu.replicas":"4"' in agent.wait_for("/api/v1/labels", "gpu.replicas")


def test_a_person_is_shown_the_configuration_that_the_label_chose(main: Path) -> None:
    """`config show` says what an agent runs with that starts now, and which configuration of which label that is."""
    before = run_here("config", "show", "--config", str(main), "--changed")
    assert "timeSlicing" not in before[1]
    SealedFile(find_file(main), *SEAL).write(b"shared")
    code, out, err = run_here("config", "show", "--config", str(main), "--changed")
    assert code == 0
    assert "timeSlicing" in out
    assert str(main.parent / "configs/shared") in out
    assert "the configuration that the node label chose last: shared" in err
    SealedFile(find_file(main), *SEAL).write(b"broken")
    code, out, err = run_here("config", "show", "--config", str(main), "--changed")
    assert code == 0
    assert "timeSlicing" not in out
    assert "without the configuration that the node label chose last: " in err
    assert "sharing" in err
