"""A web configuration that cannot be kept stops the agent before it has opened anything."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeagent.app.endpoints import open_endpoints
from nodeagent.config.kinds import Address
from nodeagent.config.schema import Settings
from nodeagent.edge.http.errors import WebConfigInvalid
from tests.component.http.certificates import Authority


def make_settings(directory: Path, web_config: Path) -> Settings:
    settings = Settings()
    return replace(
        settings,
        http=replace(settings.http, listen=Address("127.0.0.1", 0), web_config_file=web_config),
        node=replace(settings.node, state_dir=directory / "state", run_dir=directory / "run"),
    )


def test_a_wrong_web_configuration_leaves_nothing_open(tmp_path: Path) -> None:
    """Never plain text instead of what was asked for, and no directory, lock or socket left behind."""
    file = tmp_path / "web.yaml"
    file.write_text("basic_auth_users: {prometheus: secret}\n")
    with pytest.raises(WebConfigInvalid, match="no bcrypt hash"), open_endpoints(make_settings(tmp_path, file)):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["web.yaml"]


def test_people_are_pointed_to_https_where_it_is_spoken(tmp_path: Path) -> None:
    """The address that the log names is the one that answers."""
    certificate = Authority(tmp_path).issue("node")
    file = tmp_path / "web.yaml"
    file.write_text(f"tls_server_config: {{cert_file: {certificate.cert}, key_file: {certificate.key}}}\n")
    with open_endpoints(make_settings(tmp_path, file)) as listeners:
        assert listeners.url.startswith("https://127.0.0.1:")
