"""Specifications of full nodes, from looking at the driver to bytes on disk, and a pass that finds nothing to do.

Processor time but for the hook: a busy machine makes it no longer.
"""

import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from nodeagent.components.cdi.decide import decide_changes, plan_own_paths
from nodeagent.components.cdi.plan_specs import SpecOptions, plan_specs, render_specs
from nodeagent.edge.host.driver.driver_files import DriverFileFinder
from nodeagent.edge.host.driver.driver_libraries import DriverLibraries
from nodeagent.edge.host.driver.roots import DriverRoots
from nodeagent.edge.host.files.cdi_files import SpecFiles
from nodeagent.model.cdi import DriverFiles, DriverNode
from nodeagent.model.gpu import Inventory
from nodeagent.rules.cdi_names import PUBLIC_KINDS
from tests.bench.rows import Row
from tests.support.files.driver_tree import LIBRARIES, DriverTree, look_at_file
from tests.support.programs.native import HOOK_SOURCES
from tests.support.samples import make_gpu, make_inventory, make_mig

ROUNDS = 20
LIBRARY_COUNT = 200


def measure() -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="nodeagent-bench-") as directory:
        return [*_measure_specs(Path(directory)), *_measure_hook(Path(directory))]


def _measure_specs(place: Path) -> list[Row]:
    tree = DriverTree(place / "driver")
    more = {f"libnvidia-part{number}.so": f"libnvidia-part{number}.so.1" for number in range(LIBRARY_COUNT)}
    tree.install(libraries=dict([*LIBRARIES.items(), *more.items()][:LIBRARY_COUNT]))
    tree.add_nodes([*(f"nvidia{minor}" for minor in range(16)), "nvidiactl", "nvidia-uvm"])
    roots = DriverRoots(host=tree.root, driver=tree.root, dev=tree.root)
    specs = SpecFiles(place / "cdi", others=())
    inventory, (partitioned, capabilities) = make_inventory(8), _make_partitioned()

    def write_afresh() -> None:
        finder = DriverFileFinder(libraries=DriverLibraries(machine=62), look=look_at_file)
        _write(specs, inventory, finder.read(roots))

    def write_partitioned() -> None:
        finder = DriverFileFinder(libraries=DriverLibraries(machine=62), look=look_at_file)
        files = finder.read(roots)
        nodes = (DriverNode(path=path, host_path=path) for path in _name_nodes(capabilities))
        _write(specs, partitioned, replace(files, nodes=(*files.nodes, *nodes), capability_minors=capabilities))

    finder = DriverFileFinder(libraries=DriverLibraries(machine=62), look=look_at_file)
    written = render_specs(plan_specs(inventory, finder.read(roots), SpecOptions(kinds=PUBLIC_KINDS)))
    _write(specs, inventory, finder.read(roots))

    def find_nothing_to_do() -> None:
        finder.read(roots)
        changes = decide_changes(written, specs.read_nowait(), plan_own_paths(specs.locate))
        assert not changes.write

    return [
        Row("CDI pass with nothing to do, CPU", "ms", _time(find_nothing_to_do), limit=20),
        Row("CDI for 8 GPUs, 200 libraries, CPU", "ms", _time(write_afresh), limit=100),
        Row("CDI for 16 GPUs x 7 MIG, CPU", "ms", _time(write_partitioned), limit=200),
    ]


def _measure_hook(place: Path) -> list[Row]:
    compiler = shutil.which("cc")
    if compiler is None:
        return []
    program, root = place / "hook", place / "root"
    subprocess.run([compiler, "-static", "-O2", "-o", program, *HOOK_SOURCES], check=True)
    root.mkdir()
    state = f'{{"root": "{root}"}}'.encode()

    # A program that ends at once in the place of the linker's own, whose time is not the hook's.
    nothing = place / "ldconfig"
    (place / "nothing.c").write_text("int main(void) { return 0; }\n")
    subprocess.run([compiler, "-static", "-O2", "-o", nothing, place / "nothing.c"], check=True)
    commands = {"200 links": ["create-symlinks", *(f"--link=a{n}::/usr/lib/b{n}" for n in range(LIBRARY_COUNT))]}
    if os.geteuid() == 0:
        commands["cache without the linker"] = ["update-ldcache", "--folder=/usr/lib", f"--ldconfig={nothing}"]

    def time_one(words: list[str], clock: Callable[[], float]) -> list[float]:
        def run() -> None:
            subprocess.run([program, *words], input=state, check=True)

        return _time(run, clock)

    one = ["create-symlinks", "--link=a::/usr/lib/b"]
    return [
        Row("CDI hook from start to end", "ms", time_one(one, time.perf_counter), limit=5),
        *(
            Row(f"CDI hook, {what}, CPU", "ms", time_one(words, _spent_by_children), limit=5)
            for what, words in commands.items()
        ),
    ]


def _spent_by_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _write(specs: SpecFiles, inventory: Inventory, files: DriverFiles) -> None:
    for name, content in render_specs(plan_specs(inventory, files, SpecOptions(kinds=PUBLIC_KINDS))).items():
        specs.write_nowait(name, content)


def _make_partitioned() -> tuple[Inventory, dict[str, int]]:
    gpus = tuple(make_gpu(index, mig=make_mig(index, 7)) for index in range(16))
    capabilities: dict[str, int] = {}
    for gpu in gpus:
        for device in gpu.mig_devices:
            instance = f"gpu{gpu.minor}/gi{device.gpu_instance_id}"
            for name in (f"{instance}/access", f"{instance}/ci{device.compute_instance_id}/access"):
                capabilities[name] = len(capabilities) + 3
    return Inventory(generation=1, gpus=gpus), capabilities


def _name_nodes(capabilities: dict[str, int]) -> list[str]:
    return [f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in capabilities.values()]


def _time(call: Callable[[], None], read_clock: Callable[[], float] = time.process_time) -> list[float]:
    took = []
    for _ in range(ROUNDS):
        began = read_clock()
        call()
        took.append((read_clock() - began) * 1e3)
    return took
