"""NVIDIA's container toolkit: `config.toml`, read by its runtime, hook and command line."""

from typing import Final

from nodeagent.config.imports.engine import Imported, Tables, Target, read_flag, read_items, translate

SECTIONS: Final = frozenset(
    {"nvidia-container-cli", "nvidia-container-runtime", "nvidia-container-runtime-hook", "nvidia-ctk"}
)
_MODES: Final = {"auto": "auto", "jit-cdi": "auto", "cdi": "cdi", "legacy": "legacy"}
_NO_CLI: Final = "no nvidia-container-cli is run: the shim writes what it would do into the container's configuration"
_NO_HOOK: Final = "no prestart hook is run: the shim writes what it would do into the container's configuration"
_COMPAT: Final = "the CDI hook of the agent does it where cdi.hooks allows; see docs/containers.md"
_TEGRA: Final = "Tegra is not served"


def _read_mode(value: object) -> str:
    """The mode; NVIDIA's `jit-cdi`, a specification for each container, becomes auto."""
    mode = _MODES.get(str(value))
    if mode is None:
        raise ValueError(f"auto, cdi, jit-cdi or legacy is expected; {_TEGRA}")
    return mode


def _read_debug(value: object) -> object:
    return None if value == "/dev/null" else value


def _read_groups(value: object) -> str:
    """The groups; NVIDIA's switch is negative."""
    return "never" if read_flag(value) else "auto"


TABLES: Final = Tables(
    targets={
        "accept-nvidia-visible-devices-as-volume-mounts": Target("shim.accept_mounts", read_flag),
        "accept-nvidia-visible-devices-envvar-when-unprivileged": Target("shim.accept_environment", read_flag),
        "disable-require": Target("shim.disable_require", read_flag),
        "supported-driver-capabilities": Target("shim.capabilities", read_items),
        "swarm-resource": Target("shim.swarm_resources", read_items),
        "nvidia-container-cli.root": Target("driver.root"),
        "nvidia-container-runtime.debug": Target("shim.debug", _read_debug),
        "nvidia-container-runtime.runtimes": Target("shim.runtimes", read_items),
        "nvidia-container-runtime.mode": Target("shim.mode", _read_mode),
        "nvidia-container-runtime.modes.cdi.default-kind": Target("shim.default_kind"),
        "nvidia-container-runtime.modes.cdi.annotation-prefixes": Target("shim.annotation_prefixes", read_items),
        "features.ignore-imex-channel-requests": Target("shim.ignore_imex", read_flag),
        "features.no-additional-gids-for-device-nodes": Target("cdi.device_groups", _read_groups),
    },
    reasons={
        "nvidia-container-cli.load-kmods": "driver.manage_device_nodes makes the nodes; the host loads modules, or"
        " the agent with driver.load_modules",
        "nvidia-container-cli.ldconfig": "the CDI hook of the agent finds the host's ldconfig by itself",
        "nvidia-container-cli.*": _NO_CLI,
        "nvidia-container-runtime.log-level": "the shim says what is wrong, and nothing else",
        "nvidia-container-runtime.modes.cdi.spec-dirs": "the shim knows the agent's own specifications; names of other"
        " vendors are left to the container runtime, which reads its own directories",
        "nvidia-container-runtime.modes.csv.*": _TEGRA,
        "nvidia-container-runtime.modes.legacy.cuda-compat-mode": _COMPAT,
        "nvidia-container-runtime.modes.jit-cdi.nvcdi-disable-hooks": "cdi.hooks says whether hooks are run",
        "nvidia-container-runtime.modes.jit-cdi.*": "no specification is made while a container is created",
        "nvidia-container-runtime-hook.*": _NO_HOOK,
        "nvidia-ctk.*": "the agent brings its own program for hooks; cdi.hook_dir says where it lies",
        "features.allow-unknown-oci-spec-fields": "fields that are not known stay as they are, always",
        "features.allow-cuda-compat-libs-from-container": _COMPAT,
        "features.disable-cuda-compat-lib-hook": _COMPAT,
        "features.allow-ldconfig-from-container": "the host's ldconfig is run, whatever is in the image",
        "features.disable-imex-channel-creation": "the shim makes no device nodes on the host",
    },
)


def is_toolkit_file(document: object) -> bool:
    """Whether a document has a section, or a key above all sections, of the toolkit's file alone."""
    keys = document.keys() if isinstance(document, dict) else set()
    return bool(keys & SECTIONS) or bool(keys & {key for key in TABLES.targets if "." not in key})


def import_toolkit_file(document: dict[str, object]) -> Imported:
    """Import the file, and switch the shim on: a node with such a file gives GPUs by container environment."""
    found = translate(document, TABLES)
    return Imported({"runtime.shim": True, **found.settings}, found.notes)
