"""The C library's own functions are found, whoever stands before it."""

import shutil
import subprocess

import pytest

from tests.component.vgpu.build import build_real_say, build_small_library

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler: apt-get install gcc"),
    pytest.mark.may_block("nothing here runs on an event loop"),
]


def say(names: list[str], environ: dict[str, str]) -> list[str]:
    done = subprocess.run([build_real_say(), *names], env=environ, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize("is_preceded", [False, True])
def test_finds_what_the_loader_would_find_there(*, is_preceded: bool) -> None:
    """Many names, so that many chains of the hash table are walked; data and what is not there are nowhere."""
    names = ["dlsym", "dlvsym", "dlopen", "dladdr", "dlclose", "getpid", "pthread_create", "realpath", "qsort", "exit"]
    environ = {"LD_PRELOAD": str(build_small_library("in_front"))} if is_preceded else {}
    assert say(names, environ) == ["right"] * len(names)
    assert say(["cuInit", "", "environ", "dlsyn", "nodeagent"], environ) == ["nowhere"] * 5
