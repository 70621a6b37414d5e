"""`nodeagent gpu validate` as the pod of a validation runs it."""

from collections.abc import Sequence

import pytest

from nodeagent.cli.frame.exit_codes import ExitCode
from nodeagent.cli.gpu import prove
from tests.support.programs.command_line import run_here


@pytest.mark.parametrize("problems", [(), ("/dev/nvidiactl cannot be opened", "CUDA: cuInit failed")])
def test_the_container_is_told_to_be_fit_or_not(problems: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code decides the pod's phase; the kubelet takes the lines as its message."""
    monkeypatch.setattr(prove, "check_workload", lambda: problems)
    code, out, err = run_here("gpu", "validate")
    assert code == (ExitCode.UNWELL if problems else ExitCode.OK)
    assert err.splitlines() == [f"nodeagent: {each}" for each in problems]
    assert out == ("" if problems else "the GPU of this container can be used\n")
