"""Does one driver decide for a thousand nodes? See README.md.

PYTHONPATH=.:experiments/006-packing python experiments/019-thousand-nodes/nodes.py --nodes 100
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Sequence
from random import Random

from machines import N_GPUS, Cluster, ClusterSweep, Death
from virtual_sweep import Known
from worlds import CONTEXT_BYTES, Trial

KNOWN = Known("20 % over")
"""What a trial asks for to begin with; measured peaks are learned."""
DEATHS_PER_NODE_HOUR = 0.01
HALF_AT_SECONDS = 2000.0


def deaths(cluster: Cluster, seed: int) -> list[Death]:
    """For four hours; and half of the nodes at once."""
    random = Random(seed + 77)
    nodes = sorted({device.node for device in cluster.totals})
    n = round(4 * DEATHS_PER_NODE_HOUR * len(nodes))
    found = [Death(random.choice(nodes), random.uniform(0, 4 * 3600)) for _ in range(n)]
    return found + [Death(node, HALF_AT_SECONDS) for node in nodes[::2]]


def bounds_seconds(
    trials: Sequence[Trial], cluster: Cluster, dead: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    """No plan is faster: by the memory that all trials hold over time, of GPUs that were alive
    (`dead`: from when to when a node was not); and the longest trial."""
    room = cluster.gib * 1024**3 - CONTEXT_BYTES
    needed = sum(t.peak_bytes * t.seconds for t in trials) / room / N_GPUS
    seconds, before = needed / cluster.n_nodes, 0.0
    while seconds - before > 1e-3:
        lost = sum(max(0.0, min(seconds, until) - since) for since, until in dead)
        seconds, before = (needed + lost) / cluster.n_nodes, seconds
    return seconds, max(t.seconds for t in trials)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--trials-per-node", type=int, default=100)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between snapshots")
    parser.add_argument("--sigma", type=float, default=0.7, help="of the logarithm of seconds")
    parser.add_argument("--until", type=float, help="seconds after which it is broken off")
    parser.add_argument("--ahead", type=int, default=0)
    parser.add_argument(
        "--host-gib", type=int, default=0, help="main memory of a node; 0: not told"
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for n_nodes in arguments.nodes:
        n_trials = arguments.trials_per_node * n_nodes
        cluster = Cluster(
            n_nodes * N_GPUS, 80, n_trials, 16, n_nodes=n_nodes, sigma=arguments.sigma
        )
        known = Known(KNOWN.request, arguments.ahead)
        dying = deaths(cluster, arguments.seed)
        sweep = ClusterSweep(
            cluster, arguments.seed, known, dying, arguments.every, arguments.host_gib
        )
        begun = time.thread_time()
        if arguments.until is None:
            sweep.run()
        else:
            sweep.run_until(arguments.until)
        report(sweep, cluster, time.thread_time() - begun)


def report(sweep: ClusterSweep, cluster: Cluster, cpu_seconds: float) -> None:
    costs = sweep.costs
    by_memory, longest = bounds_seconds(sweep.trials, cluster, sweep.dead)
    bound = max(by_memory, longest)
    decision = costs.decisions_seconds / costs.n_decisions
    snapshot = costs.readings_seconds / costs.n_snapshots
    per_second = (1 - cluster.n_nodes * snapshot) / decision
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    sys.stdout.write(
        f"{cluster.n_nodes} nodes, {len(sweep.trials)} trials, {costs.most_running} at once, "
        f"{costs.n_interrupted} interrupted, {sweep.n_lost} lost, {sweep.n_ran_out} ran out, "
        f"{sweep.n_over_committed} over-committed: "
        f"{sweep.now:.0f} s, {sweep.now / bound:.2f} x bound ({by_memory:.0f} s by memory, "
        f"{longest:.0f} s the longest), the last began at {sweep.last_start_seconds:.0f} s; "
        f"{costs.n_decisions} decisions of {decision * 1e6:.0f} us, "
        f"{costs.n_snapshots} snapshots of {snapshot * 1e6:.0f} us: {per_second:.0f} decisions/s "
        f"beside {cluster.n_nodes} snapshots/s; {resident:.2f} GiB, {cpu_seconds:.0f} s of CPU\n"
    )
    sys.stdout.flush()


if __name__ == "__main__":
    main()
