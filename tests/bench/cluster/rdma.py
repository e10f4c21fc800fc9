# SPDX-License-Identifier: Apache-2.0
"""python3 -m cluster.rdma --build DIR --top DIR --json FILE

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
DRAM_BYTES = 320 * MIB
LARGE, N_SMALL, SMALL, N_ALONE = 64 * MIB, 256, 64 << 10, 20

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


def peers(node):
    with open(f"{node.mnt}/.mooncake/status.json", encoding="utf-8") as status:
        return json.load(status)


def figures(node):
    status = peers(node)
    theirs = status["cluster"]["peers"]
    return {"pulled": sum(p["pulled_bytes"] for p in theirs), "grants": sum(p["grants"] for p in theirs),
            "registrations": status["tiers"][0]["registered"]["registrations"]}


def change(before, after, key):
    return after[key] - before[key]


def large(bench, cluster, objects):
    """A prefetch of 64 MiB into a frame; the CPU time of who holds it; registrations once frames are recycled."""
    holder, reader = cluster.nodes
    objects.fill(cluster.nodes, LARGE, DRAM_BYTES)
    ratios, rates, raws, cpus = [], [], [], []
    for k in range(ROUNDS + 2):
        if k == 2:  # by now each frame was used once
            steady = [figures(n) for n in cluster.nodes]
        first = objects.make(1, LARGE)
        before, cpu = figures(reader), cpu_s(holder.pid)
        seconds = objects.phase("prefetch", reader, first, 1, LARGE)[0]
        cpu = cpu_s(holder.pid) - cpu
        if change(before, figures(reader), "pulled") != LARGE:
            raise RuntimeError("it has not come by RDMA")
        raw = bench.perftest("ib_read_bw", MIB, LARGE // MIB, 3)
        if k >= 2:
            rates.append(LARGE / MIB / seconds)
            raws.append(raw)
            ratios.append(rates[-1] / raw)
            cpus.append(cpu / LARGE * GB)
    bench.report.add("rdma_read_64m", f"ib_read_bw 1M {median(raws):.0f} MiB/s", "rdma", value=median(rates), unit="MiB/s",
                     ratio=median(ratios), bar=0.85)
    bench.report.add("rdma_holder_cpu", "-", "rdma", value=median(cpus), unit="s/GB")
    made = sum(change(a, figures(n), "registrations") for a, n in zip(steady, cluster.nodes))
    bench.report.add("rdma_registrations", "-", "rdma", value=made / (2 * ROUNDS * LARGE / GB), unit="per GB",
                     kind=AT_MOST, bar=0)


def batch(bench, cluster, objects):
    """READ of 256 small objects into a session's buffer; questions for grants."""
    reader = cluster.nodes[1]
    ratios, rates, raws = [], [], []
    for _ in range(ROUNDS):
        first = objects.make(N_SMALL, SMALL)
        seconds = objects.phase("batch", reader, first, N_SMALL, SMALL)[0]
        raws.append(bench.perftest("ib_read_bw", SMALL, N_SMALL, 3))
        rates.append(N_SMALL * SMALL / MIB / seconds)
        ratios.append(rates[-1] / raws[-1])
        objects.remove(first, N_SMALL)
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
        objects.remove(first, N_ALONE)
    bench.report.add("rdma_read_64k", f"ib_read_lat 64K {median(raws):.0f} us", "rdma", value=median(times), unit="us",
                     ratio=median(ratios), kind=AT_MOST, bar=2.5, p50_us=median(times))


def main():
    parser = argparse.ArgumentParser(prog="cluster.rdma")
    for option in "--build", "--top", "--json":
        parser.add_argument(option, required=True)
    bench, status = Bench(parser.parse_args()), 0
    with Cluster(bench, "rdma", 2, DRAM_BYTES) as cluster:
        objects = Objects(bench, cluster)
        for job in large, batch, alone:
            try:
                job(bench, cluster, objects)
            except Missing as e:
                bench.report.skip(job.__name__, e)
            except (OSError, RuntimeError, subprocess.SubprocessError) as e:
                bench.report.skip(job.__name__, f"failed: {e}")
                for node in cluster.nodes:
                    print(node.last_words())
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
