"""Configuration files and command lines of the cluster's processes."""

import csv
import ipaddress
import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.integration.cluster.commands import PROCESSES
from tests.integration.cluster.layout import KUBELET_ROOT, NODE_NAME, SERVICE_RANGE, Layout, Ports
from tests.integration.cluster.making import render
from tests.integration.cluster.versions import Versions

LAYOUT = Layout(Path("/tmp/place"))
PORTS = Ports(2379, 2380, 6443, 10250)
COMMANDS = {name: command(LAYOUT, PORTS) for name, command in PROCESSES.items()}


def test_every_user_has_a_token_of_its_own() -> None:
    """The token file parses as the API server parses it: token, name, id, groups."""
    tokens = {user: f"token-of-{user}" for user in render.USERS}
    rows = list(csv.reader(render.render_tokens(tokens).splitlines()))
    assert {row[0] for row in rows} == set(tokens.values())
    assert ["token-of-node", f"system:node:{NODE_NAME}", "node", "system:nodes"] in rows


def test_clients_verify_the_server() -> None:
    """A kubeconfig names the API server on loopback and the authority that signed its certificate."""
    document = yaml.safe_load(render.render_kubeconfig(LAYOUT, PORTS, "secret"))
    assert document["clusters"][0]["cluster"] == {
        "server": "https://127.0.0.1:6443",
        "certificate-authority": "/tmp/place/certs/ca.crt",
    }
    assert document["users"][0]["user"] == {"token": "secret"}


@pytest.mark.parametrize(("containerd", "plugin"), [("", "cri.v1.runtime"), ("1.7", "grpc.v1.cri")])
def test_containerd_writes_only_below_the_scratch_directory(containerd: str, plugin: str) -> None:
    """Every absolute path in its configuration is ours, CDI is on, and its shims' sockets fit."""
    text = render.render_containerd(LAYOUT, Versions(containerd=containerd))
    runtime = tomllib.loads(text)["plugins"][f"io.containerd.{plugin}"]
    assert runtime["enable_cdi"] is True
    assert runtime["cdi_spec_dirs"] == ["/tmp/place/cdi/etc", "/tmp/place/run/cdi"]
    assert all(path.startswith("/tmp/place") for path in re.findall(r'"(/[^"]*)"', text))


def test_the_kubelet_answers_only_its_api_server() -> None:
    """It listens on loopback, takes no anonymous request, and keeps its pods below our cgroup."""
    document = yaml.safe_load(render.render_kubelet(LAYOUT, PORTS))
    assert document["address"] == "127.0.0.1"
    assert document["authentication"]["anonymous"] == {"enabled": False}
    assert document["cgroupRoot"] == "/place"
    assert document["readOnlyPort"] == 0


def test_the_network_of_pods_is_one_plugin_that_knows_the_api_server() -> None:
    """Of a version that never asks for its status; it is told where the API server's cluster address leads."""
    document = json.loads(render.render_cni(LAYOUT, PORTS))
    (plugin,) = document["plugins"]
    assert (document["cniVersion"], plugin["api"]) == ("1.0.0", PORTS.api)
    assert ipaddress.ip_address(plugin["service"][0]) in ipaddress.ip_network(SERVICE_RANGE)


def test_the_node_name_leads_to_loopback() -> None:
    """The API server reaches the kubelet by name."""
    assert render.render_hosts().split() == ["127.0.0.1", "localhost", NODE_NAME]


def test_no_command_listens_beyond_loopback() -> None:
    """Every address on a command line is loopback's."""
    addresses = re.findall(r"\b\d+\.\d+\.\d+\.\d+\b", " ".join(word for words in COMMANDS.values() for word in words))
    assert set(addresses) == {"127.0.0.1", "10.0.0.0"}  # the latter is the range of service addresses


def test_no_command_names_a_place_outside() -> None:
    """Every path on a command line is in the scratch directory, but for the kubelet's root, which is mounted there."""
    paths = {
        path for words in COMMANDS.values() for path in re.findall(r"(?:^|=)(/.*)", "\n".join(words), re.MULTILINE)
    }
    assert {path for path in paths if not path.startswith("/tmp/place/")} == {str(KUBELET_ROOT)}
    assert KUBELET_ROOT.parent in LAYOUT.mounts.values()
