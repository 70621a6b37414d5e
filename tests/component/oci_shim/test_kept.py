"""What the agent keeps is what the program reads: wired as the agent wires it, on a node of files."""

import os
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeagent.app.wiring import container as shim_side
from nodeagent.config.live import LiveSettings
from nodeagent.config.load import load_settings
from nodeagent.core.children.worker_thread import WorkerThread
from nodeagent.edge.host.shim.shim_host import SHIM, HostShim
from nodeagent.edge.host.shim.table_file import write_table
from nodeagent.model.cdi import DriverFiles
from tests.component.oci_shim.support import TABLE, Shim, make_spec
from tests.support.files.driver_files import make_files
from tests.support.programs.agent_process import running_agent
from tests.support.samples import make_inventory

pytestmark = [pytest.mark.slow, pytest.mark.may_block("the program is run to its end")]


def make_real_files(count: int) -> DriverFiles:
    """A driver whose nodes are one of this machine's."""
    files = make_files(count)
    return replace(files, nodes=tuple(replace(each, host_path="/dev/null") for each in files.nodes))


async def test_a_container_gets_what_the_agent_says(
    shim: Shim, program: Path, worker: WorkerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the program where the agent put it, by NVIDIA's name for it; and no more than the settings allow."""
    monkeypatch.setattr(shim_side, "HostShim", partial(HostShim, program=replace(SHIM, built=program)))
    place = shim.place / "lib"
    words = [f"shim.dir={place}", f"shim.nvidia_name_dir={shim.place}/names", f"node.state_dir={shim.place}"]
    words += ["runtime.shim=true", "shim.capabilities=utility"]
    settings = load_settings(environ={}, overrides=words).settings
    keeper = shim_side.build_shim_updater(LiveSettings(settings), worker)
    done = await keeper.keep(make_inventory(2), make_real_files(2), None, "13.0")
    assert done.written == (str(place / "nodeagent-oci-shim"), str(place / "shim"))
    assert (await keeper.keep(make_inventory(2), make_real_files(2), None, "13.0")).written == ()
    del shim.environment["NODEAGENT_SHIM_DIR"]
    name = shim.place / "names/nvidia-container-runtime"
    given = shim.create(make_spec("NVIDIA_VISIBLE_DEVICES=1"), name=name)
    assert (given.status, given.said, "nvidia1" in given.gpus, "nvidia0" in given.gpus) == (7, "", True, False)
    refused = shim.create(make_spec("NVIDIA_VISIBLE_DEVICES=1", "NVIDIA_DRIVER_CAPABILITIES=graphics"), name=name)
    assert "unsupported capabilities found in 'graphics' (allowed 'utility')" in refused.said
    unmet = shim.create(make_spec("NVIDIA_VISIBLE_DEVICES=1", "NVIDIA_REQUIRE_CUDA=cuda>=14.0"), name=name)
    assert "unsatisfied condition: cuda>=14.0" in unmet.said


@pytest.mark.long
def test_an_agent_without_it_takes_away_what_one_with_it_has_left(short_dir: Path) -> None:
    """A table that nobody keeps is soon of another driver; what is not asked for is not put in place."""
    table = short_dir / "lib/shim"
    table.mkdir(parents=True)
    write_table(table, TABLE)
    words = ("--set", f"shim.dir={short_dir}/lib", "--set", "gpus.source=simulated:t4")
    with running_agent(short_dir, *words) as agent:
        agent.wait_until("/api/v1/state", lambda _: not os.path.lexists(table), f"{table} is still there")
    assert list((short_dir / "lib").iterdir()) == []
