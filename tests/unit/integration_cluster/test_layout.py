"""Where a cluster lies and what it remembers."""

from pathlib import Path

import pytest

from tests.integration.cluster.errors import PathTooLong
from tests.integration.cluster.layout import (
    EPHEMERAL_PORTS_FROM,
    ROOT_VARIABLE,
    Layout,
    Ports,
    State,
    choose_free_ports,
    choose_ports,
    is_free_port,
)
from tests.integration.cluster.versions import OLDEST, VARIABLE, Versions

UNIX_SOCKET_LIMIT = 107
SHIM_SOCKET_NAME = 64


def test_checkouts_do_not_share_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two checkouts use two places, one checkout always the same for the same versions."""
    monkeypatch.delenv(ROOT_VARIABLE, raising=False)
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/tmp")
    monkeypatch.delenv(VARIABLE, raising=False)
    one, two = Layout.of_checkout(Path("/src/one")), Layout.of_checkout(Path("/src/two"))
    assert one != two
    assert one == Layout.of_checkout(Path("/src/one"))
    monkeypatch.setenv(VARIABLE, OLDEST)
    assert one != Layout.of_checkout(Path("/src/one")) == Layout.of_checkout(Path("/src/one"), OLDEST)
    assert one == Layout.of_checkout(Path("/src/one"), "")


def test_the_place_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment variable names another scratch directory."""
    monkeypatch.setenv(ROOT_VARIABLE, "/tmp/chosen")
    assert Layout.of_checkout().root == Path("/tmp/chosen")


def test_the_longest_place_has_room_for_every_socket() -> None:
    """One byte more than the limit is refused; at the limit all sockets stay within the kernel's 107 bytes."""
    with pytest.raises(PathTooLong, match="keep it within 40 bytes"):
        Layout(Path("/" + "x" * 40))
    longest = Layout(Path("/" + "x" * 39))
    assert len(f"{longest.shim_sockets}/") + SHIM_SOCKET_NAME <= UNIX_SOCKET_LIMIT
    assert len(str(longest.device_plugins / "nvidia-gpu-shared.sock")) <= UNIX_SOCKET_LIMIT
    assert len(str(longest.pod_resources_socket)) <= UNIX_SOCKET_LIMIT


def test_everything_lies_in_the_scratch_directory() -> None:
    """Removing one directory removes every file of a cluster; only the lock lies beside it."""
    layout = Layout(Path("/tmp/place"))
    assert all(each.is_relative_to(layout.root) for each in (*layout.directories(), *layout.mounts))
    assert set(layout.mounts_over_what_is_there) <= set(layout.directories())
    assert not layout.lock_file.is_relative_to(layout.root)


def test_ports_are_free_and_out_of_the_way() -> None:
    """Four different ports that nobody uses and that no outgoing connection can be given."""
    ports = choose_free_ports(4)
    assert len(set(ports)) == 4
    assert all(is_free_port(port) and port < EPHEMERAL_PORTS_FROM for port in ports)
    assert isinstance(choose_ports(), Ports)


def test_a_state_comes_back_as_written(short_dir: Path) -> None:
    """What `up` remembers is what `down` reads; no state, or half of one, is none."""
    layout = Layout(short_dir)
    assert State.read(layout) is None
    state = State(Ports(1, 2, 3, 4), Versions(kubelet="1.34", emulated="1.34"), {"vm/overcommit_memory": "0"})
    state.write(layout)
    assert State.read(layout) == state
    layout.state_file.write_text(layout.state_file.read_text()[:20])
    assert State.read(layout) is None
