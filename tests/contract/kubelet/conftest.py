from pathlib import Path

import pytest

from tests.support.wire.kubelets import OpenKubelet, running_stand_in

__all__ = ["open_kubelet"]


@pytest.fixture
def open_kubelet(short_dir: Path) -> OpenKubelet:
    """The stand-in as the kubelet under test."""
    return lambda: running_stand_in(short_dir)
