"""The commands about MIG layouts beside a running agent."""

from pathlib import Path

from tests.support.programs.agent_process import run_command, running_simulation

FILE = "version: v1\nmig-configs: {night: [{devices: all, mig-enabled: true, mig-devices: {1g.10gb: 7}}]}\n"


def test_layouts_of_the_running_agent_are_known(short_dir: Path) -> None:
    """Its file was named when it was started, which the command is not told."""
    file = short_dir / "layouts.yaml"
    file.write_text(FILE)
    words = ("--profile", "dgx-h100", "--pods", "0", "--set", f"mig.layouts_file={file}")
    with running_simulation(short_dir, *words) as agent:
        agent.wait_for("/api/v1/gpus", "NVIDIA H100")
        plan = run_command(agent.directory, "mig", "plan", "night")
        assert (plan.returncode, plan.stdout.count("+ 1g.10gb")) == (0, 56), plan.stderr
        unknown = run_command(agent.directory, "mig", "assert", "nigth")
        assert (unknown.returncode, "did you mean night?" in unknown.stderr) == (2, True)
        assert agent.get_json("/api/v1/layouts") == {"layouts": [], "layouts_file": str(file)}
