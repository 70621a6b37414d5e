"""nodeagent called as `nvidia-container-cli`, through a link of that name: its words as words of `nodeagent cdi`.

Options before the word of the original are accepted where they change nothing of the answer, and refused otherwise.
"""

import getopt
from collections.abc import Sequence
from typing import Final

from nodeagent import __version__
from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.main import Streams, run_command_line
from nodeagent.model.nvidia import CONTAINER_CLI

_SHORT: Final = "d:knur:l:V?h"
_LONG: Final = (
    *("debug=", "load-kmods", "no-pivot", "user", "root=", "ldcache=", "no-create-imex-channels"),
    *("version", "help", "usage"),
)
_WORDS: Final = {"list": ("cdi", "files"), "info": ("cdi", "info")}
_CACHE: Final = "/etc/ld.so.cache"
VERSION: Final = f"cli-version: {__version__}\nlib-version: {__version__}\nbuild: nodeagent\n"
_USAGE: Final = f"usage: {CONTAINER_CLI} [OPTION...] info|list [ARG...]; this is nodeagent, under a name of NVIDIA's"
_CONFIGURE: Final = (
    "configure is not done by nodeagent, which leaves a container that is being created to its runtime:"
    " ask for devices by CDI names (`nodeagent cdi list`), or start the container with the runtime nodeagent-oci-shim"
)


class WordsRefused(Exception):
    """The words are none of the original's, or ask for what nodeagent does not do; the message is complete."""


def run(words: Sequence[str], streams: Streams) -> int:
    """Do as NVIDIA's program of that name, whose exit code for every failure is 1."""
    try:
        own_words = translate(words)
    except WordsRefused as error:
        print(f"{CONTAINER_CLI}: {error}", file=streams.err)
        return ExitCode.UNWELL
    if not own_words:
        streams.out.write(VERSION)
        return ExitCode.OK
    try:
        return min(run_command_line(own_words, streams), ExitCode.UNWELL)
    except SystemExit as ended:
        # argparse has said what is wrong with the words, or has shown the help.
        return ExitCode.UNWELL if ended.code else ExitCode.OK


def translate(words: Sequence[str]) -> tuple[str, ...]:
    """The words for `nodeagent`; empty where the version is asked for.

    Raises:
        WordsRefused: nodeagent cannot do what the words say.
    """
    try:
        options, rest = getopt.getopt([_without_user(word) for word in words], _SHORT, _LONG)
    except getopt.GetoptError as error:
        raise WordsRefused(f"{error}; {_USAGE}") from error
    settings: list[str] = []
    for name, value in options:
        if name in ("-V", "--version"):
            return ()
        if name in ("-?", "-h", "--help", "--usage"):
            raise WordsRefused(_USAGE)
        if name in ("-r", "--root"):
            settings += ["--set", f"driver.root={value}"]
        if name in ("-l", "--ldcache") and value != _CACHE:
            raise WordsRefused(
                f"--ldcache {value}: nodeagent reads {_CACHE} below the driver's root: leave the option out"
            )
    if not rest or rest[0] not in (*_WORDS, "configure"):
        raise WordsRefused(_USAGE)
    if rest[0] == "configure":
        raise WordsRefused(_CONFIGURE)
    return (*_WORDS[rest[0]], *rest[1:], *settings)


def _without_user(word: str) -> str:
    """`-u1000:1000` as `-u`: nothing is done under another user, and the value is optional in the original alone."""
    if word.startswith("--user="):
        return "--user"
    return "-u" if word.startswith("-u") else word
