"""The cdi component on virtual time, with fakes around it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec import json
from msgspec.structs import replace

from nodeagent.components.cdi.component import REVIEW_SECONDS, Cdi
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.containers import ContainersSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.core.life.handle import Handle
from nodeagent.core.life.report import Degraded
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import SpecsUnavailable
from nodeagent.model.events import CdiSpecsWritten, ConfigurationReloaded
from nodeagent.model.gpu import Inventory
from nodeagent.model.runtime import CdiState, RuntimeKind, RuntimeState
from tests.component.cdi.fakes import FakeDirectories, FakeDriverFiles, FakeHook
from tests.support.files.driver_files import make_files, make_node
from tests.support.samples import make_inventory
from tests.support.virtual_time import FakeClock

pytestmark = pytest.mark.virtual_time

OWN = "/var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json"
PUBLIC = "/var/run/cdi/nvidia.com-gpu.json"
MANAGEMENT = "/var/run/cdi/management.nvidia.com-gpu.json"
FOREIGN = "/var/run/cdi/nvidia.yaml"
NVIDIAS = b"cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: [{name: '0', containerEdits: {env: [A=b]}}]\n"
SETTLED_SECONDS = 5.0


class Surroundings:
    def __init__(self, **settings: Any) -> None:
        clock = FakeClock()
        self.bus = Bus(clock)
        self.conditions = Conditions(self.bus, clock, CATALOGUE)
        self.driver, self.directories, self.hook = FakeDriverFiles(make_files(2)), FakeDirectories(), FakeHook()
        self.handle: Handle[Cdi] = Handle(SpecsUnavailable)
        self.live = LiveSettings(Settings())
        self.configure(**settings)

    def configure(self, **settings: Any) -> None:
        self.live.replace(replace(self.live.now, cdi=replace(self.live.now.cdi, **settings)))
        self.bus.publish_fact(ConfigurationReloaded(changed=tuple(settings)), source="test")

    def add(self, **containers: Any) -> None:
        """Give containers more, as a reload does."""
        self.live.replace(replace(self.live.now, containers=ContainersSettings(**containers)))
        self.bus.publish_fact(ConfigurationReloaded(changed=("containers",)), source="test")

    def read_edits(self, path: str = OWN) -> dict[str, Any]:
        """The edits of a file for every container."""
        edits: dict[str, Any] = json.decode(self.directories.contents[path])["containerEdits"]
        return edits

    def show(
        self, inventory: Inventory | None = None, phase: DriverPhase = DriverPhase.READY, version: str = ""
    ) -> None:
        self.bus.publish_state(DriverState(phase=phase, driver_version=version), source="test")
        self.bus.publish_state(inventory or make_inventory(2), source="test")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        cdi = Cdi(
            self.bus, self.conditions, self.live, self.driver, self.directories, hook=self.hook, handle=self.handle
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: cdi.run(task_status=task_status))
            yield
            tasks.cancel_scope.cancel()

    def read_names(self, path: str = OWN) -> set[str]:
        return {device["name"] for device in json.decode(self.directories.contents[path])["devices"]}

    @property
    def state(self) -> CdiState:
        envelope = self.bus.latest(CdiState)
        assert envelope is not None
        return envelope.value

    @property
    def codes(self) -> list[str]:
        return [condition.code for condition in self.conditions.all_set()]


async def test_specifications_are_there_before_the_component_is_ready() -> None:
    """Whoever waits for it may advertise devices: their names are in the files and in the state."""
    around = Surroundings()
    around.show()
    async with around.running():
        assert {"0", "1", "all"} < around.read_names()
        assert [file.path for file in around.state.files] == [OWN, MANAGEMENT, PUBLIC]
        assert around.state.generation == 1
        assert around.codes == []


async def test_it_waits_for_a_working_driver() -> None:
    """Nothing is written about a driver that is away, and what is there stays."""
    around = Surroundings()
    around.show(phase=DriverPhase.NOT_LOADED)
    started: list[bool] = []
    async with anyio.create_task_group() as tasks:

        async def start() -> None:
            async with around.running():
                started.append(True)
                await anyio.sleep(SETTLED_SECONDS)

        tasks.start_soon(start)
        await anyio.sleep(60)
        assert (started, around.directories.contents) == ([], {})
        around.show()
        await anyio.sleep(1)
        assert started
        around.directories.meddle(OWN, None)
        around.show(phase=DriverPhase.NOT_LOADED)
        await anyio.sleep(1)
        assert OWN not in around.directories.contents


async def test_nothing_is_written_while_nothing_changes() -> None:
    """An hour of reviews costs no write."""
    around = Surroundings()
    around.show()
    async with around.running():
        written = list(around.directories.writes)
        await anyio.sleep(3600)
        assert around.directories.writes == written


async def test_a_new_inventory_is_written_at_once() -> None:
    """A GPU that vanished has no name any more, within a second."""
    around = Surroundings()
    around.show()
    async with around.running():
        around.show(make_inventory(1, generation=2))
        await anyio.sleep(1)
        assert "1" not in around.read_names()
        assert around.state.generation == 2


@pytest.mark.parametrize("content", [None, b"{}"], ids=["deleted", "changed"])
async def test_a_file_that_somebody_undid_is_written_again(content: bytes | None) -> None:
    """Within two seconds, and the bus is told."""
    around = Surroundings()
    around.show()
    async with around.running():
        before = around.directories.contents[OWN]
        with around.bus.listen(CdiSpecsWritten, client="test") as facts:
            around.directories.meddle(OWN, content)
            with anyio.fail_after(2):
                fact = (await anext(facts)).value
        assert fact.written == (OWN,)
        assert around.directories.contents[OWN] == before


async def test_the_public_kind_gives_way() -> None:
    """When another tool defines it, ours goes, no name is defined twice; when that tool leaves, ours is back."""
    around = Surroundings()
    around.show()
    async with around.running():
        around.directories.meddle(FOREIGN, NVIDIAS)
        await anyio.sleep(SETTLED_SECONDS)
        assert set(around.directories.contents) == {OWN, MANAGEMENT, FOREIGN}
        assert around.codes == []
        around.directories.meddle(FOREIGN, None)
        await anyio.sleep(SETTLED_SECONDS)
        assert set(around.directories.contents) == {OWN, MANAGEMENT, PUBLIC}


async def test_a_reload_takes_the_public_kind_away_and_back() -> None:
    """The setting in force decides at the next step."""
    around = Surroundings(public_kind=False)
    around.show()
    async with around.running():
        assert set(around.directories.contents) == {OWN}
        around.configure(public_kind=True)
        await anyio.sleep(1)
        assert set(around.directories.contents) == {OWN, MANAGEMENT, PUBLIC}


async def test_two_foreign_files_in_conflict_are_a_condition() -> None:
    """Whoever is paged reads which files to look at, until one of them is gone."""
    around = Surroundings()
    around.show()
    async with around.running():
        around.directories.meddle(FOREIGN, NVIDIAS)
        around.directories.meddle("/var/run/cdi/old.yaml", NVIDIAS)
        await anyio.sleep(SETTLED_SECONDS)
        assert around.codes == ["cdi-conflict"]
        around.directories.meddle(FOREIGN, None)
        await anyio.sleep(SETTLED_SECONDS)
        assert around.codes == []


async def test_a_missing_node_leaves_out_one_gpu_and_is_retried() -> None:
    """The others are written; when the node comes, the GPU has its names within seconds, without any event."""
    around = Surroundings()
    around.driver.files = make_files(1)
    around.show()
    async with around.running():
        assert around.read_names() == {"0", "gpu0", "all", make_inventory(1).gpus[0].uuid}
        assert around.codes == ["cdi-device-left-out"]
        assert len(around.state.left_out) == 1
        around.driver.files = make_files(2)
        await anyio.sleep(SETTLED_SECONDS)
        assert "1" in around.read_names()
        assert around.codes == []


async def test_a_driver_without_libraries_is_a_condition() -> None:
    """Device nodes alone run no CUDA program; the review finds the libraries once they are there."""
    around = Surroundings()
    around.driver.files = make_files(2, libraries=())
    around.show()
    async with around.running():
        assert around.codes == ["cdi-driver-files-missing"]
        around.driver.files = make_files(2)
        await anyio.sleep(REVIEW_SECONDS + 1)
        assert around.codes == []


async def test_libraries_of_another_version_than_the_drivers_are_a_condition() -> None:
    """NVML's word against the files' names: containers would find a CUDA that the kernel's part refuses."""
    around = Surroundings()
    around.show(version="570.26")
    async with around.running():
        assert around.codes == ["cdi-driver-version-differs"]
        around.driver.files = make_files(2, version="570.26")
        await anyio.sleep(REVIEW_SECONDS + 1)
        assert around.codes == []


async def test_a_directory_that_cannot_be_written_is_a_condition_until_it_can() -> None:
    """The component lives on, says why, and mends it by itself."""
    around = Surroundings()
    around.show()
    async with around.running():
        around.directories.broken = "read-only file system"
        around.show(make_inventory(1, generation=2))
        await anyio.sleep(SETTLED_SECONDS)
        assert around.codes == ["cdi-not-written"]
        assert around.bus.latest(Degraded, "cdi") is not None
        around.directories.broken = ""
        await anyio.sleep(SETTLED_SECONDS)
        assert around.codes == []
        assert around.bus.latest(Degraded, "cdi") is None
        assert "1" not in around.read_names()


async def test_a_hook_is_installed_before_it_is_named() -> None:
    """With hooks on, the program lies on the host first; it is put there once."""
    around = Surroundings(hooks="ldcache")
    around.show()
    async with around.running():
        (path,) = around.hook.installed
        assert str(path).encode() in around.directories.contents[OWN]
        around.configure(hooks="none")
        await anyio.sleep(1)
        assert str(path).encode() not in around.directories.contents[OWN]


async def test_the_hook_is_used_where_it_runs() -> None:
    """By itself, and no longer when it stops running; the state says which layout is in force and why."""
    around = Surroundings()
    around.show()
    async with around.running():
        (path,) = around.hook.installed
        assert str(path).encode() in around.directories.contents[OWN]
        assert (around.state.hook, around.state.no_hook_reason) == (str(path), "")
        around.hook.unfit = "the host has no ldconfig"
        await anyio.sleep(REVIEW_SECONDS + 1)
        assert b"createContainer" not in around.directories.contents[OWN]
        assert (around.state.hook, around.state.no_hook_reason) == ("", "the host has no ldconfig")
        assert around.codes == []


async def test_where_the_hook_cannot_be_put_none_is_used_unless_it_is_asked_for() -> None:
    """A host that is read only is no fault by itself; a wish that cannot be met is."""
    around = Surroundings()
    around.hook.read_only = "read-only file system"
    around.show()
    async with around.running():
        assert b"createContainer" not in around.directories.contents[OWN]
        assert (around.codes, around.state.no_hook_reason) == ([], "read-only file system")
        around.configure(hooks="ldcache")
        await anyio.sleep(1)
        assert around.codes == ["cdi-not-written"]
        around.configure(hooks="none")
        await anyio.sleep(SETTLED_SECONDS)
        assert (around.codes, around.state.no_hook_reason) == ([], "`cdi.hooks` is none")


async def test_programs_have_nvidias_names_where_that_is_wanted() -> None:
    """The files do not depend on the names, and a name that is taken is told."""
    around = Surroundings()
    around.show()
    async with around.running():
        assert around.hook.named == []
        around.configure(nvidia_name_dir=Path("/usr/local/bin"))
        await anyio.sleep(1)
        (hook,) = around.hook.installed
        assert set(around.hook.named) == {(Path("/usr/local/bin"), hook)}
        around.hook.name_taken = "another program is there"
        around.configure(hooks="none")
        await anyio.sleep(1)
        assert around.codes == ["program-names-missing"]
        assert b"createContainer" not in around.directories.contents[OWN]
        around.hook.name_taken = ""
        around.configure(hooks="none")
        await anyio.sleep(1)
        assert (around.codes, around.hook.named[-1]) == ([], (Path("/usr/local/bin"), None))


async def test_groups_are_written_when_the_runtime_is_known_to_read_them() -> None:
    """Not before; and never for the public kind, whose readers are not known."""
    around = Surroundings()
    render = make_node("/dev/dri/renderD128", mode=0o660, gid=44)
    address = make_inventory(1).gpus[0].pci.address
    around.driver.files = make_files(1, drm_names={address: ("renderD128",)})
    around.driver.files = replace(around.driver.files, nodes=(*around.driver.files.nodes, render))
    around.show(make_inventory(1))

    def read_versions() -> list[str]:
        return [json.decode(around.directories.contents[path])["cdiVersion"] for path in (OWN, PUBLIC)]

    async with around.running():
        assert read_versions() == ["0.5.0", "0.5.0"]
        runtime = RuntimeState(kind=RuntimeKind.CONTAINERD, version="2.1.4")
        around.bus.publish_state(runtime, source="test")
        await anyio.sleep(1)
        assert read_versions() == ["0.7.0", "0.5.0"]
        around.configure(device_groups="always")
        await anyio.sleep(1)
        assert read_versions() == ["0.7.0", "0.7.0"]


async def test_two_writers_who_never_agree_do_not_race() -> None:
    """Another device plugin that keeps writing our file is replaced a few times a minute, and named."""
    around = Surroundings()
    around.show()
    async with around.running():
        around.directories.writes.clear()
        for _ in range(60):
            around.directories.meddle(OWN, b"theirs")
            await anyio.sleep(1)
        assert 5 <= around.directories.writes.count("k8s.device-plugin.nvidia.com-gpu.json") <= 6
        (condition,) = around.conditions.all_set()
        assert condition.code == "cdi-not-written"
        assert OWN in condition.detail
        await anyio.sleep(90)
        assert around.directories.contents[OWN] != b"theirs"
        assert around.codes == []


async def test_a_watch_that_breaks_is_taken_up_again() -> None:
    """A directory that cannot be looked at for a while is looked at again, and what changed meanwhile is mended."""
    around = Surroundings()
    around.show()
    async with around.running():
        await anyio.sleep(SETTLED_SECONDS)
        around.directories.broken = "the directory is away"
        around.directories.meddle(OWN, None)
        await anyio.sleep(SETTLED_SECONDS)
        around.directories.broken = ""
        await anyio.sleep(SETTLED_SECONDS)
        assert around.read_names()


async def test_nobody_waits_for_names_of_gpus_that_need_not_be_there() -> None:
    """Nothing is written; what comes later is."""
    around = Surroundings()
    around.bus.publish_state(DriverState(phase=DriverPhase.NO_HARDWARE, is_needed=False), source="test")
    around.bus.publish_state(Inventory(generation=1), source="test")
    async with around.running():
        assert (around.directories.contents, around.codes) == ({}, [])
        around.show()
        await anyio.sleep(1)
        assert {"0", "1", "all"} < around.read_names()
