"""Conditions of handing GPUs to containers: CDI, the shim, the runtime."""

from nodeagent.model.conditions.definition import ConditionDefinition
from nodeagent.model.conditions.driver import BLINDING_CODES

CONTAINERS_CONDITIONS: tuple[ConditionDefinition, ...] = (
    ConditionDefinition(
        code="cdi-not-written",
        severity="error",
        title="CDI specifications cannot be brought up to date",
        remedy="mend what the detail names; the files that are in place stay as they are",
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="cdi-conflict",
        severity="error",
        title="CDI files cancel each other out",
        remedy="remove one of the files that the detail names, or stop the program that writes it",
        show_after_seconds=5.0,
    ),
    ConditionDefinition(
        code="cdi-file-invalid",
        severity="warning",
        title="a CDI file of another program is invalid, runtimes ignore it",
        remedy="mend or remove the file; `nodeagent cdi validate` shows what is wrong with it",
        show_after_seconds=5.0,
    ),
    ConditionDefinition(
        code="cdi-device-left-out",
        severity="warning",
        title="a GPU has no CDI entry, containers cannot be given it",
        remedy="mend what the detail names; `nodeagent cdi generate` shows what would be written",
        show_after_seconds=5.0,
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="cdi-extra-device-missing",
        severity="warning",
        title="a device node that every container with a GPU should get is missing, containers start without it",
        remedy="make the device node, or take its path out of `containers.extra_devices`",
        show_after_seconds=5.0,
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="cdi-driver-files-missing",
        severity="warning",
        title="the driver's libraries are not found, containers get only device nodes",
        remedy="point `driver.root` at the driver installation",
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="cdi-driver-version-differs",
        severity="error",
        title="containers would get libraries of another driver than the one in use, CUDA fails with them",
        remedy="take away what another version has left below `driver.root`, or point it at the driver in use;"
        " after an upgrade, reload the kernel module or reboot",
        show_after_seconds=5.0,
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="shim-not-kept",
        severity="error",
        title="the runtime shim is not as it should be, containers that ask for GPUs by environment may not start",
        remedy="mend what the detail names, or set `runtime.shim: false`; `nodeagent doctor` shows what is in place",
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="program-names-missing",
        severity="warning",
        title="a program of the agent lacks its name of NVIDIA's, by which scripts and container runtimes look for it",
        remedy="mend what the detail names, or leave `cdi.nvidia_name_dir` empty",
        depends_on=BLINDING_CODES,
    ),
    ConditionDefinition(
        code="runtime-not-found",
        severity="warning",
        title="the container runtime that serves the kubelet is not known",
        remedy="start it, or set `runtime.kind` and `runtime.socket`; `nodeagent runtime detect` shows what was seen",
        show_after_seconds=30.0,
    ),
    ConditionDefinition(
        code="runtime-cdi-off",
        severity="error",
        title="the container runtime does not take CDI devices, pods that ask for GPUs will not start",
        remedy="run `nodeagent runtime plan`, then `nodeagent runtime configure`, or set `runtime.manage: true`",
        show_after_seconds=5.0,
    ),
    ConditionDefinition(
        code="runtime-config-blocked",
        severity="error",
        title="the container runtime's configuration cannot be changed as it should",
        remedy="mend what the detail names; nothing was written",
    ),
    ConditionDefinition(
        code="runtime-restart-needed",
        severity="warning",
        title="the container runtime must be restarted for its configuration to take effect",
        remedy="run the command in the detail, or do what it says, when convenient; running containers survive it",
    ),
    ConditionDefinition(
        code="runtime-config-conflict",
        severity="error",
        title="another program keeps undoing the container runtime's configuration",
        remedy="find the program that writes the file in the detail, and have it keep the setting",
    ),
    ConditionDefinition(
        code="runtime-restart-failed",
        severity="error",
        title="the container runtime did not come back as it should, the change was rolled back",
        remedy="read the runtime's log; it is not tried again until a file or a setting changes",
    ),
    ConditionDefinition(
        code="receipts-unwritten",
        severity="warning",
        title="containers do not read of the faults of their GPUs",
        remedy="mend what the detail names, mostly a full disk; the files are written by then without a restart",
        show_after_seconds=30.0,
    ),
)
