# SPDX-License-Identifier: Apache-2.0
"""python3 -m cluster.rdma --build DIR --top DIR

Two nodes on one RDMA device, against perftest on the same device, in turns: what tests/rdma/run.sh runs in its VM, where
MCFS_TEST_HOST is the device's first address and the next one is its second. The device is software there: ratios count.
Exit status: 0 all ran (a missed bar is no failure), 1 something could not run.
"""
import argparse
import ipaddress
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

from .jobs import Objects
from .net import Missing, run
from .nodes import Cluster, Process, cpu_s
from .report import AT_MOST, Report

MIB, GB = 1 << 20, 1e9
ROUNDS = 4
LARGE = 64 * MIB
# Frames wait in an eighth of the budget to be used again.
MEDIUM, MEDIUM_DRAM, N_MEDIUM = MIB, 48 * MIB, 12
SMALL, SMALL_DRAM, N_SMALL, N_ALONE = 64 << 10, 48 * MIB, 256, 20

median = statistics.median


class Machine:
    """This one, by one of its addresses: as a Namespace is."""

    def __init__(self, address):
        self.addresses = {"rdma": address}

    @staticmethod
    def prefix():
        return []


class Net:
    def __init__(self):
        first = ipaddress.ip_address(os.environ["MCFS_TEST_HOST"])
        self.nodes = [Machine(str(first)), Machine(str(first + 1))]


class Bench:
    def __init__(self, args):
        self.build, self.top, self.net, self.report = args.build, args.top, Net(), Report()

    def perftest(self, program, n_bytes, count, column):
        """What one of its programs says in that column, counted from the last line's size."""
        if not shutil.which(program):
            raise Missing(f"{program} (perftest) is not installed")
        address = self.net.nodes[0].addresses["rdma"]
        args = [program, "-R", "-F", "-s", str(n_bytes), "-n", str(count)]
        server = Process(self.net.nodes[0], args, f"{self.top}/perftest.log")
        try:
            time.sleep(2)
            lines = run(*args, address, timeout=120).splitlines()
            return float(next(line for line in reversed(lines) if line.split()[:1] == [str(n_bytes)]).split()[column])
        finally:
            server.end()


def figures(node):
    with open(f"{node.mnt}/.mooncake/status.json", encoding="utf-8") as text:
        status = json.load(text)
    theirs = status["cluster"]["peers"]
    return {"pulled": sum(p["pulled_bytes"] for p in theirs),
            "registrations": status["tiers"][0]["registered"]["registrations"]}


def change(before, after, key):
    return after[key] - before[key]


def idle_cpu(node, seconds):
    """What it takes of the CPU while nobody asks it, in that time."""
    before = cpu_s(node.pid)
    time.sleep(seconds)
    return cpu_s(node.pid) - before


def fetch(cluster, objects, phase, count, n_bytes):
    """Objects into frames: seconds, and CPU seconds of who holds them, without the program's start."""
    holder, reader = cluster.nodes
    first, before = objects.make(count, n_bytes), figures(reader)
    cpu, begin = cpu_s(holder.pid), time.monotonic()
    seconds = objects.phase(phase, reader, first, count, n_bytes)[0]
    cpu, took = cpu_s(holder.pid) - cpu, time.monotonic() - begin
    if change(before, figures(reader), "pulled") != count * n_bytes:
        raise RuntimeError("it has not come by RDMA")
    return seconds, cpu - idle_cpu(holder, took)


def large(bench, cluster, objects):
    """64 MiB into a frame, and the CPU time of who holds it beyond what it takes when it is idle."""
    ratios, rates, raws, cpus = [], [], [], []
    for _ in range(ROUNDS):
        seconds, cpu = fetch(cluster, objects, "prefetch", 1, LARGE)
        cpus.append(cpu / LARGE * GB)
        raws.append(bench.perftest("ib_read_bw", MIB, LARGE // MIB, 3))
        rates.append(LARGE / MIB / seconds)
        ratios.append(rates[-1] / raws[-1])
    bench.report.add("rdma_read_64m", f"ib_read_bw 1M {median(raws):.0f} MiB/s", "rdma", value=median(rates),
                     unit="MiB/s", ratio=median(ratios), bar=0.85)
    bench.report.add("rdma_holder_cpu", "idle", "rdma", value=median(cpus), unit="s/GB")


def steady(bench, cluster, objects):
    """Registrations while objects come and go in frames that were there before; by files, as a session has a frame too."""
    objects.fill(cluster.nodes, MEDIUM, MEDIUM_DRAM)
    for _ in range(2 * MEDIUM_DRAM // MEDIUM // N_MEDIUM):
        fetch(cluster, objects, "read", N_MEDIUM, MEDIUM)
    before = [figures(n) for n in cluster.nodes]
    for _ in range(ROUNDS):
        fetch(cluster, objects, "read", N_MEDIUM, MEDIUM)
    made = sum(change(a, figures(n), "registrations") for a, n in zip(before, cluster.nodes))
    bench.report.add("rdma_registrations", "-", "rdma", value=made / (ROUNDS * N_MEDIUM * MEDIUM / GB), unit="per GB",
                      kind=AT_MOST, bar=0)


def batch(bench, cluster, objects):
    """READ of 256 small objects into a session's buffer."""
    reader = cluster.nodes[1]
    ratios, rates, raws = [], [], []
    objects.fill(cluster.nodes, SMALL, SMALL_DRAM)
    for _ in range(ROUNDS):
        first = objects.make(N_SMALL, SMALL)
        seconds = objects.phase("batch", reader, first, N_SMALL, SMALL)[0]
        raws.append(bench.perftest("ib_read_bw", SMALL, N_SMALL, 3))
        rates.append(N_SMALL * SMALL / MIB / seconds)
        ratios.append(rates[-1] / raws[-1])
    bench.report.add("rdma_batch_256x64k", f"ib_read_bw 64K {median(raws):.0f} MiB/s", "rdma", value=median(rates),
                     unit="MiB/s", ratio=median(ratios), bar=0.75)


def alone(bench, cluster, objects):
    """open, read and close of one small object of a node that is known."""
    reader = cluster.nodes[1]
    ratios, times, raws = [], [], []
    for _ in range(ROUNDS):
        first = objects.make(N_ALONE, SMALL)
        times.append(median(objects.phase("read", reader, first, N_ALONE, SMALL)) * 1e6)
        raws.append(bench.perftest("ib_read_lat", SMALL, 100, 4))
        ratios.append(times[-1] / raws[-1])
    bench.report.add("rdma_read_64k", f"ib_read_lat 64K {median(raws):.0f} us", "rdma", value=median(times), unit="us",
                     ratio=median(ratios), kind=AT_MOST, bar=2.5, p50_us=median(times))


def both(*jobs):
    def run_them(*args):
        for job in jobs:
            job(*args)
    return run_them


def main():
    parser = argparse.ArgumentParser(prog="cluster.rdma")
    for option in "--build", "--top":
        parser.add_argument(option, required=True)
    args = parser.parse_args()
    bench, status = Bench(args), 0
    for n, (job, dram_bytes) in enumerate(((large, 5 * LARGE), (steady, MEDIUM_DRAM), (both(batch, alone), SMALL_DRAM))):
        bench.top = f"{args.top}/{n}"
        os.makedirs(bench.top)
        try:
            with Cluster(bench, "rdma", 2, dram_bytes) as cluster:
                job(bench, cluster, Objects(bench, cluster))
        except Missing as e:
            bench.report.skip(f"rdma {n}", e)
        except (OSError, RuntimeError, subprocess.SubprocessError) as e:
            bench.report.skip(f"rdma {n}", f"failed: {e}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
