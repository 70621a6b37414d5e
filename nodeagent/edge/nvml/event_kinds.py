"""The names of driver reports: registered by the worker, read by the agent.

Refuses imports: a table beside the calls would bring pynvml into the agent, 2 MB.
"""

XID = 0x8
KINDS: dict[int, str] = {
    0x2: "double_bit_ecc",
    XID: "xid",
    0x100: "mig_layout",
    0x200: "single_bit_ecc_storm",
    0x400: "dram_retirement",
    0x800: "dram_retirement_failure",
    0x1000: "non_fatal_poison",
    0x2000: "fatal_poison",
    0x4000: "unavailable",
    0x8000: "recovery_action",
}
WANTED = sum(KINDS)
