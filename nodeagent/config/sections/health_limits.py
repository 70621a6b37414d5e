"""The limits of polled levels and rates for suspect or unhealthy GPUs."""

from nodeagent.config.kinds import Number, Whole
from nodeagent.config.knobs import Section, knob


class HealthLimits(Section):
    """The limits behind verdicts from polling rather than events; a part of `health`."""

    remapped_rows_limit: int = knob(
        Whole(1, 100000),
        512,
        "remapped memory rows from which on a GPU is suspect until it is serviced",
        "the table of a GPU holds so many",
        reload=True,
    )
    retired_pages_limit: int = knob(
        Whole(1, 100000),
        63,
        "retired memory pages from which on a GPU is unhealthy until it is serviced",
        "the table of a GPU before Ampere holds one more",
        reload=True,
    )
    retired_double_bit_pages_limit: int = knob(
        Whole(0, 100000),
        15,
        "pages retired for double-bit errors above which one more within the window makes a GPU unhealthy",
        "the point from which NVIDIA takes boards back that go on failing",
        reload=True,
    )
    retired_double_bit_window_seconds: float = knob(
        Number(60, 31536000),
        604800.0,
        "the window in which one more retired page counts",
        "a week, as above",
        reload=True,
    )
    corrected_errors_per_minute: int = knob(
        Whole(1, 100000000),
        1000,
        "corrected memory errors a minute that make a minute of a storm",
        "single ones harm nothing; so many slow the memory down",
        reload=True,
    )
    corrected_errors_minutes: int = knob(
        Whole(1, 1440),
        10,
        "minutes of a storm in a row after which a GPU is suspect",
        "short bursts pass by themselves",
        reload=True,
    )
    nvlink_checksum_errors_per_second: float = knob(
        Number(0.001, 1000000),
        100.0,
        "NVLink checksum errors a second from which on a GPU is unhealthy rather than suspect",
        "where DCGM turns from warning to failure",
        reload=True,
    )
    nvlink_bit_error_ratio: float = knob(
        Number(0, 1),
        0.0,
        "effective bit error rate of an NVLink above which a GPU is suspect; 0 judges none",
        "the right limit, about 1e-12, depends on the product",
        reload=True,
    )
    pcie_replay_ratio: float = knob(
        Number(0.01, 1000),
        1.0,
        "multiplies the PCIe replays a minute that each generation of lane may have",
        "the allowances per lane are those that boards are tested with",
        reload=True,
    )
    pcie_degraded_polls: int = knob(
        Whole(1, 1000),
        3,
        "looks in a row with fewer lanes, or under load with less speed, than the link can have",
        "links retrain now and then",
        reload=True,
    )
    pcie_busy_percent: int = knob(
        Whole(1, 100),
        10,
        "utilisation from which on the speed of the PCIe link is judged",
        "an idle GPU slows its link down to save power",
        reload=True,
    )
    slowdown_window_minutes: int = knob(
        Whole(1, 1440),
        10,
        "minutes in which slow-downs by hardware are counted",
        "long enough to tell weather from climate",
        reload=True,
    )
    slowdown_minutes: int = knob(
        Whole(1, 1440),
        6,
        "minutes of that window with a slow-down from which on a GPU is suspect",
        "most of the window",
        reload=True,
    )
    slowdown_unhealthy_minutes: int = knob(
        Whole(1, 100000),
        30,
        "minutes of being suspect for slow-downs after which a GPU is unhealthy",
        "cooling or power that fails for so long does not mend itself",
        reload=True,
    )
    fabric_patience_seconds: float = knob(
        Number(0, 86400),
        300.0,
        "how long a GPU may take to register with its NVLink fabric",
        "the fabric manager takes minutes after a boot",
        reload=True,
    )
    switch_errors_per_hour: int = knob(
        Whole(1, 1000000),
        10,
        "passing link errors of NVSwitches in an hour above which the GPUs with NVLink are suspect",
        "the switch retries after a single error, without harm",
        reload=True,
    )
