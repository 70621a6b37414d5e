"""How NVIDIA's own programs are found and fetched; nothing is fetched here."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from tests.originals import fetch
from tests.originals.fetch import Apt, CannotFetch, NoMirror, find_mirror, main
from tests.originals.packages import (
    DRIVERS,
    PINS,
    Package,
    find_driver,
    find_library,
    find_program,
    list_packages,
    read_pins,
)
from tests.support.files.cache import CACHE_VARIABLE, find_cache

CONTENT = b"a package"
PACKAGE = Package("535", "bookworm", "tool", "1-1", sha256(CONTENT).hexdigest())


class Mirror(Apt):
    """A mirror that has one version of everything, and no network."""

    def run(self, program: str, *arguments: str, cwd: Path | None = None) -> str:
        if program == "apt-cache":
            return f"Package: {arguments[-1]}\nVersion: 2-1\nDescription: x\n .\n more: words\nSHA256: {'f' * 64}\n"
        assert cwd is not None
        (cwd / "tool_1-1_amd64.deb").write_bytes(CONTENT)
        return ""


@pytest.fixture(autouse=True)
def mirror(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing outside, and an empty cache."""

    @contextmanager
    def open_apt(suite: str) -> Iterator[Apt]:
        assert suite == "bookworm"
        yield Mirror((), tmp_path)

    monkeypatch.setattr(fetch, "open_apt", open_apt)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))


def test_every_package_is_pinned_by_its_hash() -> None:
    """The daemon, its libraries, and all else of one driver come from one release."""
    for driver in DRIVERS:
        packages = list_packages(driver)
        assert {"nvidia-cuda-mps", "libnvidia-ml1", "libcuda1", "nvidia-smi"} <= {one.name for one in packages}
        assert len({one.suite for one in packages}) == 1
        assert len({one.name for one in packages}) == len(packages)
        assert all(re.fullmatch("[0-9a-f]{64}", one.sha256) for one in packages)
    assert {one.driver for one in read_pins(PINS.read_text())} == set(DRIVERS)


def test_a_pin_is_read_as_it_was_written() -> None:
    assert read_pins(f"# why\n\n{PACKAGE.render()} # because\n") == (PACKAGE,)


def test_what_nobody_has_fetched_is_not_there() -> None:
    assert find_driver("535") is None
    assert find_program("535", "nvidia-smi") is None
    assert find_library("535", "libcuda.so.1") is None


@pytest.mark.parametrize(
    ("targets", "mirror"),
    [
        ("http://a.example/debian/ bookworm\n", "http://a.example/debian/"),
        (
            "http://b.example/debian-security/ bookworm-security\nhttp://a.example/debian trixie\n",
            "http://a.example/debian",
        ),
        ("http://a.example/debian bookworm-updates\nhttps://vendor.example/node nodistro\n", None),
        ("", None),
    ],
)
def test_the_mirror_is_the_one_of_this_machine(targets: str, mirror: str | None) -> None:
    """Not that of security updates, of updates, or of a vendor."""
    assert find_mirror(targets) == mirror


def test_a_package_that_is_not_the_pinned_one_is_refused(tmp_path: Path) -> None:
    """Whatever apt thinks of it."""
    fetch._download("bookworm", (PACKAGE,), tmp_path)
    with pytest.raises(CannotFetch, match="not the pinned one"):
        fetch._download("bookworm", (Package("535", "bookworm", "tool", "1-1", "0" * 64),), tmp_path)


def test_pins_follow_the_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the comments above them."""
    pins = tmp_path / "pins"
    pins.write_text(f"# why\n{PACKAGE.render()}\n")
    monkeypatch.setattr(fetch, "PINS", pins)
    assert main(["pin"]) == 0
    assert pins.read_text() == f"# why\n535 bookworm tool 2-1 {'f' * 64}\n"


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [(NoMirror("no apt"), 0, "not fetched: no apt"), (CannotFetch("gone"), 1, "originals pin` pins that one")],
)
def test_why_nothing_was_fetched_is_said(
    error: Exception, status: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A machine without a mirror is no failure; a version that is gone is one, with what to do."""

    def refuse(driver: str) -> Path:
        raise error

    monkeypatch.setattr(fetch, "fetch_driver", refuse)
    assert main([]) == status
    assert said in "".join(capsys.readouterr())


def test_the_cache_is_the_chosen_one_within_a_test_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What was chosen when tests were collected counts, though their environment has no variable of the agent's."""
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setattr("tests.support.files.cache.CHOSEN", str(tmp_path / "chosen"))
    assert find_cache() == tmp_path / "chosen"
