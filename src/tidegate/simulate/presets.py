"""Loads by name: those of the papers, and a few that every autoscaler meets."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tidegate.errors import UserError, choices
from tidegate.simulate.loads import Constant, Day, FlashCrowd, Load, Ramp, Sine, Spikes, Step, Total, phases

GEDIK_SINE = Sine(mean=5_000, amplitude=2_500, period_seconds=500)
GEDIK_STEP = Step(((250, 5_000), (100, 10_000), (150, 2_000)))
STREAMCLOUD_RAMP = Ramp(((0, 5_000), (500, 64_506), (900, 100_869), (1_500, 155_000), (3_000, 5_000)))
"""Through the rates of StreamCloud's table I at the times its text gives for 11 and for 17 instances, on to what 27
instances hold, and down again."""

STRETCH_Q5 = phases(seed=5)
ELASTICUTOR = Constant(200_000)
"""Elasticutor's micro-benchmark at 1 ms a tuple: 200 of its 256 cores busy."""

LOADS: Mapping[str, Load] = MappingProxyType(
    {
        "constant": Constant(5_000),
        "day": Day(low=1_000, high=12_000),
        "day-with-crowd": Total((Day(low=1_000, high=9_000), FlashCrowd(0, 6_000, 40_000, 60, 900))),
        "elasticutor": ELASTICUTOR,
        "flash-crowd": FlashCrowd(base=1_500, peak=12_000, at_seconds=300, rise_seconds=30, half_life_seconds=120),
        "gedik-sine": GEDIK_SINE,
        "gedik-step": GEDIK_STEP,
        "ramp": Ramp(((0, 500), (600, 12_000), (900, 12_000), (1_500, 500))),
        "spikes": Spikes(base=3_000, peak=9_000, every_seconds=180, lasting_seconds=20),
        "streamcloud-ramp": STREAMCLOUD_RAMP,
        "stretch-q5": STRETCH_Q5,
    }
)

MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "constant": "5,000 tuples/s",
        "day": "1,000 to 12,000 tuples/s in the course of a day",
        "day-with-crowd": "a day, with a flash crowd of 6,000 tuples/s at 11 o'clock",
        "elasticutor": "200,000 tuples/s (Elasticutor §5.1, at 1 ms a tuple)",
        "flash-crowd": "1,500 tuples/s, within 30 s up to 12,000, halving every 2 minutes",
        "gedik-sine": "5,000 ± 2,500 tuples/s, period 500 s (Gedik, appendix B.2)",
        "gedik-step": "5,000 for 250 s, 10,000 for 100 s, 2,000 for 150 s (Gedik, appendix B.2)",
        "ramp": "500 to 12,000 tuples/s in 10 minutes, and back",
        "spikes": "3,000 tuples/s, every 3 minutes 9,000 for 20 s",
        "streamcloud-ramp": "5,000 to 155,000 tuples/s and back (StreamCloud, figure 21 and table I)",
        "stretch-q5": "phases of 100 to 300 s at 500 to 8,000 tuples/s (STRETCH §8.5)",
    }
)


def load_named(name: str) -> Load:
    """The load of that name, or an error that lists the names."""
    if name not in LOADS:
        raise UserError(f"load '{name}' is not known; choose one of {choices(LOADS)}, or give a .csv or .parquet file")
    return LOADS[name]
