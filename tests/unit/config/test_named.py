"""Which named configuration a node uses."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.config.errors import ConfigurationInvalid
from nodeagent.config.load import Loaded, load_settings
from nodeagent.config.named import choose_configuration

ALL = ("..data", "..2026_01_01", "a100", "default", "h100")


@pytest.mark.parametrize(
    ("entries", "label", "default", "name"),
    [
        (ALL, "a100", "h100", "a100"),
        (ALL, "", "h100", "h100"),
        (ALL, "", None, "default"),
        (("..data", "only"), "", None, "only"),
        (("only",), "only", "other", "only"),
    ],
)
def test_label_then_default_then_the_obvious_one(
    entries: tuple[str, ...], label: str, default: str | None, name: str
) -> None:
    """The first that is given decides, and what a mounted ConfigMap hides is no configuration."""
    chosen = choose_configuration(entries, label, default)
    assert (chosen.name, chosen.problem) == (name, "")


@pytest.mark.parametrize(
    ("entries", "label", "default", "words"),
    [
        (
            ALL,
            "typo",
            "h100",
            "the node label nvidia.com/device-plugin.config asks for 'typo', there are a100, default",
        ),
        (ALL, "..data", None, "asks for '..data'"),
        (ALL, "", "typo", "device_plugin.default_config asks for 'typo'"),
        (("a", "b"), "", None, "chooses among a, b"),
        ((), "", None, "chooses among none"),
    ],
)
def test_a_slip_keeps_the_configuration_in_force(
    entries: tuple[str, ...], label: str, default: str | None, words: str
) -> None:
    """A name that is not there is told with those that are, and changes nothing."""
    chosen = choose_configuration(entries, label, default)
    assert not chosen.name
    assert words in chosen.problem


def load(directory: Path, *, label: str = "", overrides: tuple[str, ...] = ()) -> Loaded:
    """A node whose main file points to the directory of named ones beside it."""
    main = directory / "config.yaml"
    main.write_text(f"device_plugin: {{config_dir: {directory / 'named'}, mig_strategy: single}}\n")
    return load_settings(main, environ={}, overrides=overrides, node_label=label)


@pytest.fixture
def named(tmp_path: Path) -> Path:
    directory = tmp_path / "named"
    directory.mkdir()
    (directory / "default").write_text("device_plugin: {mig_strategy: mixed}\n")
    (directory / "shared").write_text(
        "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n"
    )
    return tmp_path


def test_the_named_file_lies_over_the_main_one(named: Path) -> None:
    """Its values win over the main file's, what it does not say stays, and it is named among the files."""
    loaded = load(named)
    assert loaded.settings.device_plugin.mig_strategy == "mixed"
    assert loaded.files[-1] == named / "named" / "default"
    assert str(loaded.origin_of("device_plugin.mig_strategy")) == f"{named / 'named' / 'default'}:1"


def test_the_label_chooses_and_a_flag_still_wins(named: Path) -> None:
    """A file as people have it for NVIDIA's plugin is chosen by the label; flags override it as any file."""
    loaded = load(named, label="shared", overrides=("device_plugin.mig_strategy=none",))
    assert loaded.settings.sharing.timeSlicing is not None
    assert loaded.settings.device_plugin.mig_strategy == "none"


def test_a_label_that_means_nothing_is_noticed(named: Path) -> None:
    """The files that were read without it are in force, and the reason is told."""
    loaded = load(named, label="typo")
    assert loaded.settings.device_plugin.mig_strategy == "single"
    assert any("asks for 'typo'" in notice for notice in loaded.notices)


def test_a_named_file_that_is_wrong_is_refused(named: Path) -> None:
    """Every problem in it is told, with its place."""
    (named / "named" / "default").write_text("device_plugin: {mig_strategy: some}\n")
    with pytest.raises(ConfigurationInvalid, match="named/default:1: device_plugin"):
        load(named)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.write_bytes(b"\xff"), "default:1: byte 0xff is not UTF-8"),
        (lambda path: (path.unlink(), path.symlink_to("nowhere")), "default: cannot be read"),
    ],
)
def test_a_named_file_that_cannot_be_read_is_a_problem(
    named: Path, spoil: Callable[[Path], object], words: str
) -> None:
    """The node does not quietly go without what it was given by name."""
    spoil(named / "named" / "default")
    with pytest.raises(ConfigurationInvalid, match=words):
        load(named)


def test_a_directory_that_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    """A directory that is not there is a mistake, not an empty choice."""
    with pytest.raises(ConfigurationInvalid, match="named: cannot be read"):
        load(tmp_path)
