"""The files that say whom the extender believes, as they are looked at while it runs."""

from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nodeagent.edge.http.access import Access, open_access
from nodeagent.extender.errors import SetupInvalid
from nodeagent.extender.trust.files import Certificates, KeyFile
from tests.component.http.certificates import Authority

pytestmark = pytest.mark.may_block("files, and openssl beside them")
DAY = 86400.0


class Wall:
    """A clock that is set by hand."""

    now = 0.0

    def read(self) -> float:
        return self.now


def open_tls(authority: Authority, directory: Path, days: int) -> Access:
    """What a web configuration with a certificate of this authority makes of a port."""
    mine = authority.issue("extender", days=days)
    config = directory / "web.yaml"
    config.write_text(f"tls_server_config: {{cert_file: {mine.cert}, key_file: {mine.key}}}\n")
    return open_access(config, on_error=pytest.fail)


def test_a_certificate_is_told_of_before_it_ends_and_once_it_has(tmp_path: Path) -> None:
    """Each once, in one line with what to do; one in its place is another matter."""
    authority, wall = Authority(tmp_path), Wall()
    access = open_tls(authority, tmp_path, days=100)
    certificates = Certificates(access, wall.read)
    certificates.look()
    ends = certificates.list_ends()["server"]
    said = []
    for wall.now in (ends - 31 * DAY, ends - 29 * DAY, ends - DAY, ends, ends + DAY):
        with capture_logs() as lines:
            certificates.look()
        said.append([(line["log_level"], line["event"]) for line in lines])
    assert said == [[], [("warning", "certificate_expires_soon")], [], [("error", "certificate_expired")], []]
    authority.issue("extender", days=200)
    with capture_logs() as lines:
        certificates.look()
    assert not lines
    assert certificates.list_ends()["server"] > ends + 90 * DAY


async def test_the_certificate_of_who_asked_last_is_told_of_too(tmp_path: Path) -> None:
    """The scheduler's own, which this program reads nowhere else."""
    wall = Wall()
    access = open_tls(Authority(tmp_path), tmp_path, days=1000)
    certificates = Certificates(access, wall.read)
    assert await access.check({}, {"notAfter": "Jan  5 09:34:43 2018 GMT"}) is None
    assert certificates.list_ends()["client"] == 1515144883.0
    wall.now = 1515144883.0 + DAY
    with capture_logs() as lines:
        certificates.look()
    (line,) = lines
    assert line["event"] == "certificate_expired"
    assert line["reason"] == (
        "the certificate of kube-scheduler was good until 2018-01-05 09:34 UTC, and without one no pod with parts of"
        " GPUs is placed: give it a new one (docs/extender.md#certificates)"
    )


def test_a_certificate_that_cannot_be_read_is_told_and_the_end_before_stays(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    mine = authority.issue("extender")
    config = tmp_path / "web.yaml"
    config.write_text(f"tls_server_config: {{cert_file: {mine.cert}, key_file: {mine.key}}}\n")
    certificates = Certificates(open_access(config, on_error=pytest.fail), Wall().read)
    certificates.look()
    ends = certificates.list_ends()
    assert ends["server"] > 0
    for spoil in (lambda: mine.cert.write_text("rubbish"), mine.cert.unlink):
        spoil()
        with capture_logs() as lines:
            certificates.look()
        assert [line["event"] for line in lines] == ["certificate_not_read"]
        assert certificates.list_ends() == ends


def test_without_tls_no_certificate_ends() -> None:
    """Plain HTTP has none."""
    certificates = Certificates(None, Wall().read)
    certificates.look()
    assert certificates.list_ends() == {}


def test_keys_are_read_anew_when_their_file_changes(tmp_path: Path) -> None:
    """What cannot be used is told once, and again after it was well."""
    path = tmp_path / "keys"
    path.write_text("a" * 32)
    file = KeyFile(path)
    assert file.open().keys == (b"a" * 32,)
    assert file.look() is None
    path.write_text("b" * 32)
    found = file.look()
    assert found is not None
    assert found.keys == (b"b" * 32,)
    for spoil, reason in ((path.unlink, "no such file"), (partial(path.write_text, ""), "no key")):
        spoil()
        with capture_logs() as lines:
            assert file.look() is None
            assert file.look() is None
        assert [(line["event"], reason in line["reason"]) for line in lines] == [("choice_keys_not_replaced", True)]
        path.write_text("b" * 32)
        assert file.look() is None


@pytest.mark.parametrize("content", [None, "", "short"])
def test_keys_that_are_asked_for_must_be_there(tmp_path: Path, content: str | None) -> None:
    """A server that believes everybody is worse than none."""
    path = tmp_path / "keys"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SetupInvalid, match=r"extender\.choice_keys_file .*write keys of 32 characters"):
        KeyFile(path).open()


def test_without_a_file_of_keys_that_is_said(tmp_path: Path) -> None:
    file = KeyFile(None)
    with capture_logs() as lines:
        assert file.open().keys == ()
        assert file.look() is None
    assert [line["event"] for line in lines] == ["choices_not_proved"]
