"""Conditions of the agent itself and its configuration."""

from nodeagent.model.conditions.definition import ConditionDefinition

AGENT_CONDITIONS: tuple[ConditionDefinition, ...] = (
    ConditionDefinition(
        code="component-failed",
        severity="error",
        title="a part of the agent has crashed too often and was given up",
        remedy="report the error in the detail, with `nodeagent doctor --bundle report.tar.gz`, and restart the agent",
    ),
    ConditionDefinition(
        code="events-lost",
        severity="info",
        title="what happened before the agent was started cannot be read",
        remedy="look at the file that the detail names; this stands until the agent is restarted",
    ),
    ConditionDefinition(
        code="node-lost-for-good",
        severity="error",
        title="the GPUs did not become ready in all the attempts allowed",
        remedy="replace or repair the node; nodeagent goes on trying and takes this back when it succeeds",
    ),
    ConditionDefinition(
        code="configuration-invalid",
        severity="warning",
        title="the changed configuration is invalid, the one before is still in force",
        remedy="run `nodeagent config check`, mend what it names, and reload",
    ),
    ConditionDefinition(
        code="configuration-needs-restart",
        severity="info",
        title="changed settings wait for a restart of the agent",
        remedy="restart nodeagent when convenient",
    ),
    ConditionDefinition(
        code="descriptors-few",
        severity="warning",
        title="the limit of open files is low, fewer connections are taken than the settings allow",
        remedy="raise it (`LimitNOFILE=` of the unit, the container runtime's limit), or lower `http.max_connections`",
    ),
)
