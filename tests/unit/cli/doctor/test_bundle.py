"""The doctor's bundle: everything that helps, and no secret leaves the node."""

import tarfile
from pathlib import Path

import pytest
from msgspec import json
from msgspec.structs import replace

from nodeagent.cli.doctor.bundle import redact, write_bundle
from nodeagent.cli.doctor.checks import run_checks
from nodeagent.config.load import load_settings
from tests.unit.cli.doctor.healthy_node import HEALTHY


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"api_token": "abc", "x": 1}', b'{"api_token": "***", "x": 1}'),
        (b"Authorization: Bearer abc.def\nnext", b"Authorization: Bearer ***\nnext"),
        (b"password=hunter2; y", b"password=***; y"),
        (b"-----BEGIN RSA PRIVATE KEY-----\nxx\n-----END RSA PRIVATE KEY-----", b"***"),
        (b'{"secret":null}', b'{"secret":null}'),
        (b"nothing of the kind", b"nothing of the kind"),
    ],
)
def test_secrets_are_taken_out(before: bytes, after: bytes) -> None:
    """What looks like a secret is replaced, what stands round it is left, and JSON stays JSON."""
    assert redact(before) == after


def test_a_bundle_has_everything_and_no_secret(tmp_path: Path) -> None:
    """One private file with checks, settings, state and logs, also where no agent answers."""
    state = tmp_path / "state"
    (state / "inner").mkdir(parents=True)
    (state / "journal").write_bytes(b"password=hunter2\n")
    overrides = [f"node.state_dir={state}", f"node.run_dir={tmp_path}", "http.listen=127.0.0.1:1"]
    loaded = load_settings(environ={}, overrides=overrides)
    target = tmp_path / "b.tar.gz"
    checks = run_checks(HEALTHY)
    write_bundle(target, HEALTHY, checks, loaded, loaded.settings, {"TMPDIR": str(tmp_path)})
    assert target.stat().st_mode & 0o777 == 0o600
    with tarfile.open(target) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        journal = archive.extractfile("nodeagent-bundle/state/journal")
        assert journal is not None
        assert journal.read() == b"password=***\n"
    assert {"checks.json", "facts.json", "configuration.txt", "state.json", "log.txt", "kernel-log.txt"} <= names


PLANTED = "hunter2-planted"
FORMS = (
    '{{"api_token": "{0}"}}',
    "Authorization: Bearer {0}",
    "authorization: Basic {0}",
    "--password={0}",
    "password: {0}",
    "AWS_SECRET_ACCESS_KEY={0}",
    "client_secret = '{0}'",
    "https://somebody:{0}@registry.example/v2/",
    "-----BEGIN EC PRIVATE KEY-----\n{0}\n-----END EC PRIVATE KEY-----",
    "token: eyJhbGciOiJSUzI1NiJ9.{0}.c2ln",
    "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.{0}.c2lnbmF0dXJl",
    "client-key-data: {0}",
)


@pytest.mark.parametrize("form", FORMS)
def test_no_planted_secret_leaves_in_a_bundle(form: str, tmp_path: Path) -> None:
    """Wherever it stands, in state files, in checks or in reasons that others wrote, it is not in the archive."""
    secret = form.format(PLANTED)
    state = tmp_path / "state"
    state.mkdir()
    (state / "journal").write_text(f"before\n{secret}\nafter\n")
    overrides = [f"node.state_dir={state}", f"node.run_dir={tmp_path}", "http.listen=127.0.0.1:1"]
    loaded = load_settings(environ={}, overrides=overrides)
    facts = replace(HEALTHY, runtime=None, runtime_problem=f"it said {secret}")
    target = tmp_path / "b.tar.gz"
    write_bundle(target, facts, run_checks(facts), loaded, loaded.settings, {"TMPDIR": str(tmp_path)})
    with tarfile.open(target) as archive:
        contents = {one.name: archive.extractfile(one) for one in archive.getmembers()}
        texts = {name: file.read().decode() for name, file in contents.items() if file is not None}
    assert [name for name, text in texts.items() if PLANTED in text] == []
    assert "before\n" in texts["nodeagent-bundle/state/journal"]
    assert "after\n" in texts["nodeagent-bundle/state/journal"]
    assert json.decode(texts["nodeagent-bundle/checks.json"])
