"""Under which names the agent answers, and whom that stops."""

import pytest

from nodeagent.edge.http.hosts import AllowedHosts, is_loopback

OWN = AllowedHosts(("gpu-7.rack.example", "gpu-7"), ())
GIVEN = AllowedHosts(("gpu-7",), ("Metrics.Example.com", "*.gpu.example.com"))

KNOWN = (
    "127.0.0.1:9400",
    "127.0.0.1",
    "[::1]:9400",
    "[fe80::1%eth0]:9400",
    "10.1.2.3:9400",
    "192.0.2.7",
    "localhost:9400",
    "LOCALHOST",
    "localhost.:9400",
    "page.localhost:8080",
    "gpu-7:9400",
    "GPU-7.rack.example:9400",
    "nodeagent.gpu-system.svc:9400",
    "nodeagent.gpu-system.svc.cluster.local",
)
FOREIGN = (
    "attacker.example:9400",
    "127.0.0.1.attacker.example",
    "localhost.attacker.example",
    "gpu-7.attacker.example",
    "nodeagent.gpu-system.svc.attacker.example",
    "attacker.example:80:9400",
    "[attacker.example]:9400",
    "",
    ":9400",
    "a b",
)


@pytest.mark.parametrize("host", KNOWN)
def test_addresses_and_own_names_are_answered_over_loopback(host: str) -> None:
    """An address cannot be rebound, and neither can a name that no public DNS gives out."""
    assert OWN.refuse(host, is_local=True, needs_host=True) == ""


@pytest.mark.parametrize("host", FOREIGN)
def test_a_foreign_name_is_refused_over_loopback_and_says_what_to_do(host: str) -> None:
    """This is what a rebound page sends; names that merely contain one of ours are foreign."""
    assert "http.allowed_hosts" in OWN.refuse(host, is_local=True, needs_host=True)


@pytest.mark.parametrize("host", [*KNOWN, *FOREIGN])
def test_connections_from_elsewhere_may_use_any_name_until_somebody_says_which(host: str) -> None:
    """Prometheus may have found the node under any name its DNS has."""
    assert OWN.refuse(host, is_local=False, needs_host=True) == ""


def test_names_that_are_given_hold_for_everybody() -> None:
    for host in ("metrics.example.com", "a.gpu.example.com:9400", "b.a.GPU.example.com", "10.1.2.3", "gpu-7"):
        for is_local in (False, True):
            assert GIVEN.refuse(host, is_local=is_local, needs_host=True) == ""
    for host in ("gpu.example.com", "other.example.com", "evilgpu.example.com"):
        for is_local in (False, True):
            assert GIVEN.refuse(host, is_local=is_local, needs_host=True) != ""


def test_a_star_is_any_name() -> None:
    """For who has a proxy that keeps the name, and thinks it enough."""
    assert AllowedHosts((), ("*",)).refuse("attacker.example", is_local=True, needs_host=True) == ""


def test_a_request_without_a_name_is_refused_where_there_must_be_one() -> None:
    """HTTP/1.0 knows no Host, and no browser speaks it."""
    assert "Host" in OWN.refuse(None, is_local=False, needs_host=True)
    assert OWN.refuse(None, is_local=True, needs_host=False) == ""


def test_a_long_name_is_cut() -> None:
    """What a stranger sent is not repeated whole."""
    assert len(OWN.refuse("x" * 5000, is_local=True, needs_host=True)) < 300


@pytest.mark.parametrize(
    ("address", "is_local"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("10.0.0.1", False)],
)
def test_loopback_is_known_in_every_form(address: str, is_local: bool) -> None:
    """A listener on `::` shows IPv4 as mapped addresses."""
    assert is_loopback(address) is is_local


def test_what_is_no_address_is_not_loopback() -> None:
    """A unix socket has none."""
    assert not is_loopback("")
