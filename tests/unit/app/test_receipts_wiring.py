"""The component for receipts exists where containers get one, or have one from former settings."""

from pathlib import Path

import pytest

from nodeagent.app.services import Services
from nodeagent.app.wiring.kubelet import KubeletWiring
from nodeagent.app.wiring.receipts import ReceiptsWiring
from nodeagent.components.signals.receipts_task import Receipts
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.agent import NodeSettings
from nodeagent.config.sections.cluster import SignalsSettings
from nodeagent.core.channels.bus import Bus
from nodeagent.core.conditions import Conditions
from nodeagent.model.conditions import CATALOGUE
from nodeagent.model.nvidia import VENDOR
from tests.support.virtual_time import FakeClock


def make_services(state_dir: Path, *, receipts: bool = False) -> Services:
    clock = FakeClock()
    bus = Bus(clock)
    settings = Settings(node=NodeSettings(state_dir=state_dir), signals=SignalsSettings(receipts=receipts))
    return Services(bus, Conditions(bus, clock, CATALOGUE), clock, LiveSettings(settings))


def list_folders(state_dir: Path) -> list[str]:
    return [path.name for path in (state_dir / "receipts").iterdir()]


def test_it_is_used_where_containers_have_a_receipt(tmp_path: Path) -> None:
    """Off by default, and free then."""
    assert not ReceiptsWiring.is_used(make_services(tmp_path))
    assert ReceiptsWiring.is_used(make_services(tmp_path, receipts=True))
    (tmp_path / "receipts").mkdir()
    assert ReceiptsWiring.is_used(make_services(tmp_path))


@pytest.mark.virtual_time
async def test_folders_lie_in_the_state_directory_and_need_no_gate(tmp_path: Path) -> None:
    """A fault before the journal is read waits in the component."""
    services = make_services(tmp_path, receipts=True)
    kubelet = KubeletWiring(services, "node-1", VENDOR)
    wiring = ReceiptsWiring(services, kubelet)
    (spec,) = wiring.specs()
    assert (spec.name, spec.needs, spec.vital) == ("receipts", (), False)
    assert isinstance(spec.build(), Receipts)
    (mount,) = await wiring.folders.open_receipt("a1", (), ())
    assert mount.host_path == str(tmp_path / "receipts" / "a1")
    assert list_folders(tmp_path) == ["a1"]
    wiring.close()
    kubelet.close()
