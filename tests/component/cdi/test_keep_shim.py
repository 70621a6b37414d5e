"""The runtime shim, kept by the cdi component beside its specifications; on virtual time, with fakes around it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from nodeagent.components.cdi.component import REVIEW_SECONDS, Cdi
from nodeagent.components.cdi.keep_shim import ShimUpdater, plan_policy
from nodeagent.config.schema import Settings
from nodeagent.config.sections.shim import ShimSettings
from nodeagent.model.driver import DriverPhase, DriverState
from nodeagent.model.errors import NodeagentError
from nodeagent.model.events import ConfigurationReloaded
from nodeagent.model.shim import EVERY_CAPABILITY, Capability, OnMissing, ShimEnv, ShimPolicy, ShimTable
from tests.component.cdi.test_cdi import NVIDIAS, Surroundings
from tests.support.samples import make_inventory

pytestmark = pytest.mark.virtual_time
PROGRAM, DIRECTORY = Path("/var/lib/nodeagent/nodeagent-oci-shim"), Path("/var/lib/nodeagent/shim")


class FakeShimHost:
    """A host on which a shim lies."""

    def __init__(self) -> None:
        self.programs: dict[Path, tuple[Path, ...]] = {}
        self.table: tuple[Path, ShimTable, OnMissing] | None = None
        self.tables: list[ShimTable] = []
        self.marks = (("/boot", "1"),)
        self.broken = ""

    async def install(self, program: Path, names: Sequence[Path] = ()) -> bool:
        await self._work()
        is_new = self.programs.get(program) != tuple(names)
        self.programs[program] = tuple(names)
        return is_new

    async def read_marks(self) -> tuple[tuple[str, str], ...]:
        await self._work()
        return self.marks

    async def write(self, directory: Path, table: ShimTable, on_missing: OnMissing) -> bool:
        await self._work()
        self.tables.append(table)
        is_new = self.table != (directory, table, on_missing)
        self.table = (directory, table, on_missing)
        return is_new

    async def remove(self, directory: Path) -> bool:
        await self._work()
        was_there, self.table = self.table is not None, None
        return was_there

    async def _work(self) -> None:
        await anyio.lowlevel.checkpoint()
        if self.broken:
            raise NodeagentError(self.broken)


class Node(Surroundings):
    """The component with a shim to keep."""

    def __init__(self, **shim: Any) -> None:
        super().__init__(hooks="none")
        self.shim = FakeShimHost()
        self.switch(is_on=True, **shim)

    def switch(self, *, is_on: bool, **shim: Any) -> None:
        now = self.live.now
        settings = replace(now, runtime=replace(now.runtime, shim=is_on), shim=replace(now.shim, **shim))
        self.live.replace(settings)
        self.bus.publish_fact(ConfigurationReloaded(changed=("shim",)), source="test")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        keeper = ShimUpdater(self.live, self.shim)
        cdi = Cdi(
            self.bus,
            self.conditions,
            self.live,
            self.driver,
            self.directories,
            hook=self.hook,
            shim=keeper,
            handle=self.handle,
        )
        async with anyio.create_task_group() as tasks:
            await tasks.start(lambda *, task_status: cdi.run(task_status=task_status))
            yield
            tasks.cancel_scope.cancel()


def list_names(table: ShimTable, kind: str) -> set[str]:
    return {name for device in table.devices if device.kind == kind for name in device.names}


async def test_program_and_table_are_in_place_with_the_specifications() -> None:
    """Devices under their names, what the driver is, what makes it stale; and the state names the program."""
    node = Node(on_missing="pass")
    node.bus.publish_state(DriverState(phase=DriverPhase.READY, cuda_version=(13, 0)), source="test")
    node.bus.publish_state(make_inventory(2), source="test")
    async with node.running():
        assert node.shim.programs == {PROGRAM: ()}
        assert node.shim.table is not None
        directory, table, on_missing = node.shim.table
        assert (directory, on_missing) == (DIRECTORY, "pass")
        assert {"0", "1"} <= list_names(table, "gpu")
        assert {"nvidia.com/gpu=0", "management.nvidia.com/gpu=all"} <= list_names(table, "cdi")
        assert (table.cuda, table.driver, table.fresh) == ("13.0", node.driver.files.version, (("/boot", "1"),))
        assert (node.state.shim, node.codes) == (str(PROGRAM), [])


async def test_the_table_knows_the_public_kind_whoever_defines_it() -> None:
    """What other files say is for those who read files."""
    node = Node()
    node.directories.contents["/var/run/cdi/nvidia.yaml"] = NVIDIAS
    node.show()
    async with node.running():
        assert node.shim.table is not None
        assert "nvidia.com/gpu=1" in list_names(node.shim.table[1], "cdi")


async def test_the_table_follows_gpus_settings_and_marks_and_is_else_the_same() -> None:
    """An equal one is the very same one, so that nothing is written for it."""
    node = Node()
    node.show()
    async with node.running():
        await anyio.sleep(REVIEW_SECONDS + 1)
        assert len({id(table) for table in node.shim.tables}) == 1
        node.show(make_inventory(1, generation=2))
        await anyio.sleep(1)
        assert node.shim.table is not None
        assert "1" not in list_names(node.shim.table[1], "gpu")
        node.switch(is_on=True, mode="legacy", nvidia_name_dir=Path("/usr/local/bin"))
        await anyio.sleep(1)
        assert node.shim.tables[-1].policy.mode == "legacy"
        assert node.shim.programs[PROGRAM] == tuple(
            Path(f"/usr/local/bin/nvidia-container-runtime{end}") for end in ("", ".cdi", ".legacy")
        )
        node.shim.marks = (("/boot", "2"),)
        await anyio.sleep(REVIEW_SECONDS + 1)
        assert node.shim.tables[-1].fresh == (("/boot", "2"),)


async def test_the_table_follows_what_the_settings_add_for_containers() -> None:
    """Containers that ask by environment have what those by CDI name have."""
    node = Node()
    node.show()
    async with node.running():
        node.add(layout="usr_local_nvidia", extra_environment={"POOL": "a"})
        await anyio.sleep(1)
        (common,) = [device for device in node.shim.tables[-1].devices if device.names == ("common",)]
        entries = [entry for edits in common.edits for entry in edits]
        assert ShimEnv(wanted_by=Capability.ALWAYS, name="POOL", value="a") in entries
        (program,) = [each for each in entries if getattr(each, "path", "") == "/usr/local/nvidia/bin/nvidia-smi"]
        assert program.wanted_by == Capability.UTILITY


async def test_a_shim_that_cannot_be_kept_is_a_condition_and_the_specifications_are_written() -> None:
    """Nobody's GPUs by CDI name depend on it; it is mended by itself."""
    node = Node()
    node.shim.broken = "read-only file system"
    node.show()
    async with node.running():
        assert node.read_names() >= {"0", "1"}
        (condition,) = node.conditions.all_set()
        assert (condition.code, condition.detail) == ("shim-not-kept", "read-only file system")
        assert node.state.shim == ""
        node.shim.broken = ""
        await anyio.sleep(REVIEW_SECONDS + 1)
        assert (node.codes, node.state.shim) == ([], str(PROGRAM))


async def test_switched_off_the_table_goes_and_the_program_stays() -> None:
    """What runs was started through it, and is ended through it."""
    node = Node()
    node.show()
    async with node.running():
        node.switch(is_on=False)
        await anyio.sleep(1)
        assert node.shim.table is None
        assert PROGRAM in node.shim.programs
        assert node.state.shim == ""


async def test_switched_off_it_still_becomes_the_low_level_runtime_of_the_settings() -> None:
    """Another one would not know the containers of the first."""
    node = Node(runtimes=("/opt/crun",))
    node.show()
    async with node.running():
        node.switch(is_on=False)
        await anyio.sleep(1)
        assert node.shim.table is not None
        assert node.shim.table[1] == ShimTable(policy=ShimPolicy(runtimes=("/opt/crun",)))


def test_the_policy_is_what_the_settings_say() -> None:
    """Without any it is that of a toolkit which nobody has configured."""
    assert plan_policy(Settings().shim) == ShimPolicy()
    settings = ShimSettings(
        mode="cdi",
        accept_environment=False,
        accept_mounts=True,
        disable_require=True,
        ignore_imex=True,
        default_kind="a/b",
        capabilities=("video", "compute"),
        debug=Path("/var/log/shim.log"),
        runtimes=("/opt/crun",),
        swarm_resources=("DOCKER_RESOURCE_GPU",),
        annotation_prefixes=("a.b/",),
        management_namespaces=("gpu-operator",),
    )
    assert plan_policy(settings) == ShimPolicy(
        mode="cdi",
        accept_environment=False,
        accept_mounts=True,
        disable_require=True,
        ignore_imex=True,
        default_kind="a/b",
        supported=Capability.VIDEO | Capability.COMPUTE,
        debug="/var/log/shim.log",
        runtimes=("/opt/crun",),
        swarm=("DOCKER_RESOURCE_GPU",),
        prefixes=("a.b/",),
        namespaces=("gpu-operator",),
    )
    assert plan_policy(ShimSettings(capabilities=())).supported == Capability(0)
    assert plan_policy(ShimSettings()).supported == EVERY_CAPABILITY
