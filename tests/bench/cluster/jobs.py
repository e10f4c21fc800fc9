# SPDX-License-Identifier: Apache-2.0
"""The jobs. Each does a thing on the nodes and the same, or its physical limit, without them, in turns, some rounds;
the median of the rounds' ratios counts."""
import contextlib
import os
import statistics
import time

from .net import Missing, run
from .nodes import Iperf, cpu_s, wait_until
from .report import AT_MOST

MIB, GIB, GB = 1 << 20, 1 << 30, 1e9
CPU_BAR = 1.5
LANES = 4           # of the daemon, transport/peer_endpoint.c
RATE = "8gbit"
UPLINK = "1gbit"
IPERF_BYTES = GIB   # long enough for its rate to be a steady one
SMALL_BYTES = 64 << 10
N_SMALL = 200
N_LOOKED_UP = 1000
BATCH, BATCH_BYTES = 1000, 2 * MIB

median = statistics.median


class Objects:
    """Numbered objects in kv/bench of the first node; each number is used once."""

    def __init__(self, bench, cluster):
        self.program, self.next = f"{bench.build}/tests/bench/bench_cluster", 1
        self.nodes = cluster.nodes
        self.maker = cluster.nodes[0]
        os.makedirs(f"{self.maker.mnt}/kv/bench", exist_ok=True)

    def phase(self, name, node, first, count, n_bytes=0):
        out = run(self.program, name, "--dir", f"{node.mnt}/kv/bench", "--first", first, "--count", count, "--bytes",
                  n_bytes, timeout=300)
        return [int(ns) / 1e9 for ns in out.split()]

    def make(self, count, n_bytes):
        """The first's number. All can be read on the other nodes from now on."""
        first = self.next
        self.next += count
        self.phase("make", self.maker, first, count, n_bytes)
        last = f"kv/bench/{first + count - 1:07d}"
        for node in self.nodes[1:]:
            wait_until(lambda n=node: os.path.exists(f"{n.mnt}/{last}"), f"{last} on another node")
        return first

    def fill(self, nodes, n_bytes, budget_bytes):
        """Memory is full of objects of that size, as it is in a cache that has worked for a while: each one that comes
        takes the frame of one that goes."""
        count = int(1.05 * budget_bytes) // n_bytes + 1
        for node in nodes:
            self.phase("make", node, self.next, count, n_bytes)
            self.next += count

    def remove(self, first, count):
        self.phase("remove", self.nodes[-1], first, count)


SHAPES = {
    RATE: ("tbf", "rate", RATE, "burst", "2mb", "latency", "20ms"),
    "1 ms RTT": ("netem", "delay", "500us"),
    "unshaped": (),
}


@contextlib.contextmanager
def shaped(bench, mode):
    """What both ends of the pair send."""
    pair = bench.net.nodes[:2]
    try:
        for node in pair:
            node.shape("pair", *SHAPES[mode])
        yield
    finally:
        for node in pair:
            node.shape("pair")


# ---- throughput ----

def _transfer_once(cluster, objects, phase, count, n_bytes):
    """Bytes per second, CPU seconds per byte of both daemons, and seconds of each operation. What is compared
    afterwards costs the daemons nothing: it is read by passthrough."""
    total, first = count * n_bytes, objects.make(count, n_bytes)
    before = cluster.cpu_s()
    times = objects.phase(phase, objects.nodes[1], first, count, n_bytes)
    return total / sum(times), (cluster.cpu_s() - before) / total, times


def _transfer(bench, cluster, objects, phase, count, n_bytes, rounds):
    """What _transfer_once and iperf3 say, round by round."""
    ours, raw = [], []
    objects.fill(objects.nodes[:2], n_bytes, bench.dram_bytes)
    with Iperf(*bench.net.nodes[:2], "pair", bench.top) as iperf:
        for k in range(rounds):
            if k % 2:
                raw.append(iperf.measure(IPERF_BYTES, LANES))
            ours.append(_transfer_once(cluster, objects, phase, count, n_bytes))
            if k % 2 == 0:
                raw.append(iperf.measure(IPERF_BYTES, LANES))
    return ours, raw


def throughput(bench, cluster, objects, mode, job, *, phase="read", count, n_bytes, rounds, bar):
    need = 2 * count * n_bytes
    if need > 2 * bench.dram_bytes * 0.8:
        raise Missing(f"{need // MIB} MiB of frames do not fit into the memory that is left")
    with shaped(bench, mode):
        ours, raw = _transfer(bench, cluster, objects, phase, count, n_bytes, rounds)
    rates, costs, times = zip(*ours)
    raw_rates, raw_costs = zip(*raw)
    cost, raw_cost = median(costs) * GB, median(raw_costs) * GB
    bench.report.add(job, f"iperf3 {median(raw_rates) / MIB:.0f} MiB/s", mode, value=median(rates) / MIB, unit="MiB/s",
                     ratio=median(a / b for a, b in zip(rates, raw_rates)), bar=bar,
                     p50_us=median(t for ts in times for t in ts) * 1e6, cpu_s_per_gb=cost)
    bench.report.add(f"{job}_cpu", f"iperf3 {raw_cost:.2f} s/GB", mode, value=cost, unit="s/GB",
                     ratio=median(a / b for a, b in zip(costs, raw_costs)), kind=AT_MOST, bar=CPU_BAR,
                     cpu_s_per_gb=cost)


# ---- small objects ----

def _small_round(bench, objects):
    """Seconds of each cold one, and of what it is compared with."""
    address = bench.net.nodes[0].addresses["pair"]
    first = objects.make(N_SMALL, SMALL_BYTES)
    cold = objects.phase("read", objects.nodes[1], first, N_SMALL, SMALL_BYTES)
    rtt = bench.net.nodes[1].run(objects.program, "rtt", "--dir", address, "--count", N_SMALL)
    warm = objects.phase("read-again", objects.nodes[1], first, N_SMALL, SMALL_BYTES)
    objects.remove(first, N_SMALL)
    return cold, 3 * median(int(ns) / 1e9 for ns in rtt.split()) + median(warm)


def small(bench, objects, mode, bar):
    """open, read and close of what is elsewhere, against three round trips and the same of what is here."""
    times, ratios, limits = [], [], []
    with shaped(bench, mode):
        for _ in range(5):
            cold, limit = _small_round(bench, objects)
            limits.append(limit)
            ratios.append(median(cold) / limit)
            times += cold
    bench.report.add("open_read_64k", f"3 RTT + local {median(limits) * 1e6:.0f} us", mode, value=median(times) * 1e6,
                     unit="us", ratio=median(ratios), kind=AT_MOST, bar=bar, p50_us=median(times) * 1e6)


def lookup(bench, cluster, objects, bar):
    """Names per second of one LOOKUP, against as many pipelined GETs."""
    server = cluster.server
    tool = server.cli.replace("-cli", "-benchmark")
    if not os.path.exists(tool):
        raise Missing(f"{os.path.basename(tool)} is not installed")
    first = objects.make(N_LOOKED_UP, 16)
    args = [tool, "-h", server.address, "-c", 1, "-P", N_LOOKED_UP, "-r", N_LOOKED_UP, "-n", 50 * N_LOOKED_UP, "-d", 64,
            "--csv", "-t"]
    namespace = bench.net.nodes[1]
    namespace.run(*args, "set")
    ratios, times = [], []
    for _ in range(5):
        seconds = objects.phase("lookup", objects.nodes[1], first, N_LOOKED_UP)
        gets = float(namespace.run(*args, "get").splitlines()[-1].split(",")[1].strip('"'))
        times += seconds
        ratios.append(N_LOOKED_UP / median(seconds) / gets)
    bench.report.add("lookup_1000", "redis-benchmark -P 1000", "unshaped", value=N_LOOKED_UP / median(times),
                     unit="names/s", ratio=median(ratios), bar=bar, p50_us=median(times) * 1e6)
    objects.remove(first, N_LOOKED_UP)


# ---- many readers ----

def fan_out(bench, cluster, objects, bar):
    """One object, three readers at once: how often its bytes leave by the holder's uplink."""
    n_bytes = GIB if bench.dram_bytes >= 1.2 * GIB else 256 * MIB
    uplink = bench.net.nodes[0]
    first = objects.make(1, n_bytes)
    uplink.shape("lan", "tbf", "rate", UPLINK, "burst", "256kb", "latency", "20ms")
    before, begin = uplink.sent_bytes("lan"), time.monotonic()
    readers = [bench.start(objects.program, "read", "--dir", f"{n.mnt}/kv/bench", "--first", first, "--bytes", n_bytes)
               for n in objects.nodes[1:]]
    failed = [r.wait(300) for r in readers]
    seconds = time.monotonic() - begin
    sent = uplink.sent_bytes("lan") - before
    uplink.shape("lan")
    if any(failed):
        raise RuntimeError("a reader failed")
    bench.report.add("fan_out_3", f"{n_bytes // MIB} MiB, {UPLINK}", "throttled", value=sent / MIB, unit="MiB sent",
                     ratio=sent / n_bytes, kind=AT_MOST, bar=bar, p50_us=seconds * 1e6)


# ---- the directory ----

def _await_names(server, n_names, limit_s=300):
    wait_until(lambda: server.n_names() >= n_names, f"{n_names} names in the directory", limit_s)


def _make_names(bench, cluster, n_names):
    share = n_names // len(cluster.nodes)
    makers = []
    for k, node in enumerate(cluster.nodes):
        os.makedirs(f"{node.mnt}/kv/names{k}", exist_ok=True)
        makers.append(bench.start(f"{bench.build}/tests/bench/bench_cluster", "make-small", "--dir",
                                  f"{node.mnt}/kv/names{k}", "--count", share))
    if any(m.wait(300) for m in makers):
        raise RuntimeError("the names could not be made")
    return share * len(cluster.nodes)


def directory(bench, cluster, n_names, bar):
    """Memory of the server per name, each of which one node holds; how fast they come, and come back after a wipe."""
    server, mode = cluster.server, f"{n_names // 1000}k names"
    there, used, begin = server.n_names(), server.used_bytes(), time.monotonic()
    n_names = _make_names(bench, cluster, n_names)
    _await_names(server, there + n_names)
    bench.report.add("directory_made", "-", mode, value=n_names / (time.monotonic() - begin), unit="names/s")
    bench.report.add("directory_memory", "-", mode, value=(server.used_bytes() - used) / n_names, unit="bytes/name",
                     kind=AT_MOST, bar=bar)
    daemons, itself = cluster.cpu_s(), cpu_s(server.pid)
    server.ask("FLUSHALL")
    begin = time.monotonic()
    _await_names(server, n_names)
    seconds = time.monotonic() - begin
    bench.report.add("directory_reannounce", "-", mode, value=seconds, unit="s", p50_us=seconds * 1e6)
    bench.report.add("directory_rate", "-", mode, value=n_names / seconds, unit="names/s")
    bench.report.add("directory_cpu", "-", mode, value=(cluster.cpu_s() - daemons) * 1e6 / n_names, unit="us/name")
    bench.report.add("directory_server_cpu", "-", mode, value=(cpu_s(server.pid) - itself) * 1e6 / n_names,
                     unit="us/name")
