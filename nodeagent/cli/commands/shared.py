"""Arguments that several commands take."""

from nodeagent.cli.command import Argument

CONFIG = Argument(
    ("--config", "-c"),
    "configuration file; conf.d/*.yaml beside it is read too (default: /etc/nodeagent/config.yaml if it exists)",
    metavar="FILE",
)


SET = Argument(
    ("--set",),
    "one setting, over file and environment; may be given any number of times",
    metavar="SECTION.KEY=VALUE",
    action="append",
    default=(),
    offers="nodeagent.cli.offers:list_settings",
)


GPUS = Argument(
    ("--gpus",),
    "nvml for the hardware, simulated:PROFILE for made-up GPUs beside real neighbours; short for --set gpus.source=…",
    metavar="SOURCE",
    offers="nodeagent.cli.offers:list_sources",
)

NODE = (CONFIG, SET, GPUS)
"""Every command that looks at the node takes these."""

SIMULATION = Argument(
    ("--simulation",),
    "which simulation, where several run; NODEAGENT_SIMULATION says the same",
    metavar="NAME",
)

ASKING = (*NODE, SIMULATION)
"""Every command that asks the running agent about the node takes these."""

JSON = Argument(("--json",), "the same as JSON, for scripts", action="store_true")
