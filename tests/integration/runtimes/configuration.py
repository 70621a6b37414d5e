"""What a configuration of the matrix is, and the pieces that many of them are made of."""

import dataclasses
from collections.abc import Mapping
from typing import Final

Release = tuple[int, int]
OLDEST: Final = (1, 6)
NEWEST: Final = (9, 9)
MAIN: Final = "config.toml"
CRI1: Final = "[plugins.cri"
CRI2: Final = '[plugins."io.containerd.grpc.v1.cri"'
CRI3: Final = "[plugins.'io.containerd.cri.v1.runtime'"
IMAGES_ID: Final = "io.containerd.cri.v1.images"


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """The releases that must be refused, and a word of the reason."""

    first: Release
    last: Release
    word: str


@dataclasses.dataclass(frozen=True, slots=True)
class Configuration:
    """One node's files, below the directory of the main file."""

    name: str
    files: Mapping[str, str]
    wants: str
    """`cdi`; `class`, which asks for the runtime class beside it; `shim`, whoever made that; `default`, for all too."""
    refusals: tuple[Refusal, ...] = ()

    def find_refusal(self, release: Release) -> str:
        """The word that must be in the refusal; empty where there must be none."""
        return next((each.word for each in self.refusals if each.first <= release <= each.last), "")


NO_CDI: Final = Refusal(OLDEST, (1, 6), "knows no CDI")
TOO_NEW: Final = Refusal(OLDEST, (1, 7), "reads up to 2")
TOO_NEW_4: Final = Refusal(OLDEST, (2, 2), "reads up to")
IGNORED: Final = Refusal((2, 0), (2, 2), "containerd config migrate")
MIXED: Final = Refusal((2, 0), (2, 2), "same version")
NO_DEFAULT_1: Final = Refusal(OLDEST, (1, 7), "default runtime")


def always(word: str) -> Refusal:
    return Refusal(OLDEST, NEWEST, word)


def give(name: str, text: str, wants: str, *refusals: Refusal, **more: str) -> Configuration:
    """One with a main file, and further files by their names, in which `__` stands for a slash."""
    files = {MAIN: text} | {f"{key.replace('__', '/')}.toml": value for key, value in more.items()}
    return Configuration(name, files, wants, (*refusals, NO_CDI) if wants == "cdi" else refusals)


def lines(*each: str) -> str:
    return "".join(f"{line}\n" for line in each)


def runc(cri: str, options: str = "SystemdCgroup = true", name: str = "runc") -> str:
    """The entry of one runtime of runc's kind."""
    at = f"{cri}.containerd.runtimes.{name}"
    return lines(f"{at}]", '  runtime_type = "io.containerd.runc.v2"', f"  {at}.options]", f"    {options}")


def full(version: int, cri: str, more: str = "", default: str = "runc") -> str:
    """What an administrator's file usually says."""
    own = lines(f"version = {version}", f"{cri}]", "  max_container_log_line_size = 65536")
    return f'{own}{more}{cri}.containerd]\n  default_runtime_name = "{default}"\n{runc(cri)}'


OFF: Final = "  enable_cdi = false\n"
ON: Final = "  enable_cdi = true\n"
KATA: Final = '.containerd.runtimes.kata]\n  runtime_type = "io.containerd.kata.v2"\n'
CRUN: Final = 'BinaryName = "/usr/bin/crun"'
TOOLKIT: Final = 'BinaryName = "/usr/local/nvidia/toolkit/nvidia-container-runtime"'
V2: Final = full(2, CRI2)
V3: Final = full(3, CRI3)
CRUN_ALONE: Final = f'version = 2\n{CRI2}.containerd]\n  default_runtime_name = "crun"\n' + runc(CRI2, CRUN, "crun")
SHORT2: Final = lines("version = 2", f"{CRI2}]", "  max_container_log_line_size = 4096")
DOTTED2: Final = 'plugins."io.containerd.grpc.v1.cri"'
BARE2: Final = V2.removeprefix("version = 2\n")
SERVER_3: Final = lines(
    f"[plugins.'{IMAGES_ID}']",
    "  max_concurrent_downloads = 5",
    "[plugins.'io.containerd.grpc.v1.cri']",
    '  stream_server_port = "10011"',
)
SERVER_4: Final = lines("[plugins.'io.containerd.server.v1.metrics']", '  address = "127.0.0.1:10258"')
REGISTRY2: Final = lines(
    f"{CRI2}.registry]", '  config_path = "/etc/certs.d"', f"{CRI2}.registry.mirrors.a]", '  endpoint = ["https://a"]'
)
