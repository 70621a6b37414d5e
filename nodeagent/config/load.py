"""From files, environment and flags to settings, with the origin of every value and every problem at once.

Order, weakest first: defaults, the main file, `conf.d/*.yaml` by name, the named configuration of this node (`named`),
foreign environment variables that clusters already use, `NODEAGENT_<SECTION>__<KEY>`, `--set section.key=value`.
Mappings merge key by key, lists and single values replace what is under them.
Writes no file, and changes no setting in force: an invalid configuration is an exception, not half a result.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Mapping as MappingOf
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from nodeagent.config.errors import ConfigurationInvalid, Problem
from nodeagent.config.files import ConfigText, FilesRead, list_files, read_config_file, read_config_files
from nodeagent.config.knobs import Findings, Place, RejectedError, is_absent, read_section
from nodeagent.config.named import choose_configuration
from nodeagent.config.nvidia import Translation, translate_nvidia
from nodeagent.config.rules import decide_breaches
from nodeagent.config.schema import Settings
from nodeagent.config.sources import read_environment, read_flags
from nodeagent.config.tree import DEFAULT, EMPTY, Mapping, Node, Origin, merge
from nodeagent.config.yaml_tree import parse_yaml


class Loaded(Struct, frozen=True):
    """Valid settings, with the origin of each and notices for the author."""

    settings: Settings
    origins: MappingOf[str, Origin]
    notices: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    unchosen: str = ""
    """The reason why no named configuration could be chosen, where a directory is configured."""

    def origin_of(self, path: str) -> Origin:
        """The origin of a setting: the default, a line of a file, a variable or a flag."""
        return self.origins.get(path, DEFAULT)


def load_settings(
    config_file: Path | None = None,
    *,
    environ: MappingOf[str, str],
    overrides: Sequence[str] = (),
    node_label: str = "",
    skip_forbidden: bool = False,
) -> Loaded:
    """Read all sources of settings, and judge the settings.

    Args:
        config_file: The main file; `None` for the default file, which may be missing.
        environ: The environment.
        overrides: The texts of `--set`, in order.
        node_label: The value of the node's label for a named configuration.
        skip_forbidden: Go on without default files unreadable for this user, with a notice.

    Raises:
        ConfigurationInvalid: A source has problems; the error carries every problem of every source.
    """
    files = read_config_files(config_file, skip_forbidden=skip_forbidden)
    parts = [_read_file(text) for text in files.texts]
    variables, variable_problems = read_environment(Settings, environ)
    flags, flag_problems = read_flags(overrides)
    problems = [*files.problems, *variable_problems, *flag_problems]

    def decide() -> Loaded:
        said_wrong = [*problems, *(problem for part in parts for problem in part.problems)]
        return decide_settings([*(part.tree for part in parts), *variables, *flags], said_wrong)

    loaded = decide()
    named = _find_named(loaded.settings, node_label)
    unchosen = "; ".join(named.notices)
    problems.extend(named.problems)
    parts.extend(_read_file(text) for text in named.texts)
    if named.texts or named.problems:
        loaded = decide()
    said = [*files.notices, *named.notices, *(notice for part in parts for notice in part.notices)]
    read = tuple(text.path for text in (*files.texts, *named.texts))
    return msgspec.structs.replace(loaded, notices=tuple(said), files=read, unchosen=unchosen)


def _find_named(settings: Settings, node_label: str) -> FilesRead:
    """The named configuration of the node, with precedence over the other files."""
    directory = settings.device_plugin.config_dir
    if directory is None:
        return FilesRead((), (), ())
    entries, problems = list_files(directory)
    if problems:
        return FilesRead((), problems, ())
    chosen = choose_configuration(entries, node_label, settings.device_plugin.default_config)
    if chosen.problem:
        return FilesRead((), (), (f"{directory}: {chosen.problem}",))
    texts, problems = read_config_file(directory / chosen.name)
    return FilesRead(texts, problems, ())


def decide_settings(layers: Iterable[Node], problems: Sequence[Problem] = ()) -> Loaded:
    """Lay the layers over one another, weakest first, and judge the whole.

    Raises:
        ConfigurationInvalid: There are problems, given or found; the error carries all.
    """
    tree: Node = EMPTY
    for layer in layers:
        tree = merge(tree, layer)
    findings = Findings()
    findings.problems.extend(problems)
    try:
        settings: Settings = read_section(Settings, tree, Place(findings))
    except RejectedError:
        raise ConfigurationInvalid(findings.problems) from None
    settings = _follow_root(settings, findings.origins)
    for path, message in decide_breaches(settings, findings.refused):
        findings.problems.append(Problem(_nearest(findings.origins, path), path, message))
    if findings.problems:
        raise ConfigurationInvalid(findings.problems)
    return Loaded(settings, findings.origins)


def _read_file(text: ConfigText) -> Translation:
    """One file as a tree of the agent's settings."""
    name = str(text.path)
    parsed = parse_yaml(text.text, lambda line: Origin("file", name, line))
    node = EMPTY if parsed.node is None or is_absent(parsed.node) else parsed.node
    if not isinstance(node, Mapping):
        problem = Problem(node.origin, "", "not a mapping of sections; begin with a section such as `http:`")
        return Translation(EMPTY, (*parsed.problems, problem))
    translated = translate_nvidia(node)
    return msgspec.structs.replace(translated, problems=(*parsed.problems, *translated.problems))


def _follow_root(settings: Settings, origins: MappingOf[str, Origin]) -> Settings:
    """Put the sockets about pods below a configured kubelet root; the device plugin directory stays."""
    if "kubelet.root_dir" not in origins:
        return settings
    places = {"pod_resources_socket": "pod-resources/kubelet.sock", "pods_api_socket": "pods-api/pods-api.sock"}
    root = settings.kubelet.root_dir
    moved: Any = {key: root / place for key, place in places.items() if f"kubelet.{key}" not in origins}
    return msgspec.structs.replace(settings, kubelet=msgspec.structs.replace(settings.kubelet, **moved))


def _nearest(origins: MappingOf[str, Origin], path: str) -> Origin:
    """The origin of a setting, or else of the enclosing section."""
    while path and path not in origins:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return origins.get(path, DEFAULT)
