"""Tencent's gpu-manager: its options, as on its command line, in a unit or in the manifest's DaemonSet."""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Final, cast

from nodeagent.config.imports.engine import (
    UNSAID,
    Imported,
    NamedFile,
    Tables,
    Target,
    prefix,
    read_flag,
    read_options,
    translate,
)
from nodeagent.model.labels import GPU_MODEL_LABEL
from nodeagent.model.nvidia import GPU_NODE

SOCKET: Final = "/var/run/gpu-manager.sock"
_PORT: Final = "5678"
_OWN_OPTIONS: Final = frozenset(
    {"share-mode", "virtual-manager-path", "volume-config", "extra-config", "query-port", "query-addr"}
)
"""Options of no other program: each of them tells whose command line a text is."""
_VARIABLE: Final = re.compile(r"([A-Za-z_]\w*=)+(?=-)")
_EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 # the address that the start script in gpu-manager's image gives it
_DEFAULT: Final = "default"
_EXTRA_DEVICES: Final = "containers.extra_devices"
_NO_DEVICES: Final = (
    "args.extra-config: containers get none of its devices, unless the file or the ConfigMap with it is imported too"
)
_HELD: Final = "every container with a part is held to it by the vGPU library"


def _read_labels(value: object) -> dict[str, str]:
    """The labels of `k=v,k=v` with a value; the model's is found by the agent itself."""
    pairs = (pair.partition("=") for pair in str(value).split(",") if pair)
    return {key.strip(): text.strip() for key, _, text in pairs if text.strip() and key.strip() != GPU_MODEL_LABEL}


def _read_seconds(value: object) -> float:
    return float(str(value).removesuffix("s"))


def _read_static(value: object) -> object:
    return _read_labels(value) or UNSAID


def _read_path(value: object) -> object:
    """A path; one that the shell or Kubernetes would fill in says nothing."""
    return UNSAID if "$" in str(value) else value


def _read_share_mode(value: object) -> object:
    if not read_flag(value):
        raise ValueError(f"parts are always given here, and {_HELD}; fractions.enabled: false gives whole GPUs alone")
    return UNSAID


TABLES: Final = Tables(
    targets=prefix(
        "args",
        {
            "container-runtime-endpoint": Target("runtime.socket", lambda value: str(value).removeprefix("unix://")),
            "device-plugin-path": Target("kubelet.device_plugins_dir", _read_path),
            "kubeconfig": Target("kubernetes.kubeconfig", _read_path),
            "node-labels": Target("labels.static", _read_static),
            "sample-period": Target("inventory.sample_seconds", _read_seconds),
            "share-mode": Target("fractions.enabled", _read_share_mode),
        },
    ),
    reasons={
        "args.driver": "GPUs of NVIDIA are found by themselves; parts of others come from a divisible class of devices",
        "args.hostname-override": "the node's name comes from NODE_NAME, which the chart sets; elsewhere set node.name",
        "args.virtual-manager-path": "a container's limits are a file that is there before it starts",
        "args.volume-config": "the container runtime mounts the driver's files by CDI",
        "args.checkpoint-path": "the journal is in node.state_dir; drain the node before the move",
        "args.allocation-check-period": "what has ended is seen within seconds",
        "args.cgroup-driver": "found by itself",
        "args.runtime-request-timeout": "the runtime has five seconds",
        "args.wait-timeout": "a start waits for what it needs, and says so",
        "args.incluster-mode": "an agent in a pod uses the pod's account",
        "args.standalone": "kubernetes.enabled: false is an agent without an API server",
        "args.docker-endpoint": "runtime.socket names the runtime",
        **dict.fromkeys(("args.v", "args.logtostderr", "args.log-dir", "env.LOG_LEVEL"), "log.level says how much"),
    },
)


def is_gpu_manager_text(text: str) -> bool:
    """Whether a text is a command line, a unit or a file of variables with options of gpu-manager."""
    return any(_OWN_OPTIONS & read_options(words).keys() for words in _split(text))


def import_gpu_manager_text(text: str) -> Imported:
    """Import the options of a command line, a unit or a file of variables."""
    return import_gpu_manager([word for words in _split(text) for word in words], {})


def import_gpu_manager(words: list[str], variables: Mapping[str, str], *, is_in_pod: bool = False) -> Imported:
    """Import options and variables; parts are switched on with what gpu-manager does by itself.

    Args:
        words: The options.
        variables: Environment variables; the image's start script adds the options of EXTRA_FLAGS.
        is_in_pod: Whether the start script in gpu-manager's image starts it.
    """
    words = [*words, *shlex.split(variables.get("EXTRA_FLAGS", ""))]
    options = {name: value for name, value in read_options(words).items() if name != value}
    host = options.pop("query-addr", _EVERYWHERE if is_in_pod else "127.0.0.1").replace("localhost", "127.0.0.1")
    extra_config = options.pop("extra-config", "")
    port = options.pop("query-port", _PORT)
    left = {name: value for name, value in variables.items() if name != "EXTRA_FLAGS"}
    found = translate({"args": [f"--{name}={value}" for name, value in options.items()], "env": _list(left)}, TABLES)
    settings: dict[str, object] = {
        "fractions.enabled": True,
        "fractions.enforcement": "library",
        "fractions.limit_compute": True,
        "fractions.usage_listen": f"{host}:{port}",
        "fractions.usage_socket": SOCKET,
        "doors.rules": [{"gpus": ["all"], "door": "fractions"}],
    }
    if GPU_MODEL_LABEL in options.get("node-labels", ""):
        settings["labels.compatibility"] = ["gpu_manager"]
    files = (NamedFile(extra_config, _EXTRA_DEVICES, _NO_DEVICES, is_in_pod),) if extra_config else ()
    return Imported({**settings, **found.settings}, found.notes, files)


def is_extra_config(document: Mapping[str, object]) -> bool:
    """Whether a document is the file of `--extra-config`: lists of device nodes by name, one of them `default`."""
    return _DEFAULT in document and all(
        isinstance(entry, dict) and entry.keys() <= {"devices"} and isinstance(entry.get("devices", []), list)
        for entry in document.values()
    )


def import_extra_config(document: Mapping[str, object]) -> Imported:
    """Import the file of `--extra-config`, of which gpu-manager itself uses the entry `default` alone."""
    default = cast("Mapping[str, list[object]]", document[_DEFAULT])
    paths = list(dict.fromkeys(map(str, default.get("devices", ()))))
    own = [path for path in paths if GPU_NODE.match(path)]
    odd = [path for path in paths if not path.startswith("/")]
    notes = [
        *(
            f"{name}.devices: gpu-manager gives the devices of `{_DEFAULT}` alone"
            for name in document
            if name != _DEFAULT
        ),
        *(f"{_DEFAULT}.devices: {path}: containers are given it together with their GPUs" for path in own),
        *(f"{_DEFAULT}.devices: {path!r}: no absolute path" for path in odd),
    ]
    devices = [{"host": path, "permissions": "rwm"} for path in paths if path not in (*own, *odd)]
    return Imported({_EXTRA_DEVICES: devices}, tuple(notes))


def _list(variables: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in variables.items()]


def _split(text: str) -> Iterator[list[str]]:
    """The options of each line, from the first on; also of variables whose values are options."""
    for line in text.replace("\\\n", " ").splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        spread = [inner for word in words for inner in _spread(word)]
        first = next((number for number, word in enumerate(spread) if word.startswith("-")), len(spread))
        if spread[first:]:
            yield spread[first:]


def _spread(word: str) -> list[str]:
    """The words of `NAME=--option …`, as units and files of variables have them; any other word as it is."""
    variable = _VARIABLE.match(word)
    return word[variable.end() :].split() if variable else [word]
