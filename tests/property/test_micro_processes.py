"""Several processes of the engine of one operator, simulated in one: any interleaving, any crash, any number of processes.

Messages between two processes keep their order; everything else is drawn: who reads, whose message arrives, when each
process begins a snapshot that was asked for, when all is lost but what was committed, and how many processes go on then.
"""

from __future__ import annotations

import pickle
import random
from collections import defaultdict, deque

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit import micro_graphs as graphs
from tests.kit.effort import examples
from tidegate import micro
from tidegate.micro.pipeline import Message, Pipeline, Saved

SHAPES = [(1, 1), (5, 5), (9, 3), (7, 2), (40, 10)]


class Cluster:
    """Processes that exchange messages, and what of their work is committed."""

    def __init__(self, graph: micro.AggregateStage, workers: int, dice: random.Random, restored: list[Saved]) -> None:
        self.dice, self.workers = dice, workers
        self.queues: dict[tuple[int, int], deque[bytes]] = defaultdict(deque)
        self.rows: list[list[micro.Row]] = [[] for _ in range(workers)]
        self.parts: dict[int, tuple[Saved, list[micro.Row]]] = {}
        self.unmarked: list[int] = []
        self.reading = set(range(workers))
        self.pipelines = [
            Pipeline(
                graph,
                self.rows[worker].extend,
                lambda number, saved, worker=worker: self.saved(worker, saved),
                lambda to, message, worker=worker: self.queues[worker, to].append(pickle.dumps(message)),
                worker,
                workers,
                restored,
            )
            for worker in range(workers)
        ]

    def saved(self, worker: int, saved: Saved) -> None:
        self.parts[worker] = pickle.loads(pickle.dumps(saved)), self.rows[worker][:]
        self.rows[worker].clear()

    def step(self) -> bool:
        """One thing that a process does; False if there is nothing to do."""
        waiting = [pair for pair, queue in self.queues.items() if queue]
        choices = [("deliver", pair) for pair in waiting] + [("read", worker) for worker in self.reading]
        choices += [("mark", worker) for worker in self.unmarked]
        if not choices:
            return False
        what, where = self.dice.choice(choices)
        if what == "deliver":
            message: Message = pickle.loads(self.queues[where].popleft())
            self.pipelines[where[1]].receive(message)
        elif what == "mark":
            self.unmarked.remove(where)
            self.pipelines[where].mark(1)
        elif not self.pipelines[where].read():
            self.reading.remove(where)
        return True

    def committed(self) -> list[tuple[Saved, list[micro.Row]]] | None:
        """The parts of a snapshot that all have taken, once."""
        if len(self.parts) < self.workers:
            return None
        parts, self.parts = list(self.parts.values()), {}
        return parts


@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 32), shape=st.sampled_from(SHAPES), join=st.booleans())
def test_any_interleaving_and_any_crash_give_every_result_once(seed: int, shape: tuple[int, int], join: bool) -> None:
    dice = random.Random(seed)
    splits = [graphs.generated(dice.randrange(20), 4, dice.randrange(100)) for _ in range(dice.randrange(1, 5))]
    rows = [row for split in splits for row in split]
    source = micro.source("rows", splits, lambda split, skip: ([row] for row in split[skip:]))
    graph = (graphs.self_join if join else graphs.sums)(source, *shape)
    found: list[micro.Row] = []
    restored: list[Saved] = []
    for crash_after in [dice.randrange(1, 150) for _ in range(dice.randrange(3))] + [None]:
        cluster = Cluster(graph, dice.randrange(1, 4), dice, restored)
        steps = 0
        while steps != crash_after and cluster.step():
            steps += 1
            parts = cluster.committed()
            if parts is not None:
                restored = [saved for saved, _ in parts]
                found += [row for _, made in parts for row in made]
            elif not cluster.unmarked and not cluster.parts and dice.random() < 0.1 and not cluster_busy(cluster):
                cluster.unmarked = list(range(cluster.workers))
        if crash_after is None:
            assert all(pipeline.has_ended for pipeline in cluster.pipelines)
            found += [row for made in cluster.rows for row in made]
    assert sorted(found) == (graphs.expected_pairs if join else graphs.expected_sums)(rows, *shape)


def cluster_busy(cluster: Cluster) -> bool:
    """Whether a marker is still under way: a snapshot begins when the one before is committed."""
    return any(state.cut for pipeline in cluster.pipelines for state in pipeline._stages.values()) or any(
        pickle.loads(message).marker is not None for queue in cluster.queues.values() for message in queue
    )


def test_a_lagging_process_holds_the_watermark_of_all() -> None:
    """Rows of process 0 are at 0 and 10, process 1 has read nothing: no window may expire before it has."""
    splits = [[(0, "a", 1), (10, "a", 1)], [(0, "a", 3)]]
    graph = graphs.sums(micro.source("rows", splits), 5, 5)
    cluster = Cluster(graph, 2, random.Random(1), [])
    while cluster.pipelines[0].read():
        pass
    for _ in range(20):
        for (sender, to), queue in list(cluster.queues.items()):
            while queue:
                cluster.pipelines[to].receive(pickle.loads(queue.popleft()))
            assert sender == 0
    assert cluster.rows == [[], []]
    cluster.reading = {1}
    while cluster.step():
        pass
    everything = [row for made in cluster.rows for row in made]
    assert sorted(everything) == graphs.expected_sums(splits[0] + splits[1], 5, 5)
