"""Each alert fires for its fault and for no other, by promtool."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.deploy.queries import RULES_FILE, read_rules

pytestmark = pytest.mark.e2e
N = 'instance="n",gpu="0",UUID="u"'
PART = f'{N},namespace="ml",pod="p",container="c"'
HOURS = 60
FAULTS: dict[str, dict[str, str]] = {
    "GpuLost": {f"nodeagent_gpu_present{{{N}}}": "1 0x20"},
    "GpuMissing": {'nodeagent_gpus{instance="n",state="missing"}': "0 1x20"},
    "NodeOffersNoGpu": {
        'nodeagent_devices_offered{instance="n"}': "8 0x20",
        'nodeagent_gpus{instance="n",state="withheld"}': "0 8x20",
    },
    "GpuVanished": {'nodeagent_gpus{instance="n",state="vanished"}': "0 1x20"},
    "GpuNotOffered": {
        'nodeagent_devices_offered{instance="n"}': "8 7x30",
        'nodeagent_gpus{instance="n",state="withheld"}': "0 1x30",
    },
    "GpuBraked": {f"nodeagent_signal_brake_closings{{{N}}}": "0 1x20"},
    "GpuWaitsForService": {'nodeagent_repair_sessions{instance="n",rung="service"}': "0 1x20"},
    "GpuRepairUnfinished": {
        'nodeagent_repair_session_opened_timestamp_seconds{instance="n",session="7",cause="xid-119",rung="reset"}': (
            "0x180"
        )
    },
    "GpuProofFailed": {f"nodeagent_gpu_proof_failed{{{N}}}": "0 1x20"},
    "GpuXidCritical": {f'nodeagent_gpu_xid_last_seen_timestamp_seconds{{{N},xid="79"}}': "540x20"},
    "GpuEccUncorrected": {f'nodeagent_gpu_ecc_errors_total{{{N},kind="uncorrected"}}': "0x8 1x20"},
    "GpuRowRemapFailed": {f"DCGM_FI_DEV_ROW_REMAP_FAILURE{{{N}}}": "0 1x20"},
    "GpuNeedsRecovery": {f"nodeagent_gpu_recovery_action{{{N}}}": "0 1x20"},
    "GpuHeldBackByHeat": {f'nodeagent_gpu_held_back_seconds_total{{{N},limit="heat"}}': "0+10x20"},
    "GpuHot": {f"DCGM_FI_DEV_GPU_TEMP{{{N}}}": "92x20"},
    "GpuDeviceUnhealthy": {f'nodeagent_device_health{{{N},device="u",verdict="unhealthy"}}': "1x20"},
    "GpuHeldButIdle": {
        'nodeagent_pod_gpu_idle_seconds_total{namespace="ml",pod="p"}': f"0+60x{4 * HOURS}",
        'nodeagent_pod_gpu_held_seconds_total{namespace="ml",pod="p"}': f"0+60x{4 * HOURS}",
    },
    "FractionOverItsMemory": {
        f"nodeagent_fraction_memory_bytes{{{PART}}}": "8x20",
        f"nodeagent_fraction_memory_used_bytes{{{PART}}}": "8 9x20",
    },
    "NodeagentDown": {'up{instance="n",job="nodeagent"}': "1 0x20"},
    "NodeagentDegraded": {'nodeagent_condition_active{instance="n",code="gpu-missing",severity="error"}': "1x20"},
    "NodeagentDriverNotReady": {'nodeagent_driver_ready{instance="n"}': "0x20"},
    "NodeagentRepairsStopped": {'nodeagent_repair_slots_allowed{instance="n",domain="cluster"}': "1 0x80"},
    "NodeagentRepairWaitsForSlot": {'nodeagent_repair_slot_waiting{instance="n"}': "0 1x400"},
    "NodeagentSamplesStale": {'nodeagent_samples_stale{instance="n"}': "0 1x20"},
    "NodeagentComponentRestarts": {'nodeagent_component_restarts_total{instance="n",component="web"}': "0+1x20"},
    "NodeagentLoopLag": {'nodeagent_loop_lag_seconds{instance="n",quantile="0.99"}': "0.9x20"},
}
LATE = {
    "GpuRepairUnfinished": "2h30m",
    "GpuHeldButIdle": "3h30m",
    "GpuNotOffered": "20m",
    "NodeagentRepairsStopped": "70m",
    "NodeagentRepairWaitsForSlot": "370m",
}
HARMLESS: dict[str, str] = {
    f'nodeagent_gpu_xid_last_seen_timestamp_seconds{{{N},xid="31"}}': "540x20",
    f'nodeagent_gpu_ecc_errors_total{{{N},kind="corrected"}}': "0+5x20",
    f'nodeagent_gpu_held_back_seconds_total{{{N},limit="power"}}': "0+10x20",
    f"nodeagent_gpu_present{{{N}}}": "1x20",
    'nodeagent_repair_sessions{instance="n",rung="reset"}': "1x20",
    'nodeagent_repair_session_opened_timestamp_seconds{instance="n",session="8",cause="lost",rung="service"}': "0x20",
    f"nodeagent_gpu_proof_failed{{{N}}}": "0x20",
    f"nodeagent_signal_brake_closings{{{N}}}": "0x20",
    f"DCGM_FI_DEV_GPU_TEMP{{{N}}}": "70x20",
    'nodeagent_gpus{instance="n",state="lost"}': "0x20",
    'nodeagent_condition_active{instance="n",code="driver-released",severity="info"}': "1x20",
    'nodeagent_devices_offered{instance="n"}': "0x20",
    'nodeagent_gpus{instance="n",state="excluded"}': "2x20",
    'nodeagent_device_health{device="u",verdict="healthy"}': "1x20",
}


def test_every_alert_has_its_fault_here() -> None:
    """An alert that was never seen to fire is a hope."""
    assert {rule["alert"] for rule in read_rules() if "alert" in rule} == set(FAULTS)


def judge(directory: Path, series: dict[str, str], when: str, firing: list[str]) -> None:
    """Let promtool play these series and say what fires then."""
    expected = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in firing]
    expression = 'max by (alertname) (ALERTS{alertstate="firing"})'
    test: dict[str, Any] = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": expression, "eval_time": when, "exp_samples": expected}],
    }
    file = directory / "rules.test.yaml"
    file.write_text(json.dumps({"rule_files": [str(RULES_FILE)], "evaluation_interval": "1m", "tests": [test]}))
    program = shutil.which("promtool")
    assert program is not None, "promtool is missing: apt-get install prometheus"
    done = subprocess.run(
        [program, "test", "rules", str(file)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", FAULTS)
def test_an_alert_fires_for_its_fault_and_no_other_does(tmp_path: Path, alert: str) -> None:
    """After its time, not before."""
    judge(tmp_path, FAULTS[alert], LATE.get(alert, "12m"), [alert])


def test_nothing_fires_on_a_healthy_node(tmp_path: Path) -> None:
    """An application's XID, corrected errors, a power limit, a driver released on purpose: no page."""
    judge(tmp_path, HARMLESS, "12m", [])


def test_a_lost_gpu_is_given_a_minute(tmp_path: Path) -> None:
    """What mends itself in passing wakes nobody."""
    judge(tmp_path, {f"nodeagent_gpu_present{{{N}}}": "1 1 0 1x20"}, "12m", [])


def test_the_rules_are_well_formed() -> None:
    program = shutil.which("promtool")
    assert program is not None, "promtool is missing: apt-get install prometheus"
    subprocess.run([program, "check", "rules", str(RULES_FILE)], check=True, capture_output=True, timeout=30)
