"""The guard against places that are not a test's own."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress

import pytest

from nodeagent.cli.answers.places import find_simulations_dir
from tests.support.guards.own_places import (
    NOWHERE,
    SharedPlaceUsed,
    find_careless_start,
    find_shared_address,
    forbid_shared_places,
)

OWN = {"TMPDIR": "/tmp/own", "NODEAGENT_HTTP__LISTEN": "127.0.0.1:0"}
SIMULATIONS = find_simulations_dir({"TMPDIR": tempfile.gettempdir()})


@pytest.mark.parametrize(
    ("address", "is_shared"),
    [
        (("127.0.0.1", 9400), True),
        (("::1", 9400, 0, 0), True),
        ("/run/nodeagent/admin.sock", True),
        (str(SIMULATIONS / "1/run/admin.sock"), True),
        (("127.0.0.1", 0), False),
        ("/tmp/na-own/run/admin.sock", False),
        (b"\0abstract", False),
        ((16,), False),
    ],
)
def test_addresses_of_an_agent_are_known(address: object, *, is_shared: bool) -> None:
    """Its port on any host, and every socket in its directories or those of the person's simulations."""
    assert bool(find_shared_address(address)) == is_shared


@pytest.mark.parametrize(
    ("words", "environment", "needle"),
    [
        ((sys.executable, "-m", "nodeagent", "simulate"), {"TMPDIR": "/tmp/own"}, "http.listen"),
        (("/opt/bin/nodeagent", "run"), {}, "http.listen"),
        (("setpriv", "nodeagent", "simulate", "--set", "http.listen=127.0.0.1:0"), {}, "TMPDIR"),
        (("nodeagent", "status"), {}, "TMPDIR"),
        ((sys.executable, "-m", "nodeagent", "simulate"), OWN, ""),
        (("nodeagent", "run", "--set", "http.listen=127.0.0.1:0"), {}, ""),
        (("nodeagent", "run", "--config", "/x.yaml"), {}, ""),
        (("nodeagent", "version"), {}, ""),
        (("kubectl", "run", "simulate"), {}, ""),
    ],
)
def test_agents_that_would_take_a_shared_place_are_known(
    words: tuple[str, ...], environment: dict[str, str], needle: str
) -> None:
    """By what they are told on the command line and in the environment."""
    problem = find_careless_start(words, environment)
    assert (needle in problem) if needle else problem == ""


def use_port() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 9400))


def start_agent() -> None:
    with subprocess.Popen([sys.executable, "-m", "nodeagent", "simulate"], env={"TMPDIR": "/nowhere"}):
        pass


def use_and_swallow(use: Callable[[], None]) -> None:
    with forbid_shared_places(), suppress(Exception):
        use()


@pytest.mark.parametrize("use", [use_port, start_agent])
def test_a_use_is_refused_and_fails_the_test_that_swallows_it(use: Callable[[], None]) -> None:
    """Nothing is bound or started, and an `except Exception` on the way does not hide it."""
    with pytest.raises(SharedPlaceUsed, match=r"http\.listen|port 9400"):
        use_and_swallow(use)


def test_a_simulation_that_names_no_directory_has_none() -> None:
    """The environment that a test's children inherit leads nowhere."""
    place = find_simulations_dir(os.environ)
    assert str(place).startswith(NOWHERE)
    with pytest.raises(OSError, match="Not a directory"):
        place.parent.mkdir(parents=True)
