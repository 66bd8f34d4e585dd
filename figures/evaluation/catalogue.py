"""All entries, in the order of the document, and the figures that have none."""

from __future__ import annotations

from figures.evaluation import elasticutor, gedik, overlap, streamcloud, stretch
from figures.evaluation.entry import Entry, NoEntry, Paper

ENTRIES: tuple[Entry, ...] = (
    *stretch.ENTRIES,
    *streamcloud.ENTRIES,
    *gedik.ENTRIES,
    *overlap.ENTRIES,
    *elasticutor.ENTRIES,
)

WITHOUT_ENTRY: tuple[NoEntry, ...] = (
    NoEntry(
        Paper.STREAMCLOUD,
        "figure 17",
        (
            "Which tuples are the last n does not depend here on the number of instances, nor how many pairs are tried, "
            "so nothing scales super-linearly."
        ),
    ),
    NoEntry(
        Paper.GEDIK,
        "figure 19, the seconds",
        (
            "The text has no value of them. In process nothing moves; on Spark a move is another list of files "
            "(StreamCloud, figure 19)."
        ),
    ),
    NoEntry(
        Paper.OVERLAP,
        "the queries over laser scans in figures 11 and 13",
        (
            "They were run on an Odroid, to which nothing here compares; `benchmarks/overlap` has the queries, and "
            "tests of them."
        ),
    ),
    NoEntry(
        Paper.ELASTICUTOR,
        "figures 8 and 9",
        "Shards that change instances in process do so in the switch of epochs that is timed for STRETCH's figure 9, "
        "and no state moves; between cells on Spark see StreamCloud's figure 19. The paper's 2 ms of synchronisation "
        "are in the simulation.",
    ),
    NoEntry(
        Paper.ELASTICUTOR,
        "figures 10 to 12",
        "How one executor scales out to the 256 cores of 32 nodes cannot be measured on one machine, and the model of "
        "the network that a simulation would need is not in the text.",
    ),
    NoEntry(
        Paper.ELASTICUTOR,
        "figures 13 and 15",
        (
            "Figure 13 (numbers of executors and shards) is for the same reason left out; figure 15 shows the "
            "exchange's data."
        ),
    ),
)
