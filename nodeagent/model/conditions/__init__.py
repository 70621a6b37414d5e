"""THE list of conditions: everything that can be wrong with a node, as the person on call reads it.

`docs/conditions.md` is generated from it. Codes are stable: alerts and runbooks name them.
"""

from nodeagent.model.conditions.agent import AGENT_CONDITIONS
from nodeagent.model.conditions.cluster import CLUSTER_CONDITIONS
from nodeagent.model.conditions.containers import CONTAINERS_CONDITIONS
from nodeagent.model.conditions.definition import ConditionDefinition
from nodeagent.model.conditions.driver import DRIVER_CONDITIONS, UPGRADE_CONDITIONS
from nodeagent.model.conditions.fractions import FRACTIONS_CONDITIONS
from nodeagent.model.conditions.hardware import HARDWARE_CONDITIONS
from nodeagent.model.conditions.mig import MIG_CONDITIONS
from nodeagent.model.conditions.offering import DEVICES_CONDITIONS, OFFERING_CONDITIONS

CATALOGUE: tuple[ConditionDefinition, ...] = (
    *DRIVER_CONDITIONS,
    *UPGRADE_CONDITIONS,
    *HARDWARE_CONDITIONS,
    *CONTAINERS_CONDITIONS,
    *OFFERING_CONDITIONS,
    *FRACTIONS_CONDITIONS,
    *MIG_CONDITIONS,
    *DEVICES_CONDITIONS,
    *CLUSTER_CONDITIONS,
    *AGENT_CONDITIONS,
)
