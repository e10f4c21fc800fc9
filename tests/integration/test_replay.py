# SPDX-License-Identifier: Apache-2.0
"""mooncakectl replay: traces with known hit rates give exactly these on a mount."""
import collections
import json
import os
import random

import pytest

from harness import env
from harness.ctl import check_ctl, ctl, ctl_json

pytestmark = pytest.mark.mooncake


def write_trace(path, requests):
    with open(path, "w") as f:
        for i, ids in enumerate(requests):
            f.write(json.dumps({"timestamp": i * 10, "input_length": 512 * len(ids), "output_length": 1,
                                "hash_ids": ids}) + "\n")
    return str(path)


def read_trace(path):
    with open(path) as f:
        return [json.loads(line)["hash_ids"] for line in f]


def unbounded(requests):
    """(references, hits) with room for all."""
    ids = [i for r in requests for i in r]
    return len(ids), len(ids) - len(set(ids))


def small_trace(path):
    """300 requests whose chains share prefixes, as conversations do."""
    rng = random.Random(1)
    next_id, chains, requests = 1, [[0]], []
    for _ in range(300):
        base = rng.choice(chains)
        chain = base[:rng.randrange(1, len(base) + 1)]
        for _ in range(rng.randrange(4)):
            chain.append(next_id)
            next_id += 1
        chains.append(chain)
        requests.append(chain)
    return write_trace(path, requests), requests


def replay(m, trace, *options):
    return ctl_json("replay", trace, m.path, "--progress", "off", *options, timeout=500)


@pytest.mark.parametrize("options", [[], ["--threads", "4"], ["--publish", "rename"]], ids=" ".join)
def test_small_trace_hits_exactly(mount, tmp_path, options):
    """With room for all, hits and misses are those of the trace to the block, and every byte is right."""
    trace, requests = small_trace(tmp_path / "t.jsonl")
    references, hits = unbounded(requests)
    r = replay(mount, trace, "--block-bytes", "16K", *options)
    assert (r["requests"], r["references"]) == (300, references)
    assert (r["hits"], r["misses"]) == (hits, references - hits)
    assert r["prefix_hits"] == hits
    assert r["corrupt"] == r["read_failures"] == r["write_failures"] == 0
    assert r["hit_rate"] == pytest.approx(hits / references)
    assert r["bytes_read"] == hits * 16384 and r["bytes_written"] == (references - hits) * 16384
    blocks = os.listdir(os.path.join(mount.path, "kv", r["dir"]))
    assert len(blocks) == references - hits


def test_second_replay_hits_everything(mount, tmp_path):
    """The same trace again: every block is a hit; --fresh: as the first time."""
    trace, requests = small_trace(tmp_path / "t.jsonl")
    references, hits = unbounded(requests)
    replay(mount, trace)
    assert replay(mount, trace)["hits"] == references
    assert replay(mount, trace, "--fresh")["hits"] == hits


def test_replay_survives_a_killed_daemon(mount, tmp_path):
    """Replay, kill -9, start: the cache is warm, every block is a hit and right."""
    trace, requests = small_trace(tmp_path / "t.jsonl")
    replay(mount, trace)
    mount.kill9()
    mount.remount()
    r = replay(mount, trace)
    assert r["hits"] == r["references"] and r["corrupt"] == 0


@pytest.mark.options(dram="64M", max_objects=200)
def test_bounded_replay_evicts_like_lru(mount, tmp_path):
    """More distinct blocks than max_objects: the hit rate is close to LRU's, nothing is corrupt."""
    rng = random.Random(3)
    requests = [[int(rng.paretovariate(0.5)) % 1000 for _ in range(10)] for _ in range(500)]
    requests = [list(dict.fromkeys(r)) for r in requests]
    r = replay(mount, write_trace(tmp_path / "t.jsonl", requests), "--block-bytes", "4K")
    assert r["corrupt"] == r["read_failures"] == r["write_failures"] == 0
    assert abs(r["hit_rate"] - lru_hit_rate(requests, 200)) < 0.03
    assert mount.status()["objects"]["count"] <= 200


def lru_hit_rate(requests, capacity):
    cache, hits, references = collections.OrderedDict(), 0, 0
    for ids in requests:
        for i in ids:
            references += 1
            hits += i in cache
            cache[i] = True
            cache.move_to_end(i)
            if len(cache) > capacity:
                cache.popitem(last=False)
    return hits / references


def test_bad_traces_are_refused(mount, tmp_path):
    """A line that is no request: exit 1, file and line named; a missing file: its name."""
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"hash_ids": [1, 2]}\n{"hash_ids": "no"}\n')
    p = ctl("replay", bad, mount.path)
    assert p.returncode == 1 and "bad.jsonl" in p.stderr and "2" in p.stderr
    p = ctl("replay", tmp_path / "none.jsonl", mount.path)
    assert p.returncode == 1 and "none.jsonl" in p.stderr
    assert ctl("replay", bad).returncode == 2


def test_table_output(mount, tmp_path):
    """Without --json the report is text that tells the hit rate."""
    trace, requests = small_trace(tmp_path / "t.jsonl")
    references, hits = unbounded(requests)
    out = check_ctl("replay", trace, mount.path, "--progress", "off")
    assert f"{100 * hits / references:.1f}" in out or f"{hits / references:.4f}" in out


# ---- the open traces ----

def real_trace(name):
    """Path of an open trace. Hits do not depend on how bytes are read: one mode of one build is enough."""
    path = os.path.join(env.SHARED, "traces", name + "_trace.jsonl")
    env.require_file(path)
    if env.PASSTHROUGH == "off" or env.SCALE > 1:
        env.require_long()
    return path


@pytest.mark.limit(300)
@pytest.mark.options(dram="1G")
def test_synthetic_trace_unbounded(mount):
    """The synthetic trace at 16 KiB with room for all: exactly its hit rate, 0.6396, all of them prefix hits."""
    path = real_trace("synthetic")
    references, hits = unbounded(read_trace(path))
    assert (references, references - hits) == (121877, 43924)
    r = replay(mount, path, "--block-bytes", "16K")
    assert (r["references"], r["hits"], r["prefix_hits"]) == (references, hits, hits)
    assert round(r["hit_rate"], 4) == 0.6396
    assert r["corrupt"] == r["read_failures"] == r["write_failures"] == 0


@pytest.mark.options(dram="1G", max_objects=2000)
def test_start_of_the_synthetic_trace_with_2000_objects(mount):
    """Its first 500 requests with 2,000 blocks: LRU's hit rate, within half a percent."""
    path = real_trace("synthetic")
    expected = lru_hit_rate(read_trace(path)[:500], 2000)
    r = replay(mount, path, "--block-bytes", "16K", "--limit", "500")
    assert abs(r["hit_rate"] - expected) < 0.005
    assert r["corrupt"] == r["read_failures"] == r["write_failures"] == 0


@pytest.mark.limit(300)
@pytest.mark.options(dram="1G", max_objects=10000)
def test_synthetic_trace_with_10000_objects(mount):
    """The whole of it with 10,000 blocks: LRU's 0.4239, within half a percent."""
    env.require_long()
    r = replay(mount, real_trace("synthetic"), "--block-bytes", "16K")
    assert abs(r["hit_rate"] - 0.4239) < 0.005
    assert r["corrupt"] == r["read_failures"] == r["write_failures"] == 0


@pytest.mark.limit(900)
@pytest.mark.options(dram="4G")
def test_conversation_trace_unbounded(mount):
    """The conversation trace at 16 KiB with room for all: exactly its hit rate, 0.3664."""
    env.require_long()
    path = real_trace("conversation")
    references, hits = unbounded(read_trace(path))
    r = replay(mount, path, "--block-bytes", "16K")
    assert (r["references"], r["hits"]) == (references, hits)
    assert round(r["hit_rate"], 4) == 0.3664
