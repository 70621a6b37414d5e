"""Images that are built otherwise than most: none of them loses a library, or keeps its container waiting for ever."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.component.cdi.bundle import Bundle, list_cached, needs_compiler, needs_root
from tests.support.files.driver_tree import encode_library
from tests.support.programs.native import HOOK_SOURCES

pytestmark = [pytest.mark.slow, needs_compiler]


@pytest.mark.skipif(shutil.which("strace") is None, reason="wants strace: apt-get install strace")
def test_links_upwards_are_followed_on_a_busy_host(bundle: Bundle) -> None:
    """The kernel answers EAGAIN where a link has `..` and anything was renamed or mounted on the host meanwhile."""
    (bundle.root / "opt/real").mkdir(parents=True)
    (bundle.root / "usr").mkdir()
    (bundle.root / "usr/lib64").symlink_to("../opt/real")
    (bundle.root / "etc/alpine-release").write_text("3.20\n")
    path = bundle.root / f"etc/ld-musl-{platform.machine()}.path"
    path.write_text("/opt/app/lib\n")
    for command, argument in (("create-symlinks", "--link=t::/usr/lib64/x"), ("update-ldcache", "--folder=/opt/nv")):
        traced = ["strace", "-qq", "-o", "/dev/null", "-e", "inject=openat2:error=EAGAIN:when=1+2"]
        done = subprocess.run(
            [*traced, bundle.program, command, argument],
            input=bundle.state,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
    assert (bundle.root / "opt/real/x").is_symlink()
    assert path.read_text() == "/opt/app/lib\n:/opt/nv:"


@pytest.mark.parametrize("end", ["", "\n", ":"])
def test_musl_keeps_the_last_directory_of_the_image(bundle: Bundle, end: str) -> None:
    """The image's file may end without a separator; a container that is started again gets ours once."""
    (bundle.root / "etc/alpine-release").write_text("3.20\n")
    path = bundle.root / f"etc/ld-musl-{platform.machine()}.path"
    path.write_text(f"/lib:/opt/app/lib{end}")
    for _ in range(2):
        assert bundle.run("update-ldcache", "--folder=/opt/nv", "--folder=/opt/w") == (0, "")
        assert path.read_text().replace("\n", ":").replace("::", ":") == "/lib:/opt/app/lib:/opt/nv:/opt/w:"


@needs_root
@pytest.mark.parametrize("text", ["", "/opt/app/lib", "include /etc/ld.so.conf.d/app.conf\n"])
def test_linker_configuration_that_does_not_include_ours_is_extended(bundle: Bundle, text: str) -> None:
    """Its own directories stay, and again it changes nothing."""
    for name in ("opt/nv/libcuda.so.1", "opt/app/lib/libapp.so.1"):
        (bundle.root / name).parent.mkdir(parents=True)
        (bundle.root / name).write_bytes(encode_library(Path(name).name))
    (bundle.root / "etc/ld.so.conf.d").mkdir()
    (bundle.root / "etc/ld.so.conf.d/app.conf").write_text("/opt/app/lib\n")
    (bundle.root / "etc/ld.so.conf").write_text(text)
    texts = []
    for _ in range(2):
        assert bundle.run("update-ldcache", "--folder=/opt/nv") == (0, "")
        assert list_cached(bundle.root)["libcuda.so.1"] == "/opt/nv/libcuda.so.1"
        assert ("libapp.so.1" in list_cached(bundle.root)) == bool(text)
        texts.append((bundle.root / "etc/ld.so.conf").read_text())
    assert texts[0] == texts[1]
    assert texts[0].startswith(text)


@needs_root
def test_a_configurator_that_does_not_end_does_not_hold_the_container(bundle: Bundle, tmp_path: Path) -> None:
    """Whatever else may keep it waiting: a volume that another container changes meanwhile, or a disk that hangs."""
    impatient, endless = tmp_path / "impatient", tmp_path / "endless"
    command = ["cc", "-static", "-O2", "-Wformat-truncation=0", "-DLDCONFIG_SECONDS=1", "-o"]
    subprocess.run([*command, impatient, *HOOK_SOURCES], check=True)
    source = "#include <unistd.h>\nint main(void) { for (;;) pause(); }\n"
    subprocess.run(["cc", "-static", "-x", "c", "-o", endless, "-"], input=source, text=True, check=True)
    bundle.program = impatient
    code, err = bundle.run("update-ldcache", "--folder=/opt/nv", f"--ldconfig={endless}")
    assert (code, "did not end within 1 s" in err, err.count("\n")) == (1, True, 1)


@pytest.mark.parametrize("escaped", [r"R\u0026D", r"R\u0026\u0044", r"\u0052&D"])
def test_a_path_is_read_as_it_is_written_by_runtimes(bundle: Bundle, escaped: str) -> None:
    """Go writes `&`, `<` and `>` as escapes, in the state and in config.json."""
    root = bundle.directory / "R&D"
    (root / "etc").mkdir(parents=True)
    assert bundle.run("create-symlinks", "--link=a::/b", state=f'{{"root": "{bundle.directory}/{escaped}"}}') == (0, "")
    assert (root / "b").is_symlink()
    (bundle.directory / "config.json").write_text(f'{{"root": {{"path": "{escaped}"}}}}')
    assert bundle.run("create-symlinks", "--link=a::/c") == (0, "")
    assert (root / "c").is_symlink()


@pytest.mark.parametrize("escaped", [r"\u0000", r"\u00e9", r"\u12", r"\u00", r"\ug026"])
def test_another_escape_is_refused(bundle: Bundle, escaped: str) -> None:
    """A path that is guessed could be another container's."""
    code, err = bundle.run("create-symlinks", "--link=a::/b", state=f'{{"root": "/{escaped}"}}')
    assert (code, "has an escape" in err) == (1, True)
