"""The doctor's checks of the agent's reports to others: agent, kubelet, API server; pure."""

from collections.abc import Iterator

from nodeagent.cli.doctor.facts import Facts, SocketFacts
from nodeagent.cli.doctor.verdicts import Check, fail, ok, warn
from nodeagent.components.runtime.choose import ChosenRuntime
from nodeagent.components.web.api.records import StateRecord
from nodeagent.components.web.page.groups import group_conditions
from nodeagent.model.devices import Standing
from nodeagent.model.plugin import AdvertisedResource
from nodeagent.rules.cordons import explain_opening
from nodeagent.rules.kubernetes_versions import Lack, Side, find_endings, find_lacks

KUBELET = "systemctl status kubelet"


def check_agent(facts: Facts) -> Iterator[Check]:
    """The agent of this node, and the agent's conditions."""
    agent = facts.agent
    if agent is None:
        yield warn("agent", facts.agent_problem, "systemctl status nodeagent")
        return
    if is_elsewhere(facts, agent):
        yield warn("agent", "a simulation answers, no agent of this node", "systemctl status nodeagent")
        return
    worrying = [condition for condition in agent.conditions if condition.severity != "info"]
    for group in group_conditions(worrying):
        named, rest = group.split()
        for condition in named:
            judge = fail if condition.severity == "error" else warn
            detail = f": {condition.detail}" if condition.detail else ""
            yield judge("agent", f"{condition.title}{detail} ({condition.code})", condition.remedy)
        if rest:
            yield warn("agent", f"{len(rest)} more of these ({group.first.code})", "nodeagent status --all")
    if not agent.ready:
        yield fail("agent", f"not ready: {agent.sentence}", "nodeagent status")
    elif agent.verdict == "ok":
        yield ok("agent", f"{agent.version}, {agent.sentence}")
    elif not worrying:
        yield warn("agent", agent.sentence, "nodeagent status")


def is_elsewhere(facts: Facts, agent: StateRecord) -> bool:
    """Whether the answering agent is a simulation, while the settings mean a real node."""
    return agent.gpu_source.startswith("simulated") and not facts.simulated


def check_kubelet(facts: Facts) -> Iterator[Check]:
    """The kubelet's two sockets."""
    for name, socket in (("kubelet socket", facts.kubelet), ("pod resources", facts.pod_resources)):
        if socket is not None:
            yield _judge_socket(name, socket, facts)


def _judge_socket(name: str, socket: SocketFacts, facts: Facts) -> Check:
    if not socket.problem:
        return ok(name, f"{socket.path} answers")
    if socket.problem == "permission denied" and facts.user_id != 0:
        return warn(name, f"{socket.path} may not be opened by this user", "sudo nodeagent doctor")
    return fail(name, f"{socket.path}: {socket.problem}", KUBELET)


def check_registration(facts: Facts) -> Iterator[Check]:
    """Whether the kubelet has registered each resource; without an agent, the kubelet's checkpoint."""
    agent = facts.agent
    if agent is None or is_elsewhere(facts, agent):
        if facts.checkpoint is None:
            yield warn("registration", f"not known: {facts.checkpoint_problem or 'no agent answers'}", KUBELET)
            return
        known = {name: len(devices) for name, devices in facts.checkpoint.registered.items()}
        words = ", ".join(f"{name}: {count}" for name, count in known.items()) or "nothing"
        yield warn("registration", f"no agent; the kubelet remembers {words}", "systemctl status nodeagent")
        return
    resources = agent.plugin.resources if agent.plugin is not None else ()
    for resource in resources:
        if resource.registered:
            healthy = sum(device.healthy for device in resource.devices)
            yield ok("registration", f"{resource.name}: {healthy} of {len(resource.devices)} devices healthy")
        else:
            reason = resource.last_error or "the kubelet does not answer"
            yield fail("registration", f"{resource.name} is not registered: {reason}", KUBELET)
    if not resources:
        yield warn("registration", "the agent offers nothing to the kubelet", "nodeagent status")


def check_devices(facts: Facts) -> Iterator[Check]:
    """The devices of other classes; their problems are among the agent's conditions too."""
    agent = facts.agent
    for each in agent.devices if agent is not None and not is_elsewhere(facts, agent) else ():
        unwell = [record for record in each.devices if record.device.standing is not Standing.HEALTHY]
        if unwell or each.problems or not each.devices:
            reasons = [f"{record.device.name}: {record.device.reason}" for record in unwell]
            told = "; ".join([*each.problems, *reasons]) or "there is none on this node"
            yield warn("devices", f"{each.resource}: {told}", "nodeagent devices")
        else:
            count = len(each.devices)
            yield ok("devices", f"{each.resource}: {count} {'works' if count == 1 else 'work'}")


def check_cordons(facts: Facts) -> Iterator[Check]:
    """The GPUs kept from new pods by a cordon or the brake, each with what opens the GPU."""
    agent = facts.agent
    if agent is None or is_elsewhere(facts, agent) or agent.gpus is None:
        return
    modes = [record.door for record in agent.gpus.gpus if record.door is not None]
    for mode in modes:
        for cordon in mode.cordons:
            opens = explain_opening(cordon, mode.index)
            yield warn("cordons", f"GPU {mode.index}: cordoned {cordon.describe()}", opens)
        if mode.trial is not None and not mode.cordons:
            yield warn("cordons", mode.describe(), explain_opening(mode.trial, mode.index))
    if not any(mode.cordons or mode.trial for mode in modes):
        yield ok("cordons", "no GPU is cordoned")


def check_allocatable(facts: Facts) -> Iterator[Check]:
    """Allocatable devices against offered devices: by the API server, else by the kubelet's checkpoint."""
    agent = facts.agent
    resources = agent.plugin.resources if agent is not None and agent.plugin is not None else ()
    if not resources or agent is None or is_elsewhere(facts, agent):
        yield from _compare_with_hardware(facts)
        return
    for resource in resources:
        if resource.registered:
            yield _compare(resource, facts)


def _compare(resource: AdvertisedResource, facts: Facts) -> Check:
    offered = {str(device.id) for device in resource.devices if device.healthy}
    words = f"{resource.name}: {len(offered)} healthy devices offered"
    shown = facts.api.allocatable.get(resource.name) if facts.api is not None else None
    if shown is not None:
        found = f"{words}, the node's allocatable says {shown}"
        if shown == len(offered):
            return ok("allocatable", found)
        return (warn if shown else fail)("allocatable", found, f"{KUBELET}; journalctl -u kubelet | grep -i device")
    if facts.checkpoint is None:
        return warn("allocatable", f"{words}, what the kubelet holds is not known", "kubectl describe node")
    held = {str(device) for device in facts.checkpoint.registered.get(resource.name, ())}
    if held == offered:
        return ok("allocatable", f"{words}, the kubelet remembers the same")
    found = f"{words}, the kubelet remembers {len(held)}, others or older ones"
    return warn("allocatable", found, "nodeagent status; the kubelet writes its notes at the next allocation")


def _compare_with_hardware(facts: Facts) -> Iterator[Check]:
    """Without an agent, the answering GPUs against the devices of the kubelet's checkpoint."""
    if facts.checkpoint is None or facts.readout is None:
        yield warn("allocatable", "not known: no agent answers", "kubectl describe node")
        return
    remembered = sum(map(len, facts.checkpoint.registered.values()))
    there = sum(not gpu.lost for gpu in facts.readout.gpus)
    found = f"{there} GPUs answer, the kubelet remembers {remembered} devices, and no agent offers them"
    yield (fail if remembered and not there else warn)("allocatable", found, "systemctl status nodeagent")


def check_api(facts: Facts) -> Iterator[Check]:
    """Access and permissions."""
    api = facts.api
    if api is None:
        yield ok("api server", "not used by these settings")
    elif not api.where:
        found = "no credentials: labels, conditions and events stay on this node"
        yield warn("api server", found, "nodeagent config show | grep ^kubernetes")
    elif api.problem:
        yield fail("api server", f"with {api.where}: {api.problem}", "kubectl auth whoami")
    elif api.denied:
        found = f"with {api.where} it may not {', '.join(api.denied)}"
        yield fail("api server", found, "kubectl apply -f deploy/rbac.yaml")
    else:
        yield ok("api server", f"answers, all permissions are there ({api.where})")


def check_kubernetes(facts: Facts) -> Iterator[Check]:
    """The versions of API server and kubelet, and what these versions lack for the settings."""
    api = facts.api
    if api is None or not api.server_version:
        return
    versions: dict[Side, str] = {"API server": api.server_version, "kubelet": api.kubelet_version}
    lacks = tuple(find_lacks(facts.wanted_abilities, versions))
    for lack in lacks:
        judge = fail if lack.ability.is_essential and not lack.is_gated else warn
        yield judge("kubernetes", _describe_lack(lack), _advise(lack))
    if not lacks:
        kubelet = f"kubelet {api.kubelet_version}" if api.kubelet_version else "kubelet of unknown version"
        yield ok("kubernetes", f"API server {api.server_version}, {kubelet}: what the settings need is there")


def _describe_lack(lack: Lack) -> str:
    ability = lack.ability
    degree = (
        f"has {ability.name} only with the feature gate {ability.gate}" if lack.is_gated else f"lacks {ability.name}"
    )
    return f"{ability.side} {lack.version} {degree}, for {ability.setting}: without, the agent {ability.without}"


def _advise(lack: Lack) -> str:
    ability = lack.ability
    upgrade = f"upgrade the {ability.side} to 1.{ability.on_from}, or set {ability.setting}: false"
    if not lack.is_gated:
        return upgrade
    place = "/metrics" if ability.side == "API server" else "/api/v1/nodes/NODE/proxy/metrics"
    return f"kubectl get --raw {place} | grep feature_enabled.*{ability.gate}; switch the gate on, or {upgrade}"


def check_endings(facts: Facts) -> Iterator[Check]:
    """The container runtime and cgroups of this node, where later kubelets refuse them."""
    runtime = facts.runtime
    kind, release = (runtime.kind, runtime.release) if isinstance(runtime, ChosenRuntime) else (None, (0, 0))
    found = tuple(find_endings(kind, release, has_cgroup_v1=facts.cgroup_v1))
    for ending in found:
        yield warn("endings", f"this node has {ending.name}: {ending.end}", ending.remedy)
    if not found:
        yield ok("endings", "nothing on this node is known to be refused by the next kubelets")
