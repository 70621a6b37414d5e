"""The file of layouts that the settings name, read anew at each use."""

import os
from pathlib import Path

from nodeagent.app.wiring.mig import LayoutsFile
from nodeagent.config.live import LiveSettings
from nodeagent.config.schema import Settings
from nodeagent.config.sections.mig import MigSettings
from nodeagent.rules.mig.layouts import LayoutsRead

TEXT = "version: v1\nmig-configs:\n  lab:\n    - {devices: all, mig-enabled: false}\n"


def point_at(path: Path | None) -> Settings:
    return Settings(mig=MigSettings(manage=True, layouts_file=path))


async def test_a_file_is_read_anew_each_time(tmp_path: Path) -> None:
    """A ConfigMap that is mounted changes without a word; one that is gone is told, and so is one with faults."""
    path = tmp_path / "layouts.yaml"
    live = LiveSettings(point_at(None))
    file = LayoutsFile(live)
    try:
        assert await file.read() == LayoutsRead()
        live.replace(point_at(path))
        (missing,) = (await file.read()).problems
        assert str(path) in str(missing)
        path.write_text(TEXT)
        assert list((await file.read()).layouts) == ["lab"]
        path.write_text(TEXT.replace("lab", "other"))
        assert list((await file.read()).layouts) == ["other"]
        path.write_text("version: v2\n" + TEXT)
        assert (await file.read()).problems
    finally:
        file.close()


async def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    """A pipe would be waited for without end."""
    path = tmp_path / "layouts.yaml"
    os.mkfifo(path)
    file = LayoutsFile(LiveSettings(point_at(path)))
    try:
        (problem,) = (await file.read()).problems
        assert str(path) in str(problem)
    finally:
        file.close()
