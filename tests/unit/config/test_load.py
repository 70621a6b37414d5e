"""Files, environment and flags together: who wins, where it came from, and every problem at once."""

from pathlib import Path

import pytest

from nodeagent.config import files
from nodeagent.config.errors import ConfigurationInvalid, Problem
from nodeagent.config.load import decide_settings, load_settings
from nodeagent.config.schema import Settings
from nodeagent.config.tree import Origin, Scalar
from tests.unit.config.helpers import HERE, load_text, problems_of


def test_nothing_said_is_the_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file, no variable, no flag: the settings are the defaults and nothing has an origin."""
    monkeypatch.setattr(files, "DEFAULT_CONFIG_FILE", tmp_path / "config.yaml")
    loaded = load_settings(environ={})
    assert loaded.settings == Settings()
    assert loaded.origins == {}
    assert (loaded.notices, loaded.files) == ((), ())


@pytest.mark.parametrize("text", ["", "# only words\n", "{}", "http:\n", "http:\n  # listen: x\n"])
def test_empty_file_is_the_defaults(tmp_path: Path, text: str) -> None:
    assert load_text(tmp_path, text).settings == Settings()


def test_stronger_source_wins_and_is_the_origin(tmp_path: Path) -> None:
    """File, drop-in, foreign variable, own variable, flag: each overrides the one before."""
    (tmp_path / "conf.d").mkdir()
    main = "node: {name: main}\nlog: {level: debug, format: json}\nhttp: {listen: 'h:1'}\n"

    def name(environ: dict[str, str], *flags: str) -> tuple[str | None, str]:
        loaded = load_text(tmp_path, main, environ=environ, overrides=flags)
        return loaded.settings.node.name, str(loaded.origin_of("node.name")).replace(f"{tmp_path}/", "")

    assert name({}) == ("main", "config.yaml:1")
    (tmp_path / "conf.d" / "a.yaml").write_text("\nnode: {name: dropin}\n")
    assert name({}) == ("dropin", "conf.d/a.yaml:2")
    assert name({"NODE_NAME": "foreign"}) == ("foreign", "env NODE_NAME")
    both = {"NODE_NAME": "foreign", "NODEAGENT_NODE__NAME": "own"}
    assert name(both) == ("own", "env NODEAGENT_NODE__NAME")
    assert name(both, "node.name=a", "node.name=flag") == ("flag", "flag --set node.name")


def test_lists_replace_and_mappings_merge(tmp_path: Path) -> None:
    """A drop-in adds a key to a map and replaces a list whole; sections keep their other keys."""
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "a.yaml").write_text("health: {xid_policy: {79: suspect}}\nlabels: {sinks: [stdout]}\n")
    main = "health: {xid_policy: {13: ignore}, clean_polls: 4}\nlabels: {sinks: [node, nfd_file]}\n"
    settings = load_text(tmp_path, main).settings
    assert settings.health.xid_policy == {"13": "ignore", "79": "suspect"}
    assert settings.health.clean_polls == 4
    assert settings.labels.sinks == ("stdout",)


def test_thousands_of_problems_are_counted(tmp_path: Path) -> None:
    """A file of another program: a person, an event and a log line get the first ones, and how many there are more."""
    told = problems_of(tmp_path, "".join(f"key-{number}: 1\n" for number in range(3000)))
    assert told[0].startswith("config.yaml:1: key-0: ")
    assert told[-1] == "config.yaml:51: and 2950 more problems; mend those above first"
    assert len("\n".join(told)) < 50_000


def test_problems_of_all_sources_are_told_at_once(tmp_path: Path) -> None:
    """Files, variables and flags each have their say before anything is refused, in reading order."""
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "a.yaml").write_text("log: {level: loud}\n")
    (tmp_path / "conf.d" / "b.yaml").write_text("log: [\n")
    lines = problems_of(
        tmp_path,
        "zzz: 1\nhttp:\n  listen: 5\n  listen: 6\n",
        environ={"NODEAGENT_GPUS__SOURCE": "amd", "NODEAGENT_X__Y": "1"},
        overrides=("node.run_dir=run", "bad"),
    )
    assert [line.split(": ")[0] for line in lines] == [
        "conf.d/a.yaml:1",
        "conf.d/b.yaml:2",
        "config.yaml:1",
        "config.yaml:3",
        "config.yaml:4",
        "env NODEAGENT_GPUS__SOURCE",
        "env NODEAGENT_X__Y",
        "flag --set 'bad'",
        "flag --set node.run_dir",
    ]


@pytest.mark.parametrize("text", ["- a\n", "hello\n", "5\n"])
def test_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    """A file begins with a section."""
    (line,) = problems_of(tmp_path, text)
    assert line == "config.yaml:1: not a mapping of sections; begin with a section such as `http:`"


def test_section_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    """A value in place of a section is named."""
    assert problems_of(tmp_path, "http: 5\n") == ["config.yaml:1: http: value '5' is refused; give a mapping of keys"]


def test_layer_that_is_no_mapping_is_refused() -> None:
    """Whoever hands in layers of their own gets the same judgement."""
    with pytest.raises(ConfigurationInvalid, match="give a mapping of keys"):
        decide_settings([Scalar("5", HERE)])


def test_kubelet_root_moves_the_sockets_about_pods_only(tmp_path: Path) -> None:
    """Each socket follows the root unless it is set; the device plugin directory is fixed in the kubelet."""
    kubelet = load_text(tmp_path, "kubelet: {root_dir: /k}").settings.kubelet
    assert kubelet.pod_resources_socket == Path("/k/pod-resources/kubelet.sock")
    assert kubelet.device_plugins_dir == Settings().kubelet.device_plugins_dir
    assert kubelet.pods_api_socket == Path("/k/pods-api/pods-api.sock")
    kubelet = load_text(tmp_path, "kubelet: {root_dir: /k, pod_resources_socket: /s}").settings.kubelet
    assert (kubelet.pod_resources_socket, kubelet.pods_api_socket) == (Path("/s"), Path("/k/pods-api/pods-api.sock"))


def test_hostile_names_stay_on_one_line(tmp_path: Path) -> None:
    """Keys from outside cannot break a line or drive a terminal, however long."""
    (line,) = problems_of(tmp_path, '"a\\nb\\e[31m": 1\n')
    assert line.isprintable()
    assert "a\\nb\\x1b[31m" in line
    assert len(str(Problem(HERE, "k" * 9000, "unknown key"))) == 2000


def test_error_text_is_all_its_problems() -> None:
    """Printing the error is all that a caller has to do."""
    problems = [Problem(Origin("flag", "--set a"), "a", "second"), Problem(Origin("file", "f", 1), "", "first")]
    assert str(ConfigurationInvalid(problems)) == "f:1: first\nflag --set a: a: second"


def test_simulated_profile_is_read_from_the_source(tmp_path: Path) -> None:
    """The profile is the source without its prefix; real hardware has none."""
    assert load_text(tmp_path, "gpus: {source: simulated:dgx-h100}").settings.gpus.simulated_profile == "dgx-h100"
    assert Settings().gpus.simulated_profile is None
