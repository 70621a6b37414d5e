"""Which tables count, which runtimes come of them, and in which order files are read, by release of containerd."""

import pytest

from nodeagent.components.runtime.containerd_config import ContainerdConfig, arrange_imports
from nodeagent.model.runtime import ConfigFile, ConfigTree

MAIN = "/etc/containerd/config.toml"
CRI2 = 'plugins."io.containerd.grpc.v1.cri"'
CRI3 = 'plugins."io.containerd.cri.v1.runtime"'
CRUN = 'containerd.runtimes.crun.runtime_type = "io.containerd.runc.v2"'


def make_tree(main: str, **others: str) -> ConfigTree:
    files = {MAIN: main} | {f"/etc/containerd/{name.replace('__', '/')}.toml": text for name, text in others.items()}
    return ConfigTree(files=tuple(ConfigFile(path=path, content=text.encode()) for path, text in files.items()))


def read(release: tuple[int, int], main: str, **others: str) -> ContainerdConfig:
    return ContainerdConfig(release, make_tree(main, **others))


@pytest.mark.parametrize(
    ("release", "runtimes"),
    [((1, 6), {"crun"}), ((1, 7), {"crun"}), ((2, 0), {"crun", "runc"}), ((2, 4), {"crun", "runc"})],
)
def test_only_1_x_forgets_runc_for_another_runtime(release: tuple[int, int], runtimes: set[str]) -> None:
    """Its table takes the place of the built-in one; and then the default is none of them."""
    config = read(release, f"version = 2\n{CRI2}.{CRUN}\n")
    assert set(config.runtimes) == runtimes
    assert config.lacks_default is (release < (2, 0))


def test_without_a_table_runc_is_there() -> None:
    """In every release, and with whatever stands in the table's place."""
    assert set(read((1, 6), "version = 2\n").runtimes) == {"runc"}
    assert set(read((1, 6), f"version = 2\n{CRI2}.containerd.runtimes = 5\n").runtimes) == {"runc"}


def test_a_default_of_version_1_may_have_a_table_of_its_own() -> None:
    """Then no name is looked for."""
    config = read((1, 7), f"[plugins.cri.containerd.default_runtime]\nruntime_type = 'x'\n[plugins.cri]\n{CRUN}\n")
    assert not config.lacks_default


@pytest.mark.parametrize(
    "text", ["[plugins.cri]\nenable_cdi = false\n", "version = 1\n[plugins.cri]\nenable_cdi = false\n"]
)
@pytest.mark.parametrize("release", [(2, 0), (2, 1), (2, 2)])
def test_2_0_to_2_2_ignore_the_tables_of_version_1(release: tuple[int, int], text: str) -> None:
    """CDI stays on, and the remedy is named."""
    config = read(release, text)
    assert config.cdi_enabled
    assert "containerd config migrate" in config.ignored_tables


def test_2_3_migrates_each_file_by_itself() -> None:
    """Whatever the main file's version, and whatever stands in the place of a version."""
    assert not read((2, 3), "[plugins.cri]\nenable_cdi = false\n").cdi_enabled
    for version, section in ((1, "plugins.cri"), (2, CRI2), (3, CRI3), ("'x'", CRI2)):
        text = f"version = {version}\n{section}.enable_cdi = false\n"
        config = read((2, 3), "version = 3\n", **{"conf.d__a": text})
        assert (config.cdi_enabled, config.ignored_tables) == (False, ""), text
    newer = read((2, 3), "version = 2\n", a=f"version = 3\n{CRI2}.enable_cdi = false\n")
    assert newer.cdi_enabled


def test_2_4_has_no_switch_for_cdi() -> None:
    """What files say of it is an unknown key there."""
    text = f"version = 3\n{CRI3}.enable_cdi = false\n"
    assert not read((2, 3), text).cdi_enabled
    assert read((2, 4), text).cdi_enabled


@pytest.mark.parametrize(
    ("release", "main", "other", "is_mixed"),
    [
        ((2, 0), "version = 2", "version = 3", True),
        ((2, 0), "version = 3", "version = 2", True),
        ((2, 0), "version = 2", "version = 1", False),
        ((2, 0), "version = 2", "", False),
        ((1, 7), "version = 2", "version = 1", True),
        ((1, 7), "", "version = 2", True),
        ((1, 7), "oom_score = 0", "version = 2", True),
        ((1, 7), "version = 2", "version = 2", False),
        ((2, 3), "version = 2", "version = 3", False),
    ],
)
def test_before_2_3_two_versions_do_not_go_together(
    release: tuple[int, int],
    main: str,
    other: str,
    is_mixed: bool,
) -> None:
    """The tables of one of them are ignored."""
    if main or release >= (2, 0):
        assert ("same version" in read(release, main, a=other).ignored_tables) is is_mixed


def test_cri_may_be_switched_off_anywhere() -> None:
    """The file and the name are told; other plugins may be off, and nonsense is passed over."""
    assert (
        "/a.toml switches CRI off: take 'cri'"
        in read((1, 7), "version = 1", a='disabled_plugins = ["cri"]').switched_off
    )
    text = 'version = 2\ndisabled_plugins = ["io.containerd.cri.v1.images"]'
    assert "io.containerd.cri.v1.images" in read((2, 0), text).switched_off
    assert read((2, 0), 'version = 2\ndisabled_plugins = ["x"]', a="disabled_plugins = 5").switched_off == ""


@pytest.mark.parametrize(
    ("pattern", "brings"),
    [
        ("conf.d/*.toml", True),
        ("./conf.d/../conf.d/*.toml", True),
        ("/etc/containerd/conf.d/zz-nodeagent.toml", True),
        ("/etc/containerd/*.toml", False),
        ("/srv/*.toml", False),
    ],
)
def test_a_star_does_not_lead_into_directories(pattern: str, brings: bool) -> None:
    """As the daemon's own patterns do not."""
    config = read((2, 0), f'version = 2\nimports = ["{pattern}", 5]')
    assert config.imports_file("/etc/containerd/conf.d/zz-nodeagent.toml") is brings
    assert config.imports == [pattern]


def test_without_imports_nothing_is_brought_in() -> None:
    """A missing list is another thing than an empty one."""
    assert read((2, 0), "version = 2").imports is None
    assert read((2, 0), "version = 2\nimports = []").imports == []
    assert not read((2, 0), "version = 2").imports_file(MAIN)


def test_a_relative_pattern_is_told_where_it_brings_something_in() -> None:
    """In whichever file; whole paths, plain names, and what matches nothing are not."""
    assert read((1, 6), 'imports = ["*.d/x", "/etc/containerd/*.toml", "a.toml"]', a="").find_relative_import() == ""
    found = read((1, 6), 'imports = ["a.toml"]', a='imports = ["conf.d/*"]', conf_d="", **{"conf.d__b": ""})
    assert found.find_relative_import() == "/etc/containerd/a.toml imports 'conf.d/*'"


def test_files_are_arranged_as_they_are_imported() -> None:
    """By the order of the list, by name within a pattern, files of files later, and the rest last."""
    tree = make_tree(
        'imports = ["z.toml", "conf.d/*.toml"]',
        z='imports = ["deep.toml", "config.toml"]',
        deep="",
        elsewhere="",
        **{"conf.d__b": "", "conf.d__a": "imports = 5"},
    )
    names = [file.path.removeprefix("/etc/containerd/") for file in arrange_imports(tree).files]
    assert names == ["config.toml", "z.toml", "conf.d/a.toml", "conf.d/b.toml", "deep.toml", "elsewhere.toml"]
