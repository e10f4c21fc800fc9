# SPDX-License-Identifier: Apache-2.0
"""What a mount says about itself: .mooncake/metrics, the same over HTTP, and the Grafana board."""
import http.client
import json
import math
import os
import re
import shutil
import socket
import threading
import time
import urllib.request

import pytest

from harness import env, prom
from harness.content import get, pattern, put, set_xattr, wait_for
from harness.ctl import ctl

pytestmark = [pytest.mark.mooncake, pytest.mark.one_mode]
MIB = env.MIB
LATENCY = "mooncakefs_request_duration_seconds"
AGE = "mooncakefs_eviction_age_seconds"


def read(fs):
    return prom.parse(get(fs.control("metrics")))


def some_work(folder, n=20):
    for i in range(n):
        path = os.path.join(folder, f"work{i}")
        put(path, pattern(i, 10000))
        assert len(get(path)) == 10000
        os.unlink(path)


class Load:
    """Clients at work for as long as the with block lasts."""

    def __init__(self, folder, n_threads=3):
        self.stopping = False
        self.threads = [threading.Thread(target=self._run, args=(os.path.join(folder, f"t{k}"),))
                        for k in range(n_threads)]

    def _run(self, folder):
        os.makedirs(folder, exist_ok=True)
        while not self.stopping:
            some_work(folder, 5)

    def __enter__(self):
        for t in self.threads:
            t.start()

    def __exit__(self, *_):
        self.stopping = True
        for t in self.threads:
            t.join()


# ---- the text ----

def test_metrics_are_strict_prometheus_text(fs, d):
    """The text passes a strict parser; names begin with mooncakefs_ or are the usual process ones."""
    some_work(d)
    families = read(fs)
    assert all(re.match("mooncakefs_|process_", name) for name in families)
    assert all(f.samples for name, f in families.items() if not name.startswith("mooncakefs_disk_"))


def test_prometheus_own_client_reads_them(fs, d):
    """The parser of Prometheus' Python client finds the same families, types and samples."""
    parser = pytest.importorskip("prometheus_client.parser", reason="needs python3-prometheus-client")
    some_work(d)
    text = get(fs.control("metrics"))
    ours = prom.parse(text)
    theirs = {f.name: f for f in parser.text_string_to_metric_families(text.decode())}
    assert {re.sub("_total$", "", name) for name in ours} == set(theirs)
    for name, family in ours.items():
        other = theirs[re.sub("_total$", "", name)]
        assert family.type == other.type
        assert family.samples == {(s.name, tuple(sorted(s.labels.items()))): s.value
                                  for s in other.samples}


def test_counters_and_histograms_only_grow_under_load(fs, d):
    """While clients work every scrape is consistent in itself and no counter or bucket ever falls."""
    with Load(d):
        before = read(fs)
        for _ in range(20):
            now = read(fs)
            old, new = prom.monotonic(before), prom.monotonic(now)
            assert set(old) <= set(new)
            fallen = {k: (v, new[k]) for k, v in old.items() if new[k] < v}
            assert not fallen
            before = now
    assert prom.value(before, "mooncakefs_publishes_total") > 0


def test_latency_counts_every_request_once(mount):
    """The histogram of an operation has as many entries as the operation was asked for."""
    for i in range(25):
        put(os.path.join(mount.path, f"f{i}"), b"x" * 1000)
    for i in range(25):
        os.unlink(os.path.join(mount.path, f"f{i}"))

    def counts():
        families = read(mount)
        return [prom.value(families, LATENCY + "_count", op=op) for op in ("create", "unlink")]

    # A request counts when its thread is free again, which is after its reply.
    wait_for(lambda: min(counts()) >= 25, 10, "every request counts")
    families = read(mount)
    assert counts() == [25, 25]
    # The read of metrics itself is looked up before its text is made, and done after.
    assert abs(prom.value(families, LATENCY + "_count", op="lookup")
               - prom.value(families, "mooncakefs_lookups_total")) <= 2


@pytest.mark.options(dram="8M", space_wait=1)
def test_latency_is_in_seconds(mount):
    """A write that waits a second for space shows as a second in its histogram and its sum."""
    set_xattr(mount.path, "class", "pinned")
    with pytest.raises(OSError):
        for i in range(20):
            put(os.path.join(mount.path, f"f{i}"), b"x" * MIB)
    families = read(mount)
    ops = {dict(key[1])["op"] for key in families[LATENCY].samples}
    slow, seconds = {}, {}
    for op in ops:
        seconds[op] = prom.value(families, LATENCY + "_sum", op=op)
        before = 0
        for bound, count in prom.buckets(families[LATENCY], op=op):
            if count > before and bound > 0.8:
                slow[op] = bound
            before = count
    assert slow and all(0.8 < bound < 5 and seconds[op] > 0.9 for op, bound in slow.items()), (slow, seconds)
    assert sum(seconds.values()) < 20


def test_metrics_and_status_agree(mount):
    """What stands in both files has the same value in both."""
    some_work(mount.path, 20)
    wait_for(lambda: mount.status()["latency"]["create"]["count"] == 20, 10, "every request counts")
    status, families = mount.status(), read(mount)
    for name in ("publishes", "creates", "unlinks", "evictions", "publish_bytes"):
        assert prom.value(families, f"mooncakefs_{name}_total") == status["counters"][name]
    for tier in status["tiers"]:
        for key in ("budget_bytes", "used_bytes", "objects", "high_watermark_bytes",
                    "low_watermark_bytes", "disks", "failed_disks"):
            assert prom.value(families, f"mooncakefs_tier_{key}", tier=tier["name"]) == tier[key]
    for disk in status["disks"]:
        assert prom.value(families, "mooncakefs_disk_budget_bytes", path=disk["path"]) == disk["budget_bytes"]
        assert prom.value(families, "mooncakefs_disk_failed", path=disk["path"]) == 0
    create = status["latency"]["create"]
    assert create["count"] == prom.value(families, LATENCY + "_count", op="create")
    assert create["count"] == sum(n for _, n in create["buckets"])
    assert 0 < create["p50_ns"] <= create["p99_ns"]
    assert create["sum_ns"] / 1e9 == pytest.approx(prom.value(families, LATENCY + "_sum", op="create"))


def test_process_figures_are_true(fs):
    """Memory, threads, descriptors, CPU and start time are what /proc says of the daemon."""
    families = read(fs)
    with open(f"/proc/{fs.pid}/status") as f:
        proc = dict(line.split(":", 1) for line in f)
    rss = prom.value(families, "process_resident_memory_bytes")
    assert rss == pytest.approx(int(proc["VmRSS"].split()[0]) * 1024, rel=0.2)
    assert abs(prom.value(families, "process_threads") - int(proc["Threads"])) <= 4
    assert abs(prom.value(families, "process_open_fds") - len(os.listdir(f"/proc/{fs.pid}/fd"))) <= 4
    assert 0 < prom.value(families, "process_cpu_seconds_total") < 3600
    started = prom.value(families, "process_start_time_seconds")
    assert 0 <= time.time() - started < 3600
    time.sleep(0.1)
    assert prom.value(read(fs), "process_start_time_seconds") == started


@pytest.mark.options(dram="16M")
def test_eviction_ages_count_what_was_evicted(mount):
    """Every eviction has an age, of a plausible size."""
    for i in range(40):
        put(os.path.join(mount.path, f"f{i}"), os.urandom(MIB))
    families = read(mount)
    evicted = prom.value(families, "mooncakefs_evictions_total")
    assert evicted >= 20
    assert prom.value(families, AGE + "_count", tier="dram") == evicted
    assert prom.value(families, AGE + "_sum", tier="dram") <= evicted * 60


def test_a_failed_disk_shows_everywhere(new_mount):
    """A disk that cannot be used is failed in metrics, status.json and mooncakectl status, with the reason."""
    m = new_mount()
    good, bad = os.path.join(m.base, "good"), os.path.join(m.base, "bad")
    m.options["ssd"] = f"{good}:64M,ssd={bad}:64M"
    m.start()
    assert ctl("status", m.path).stdout.count(" ok ") == 2
    m.stop()
    shutil.rmtree(bad)
    put(bad, b"not a directory")
    m.expect_errors("bad")
    m.start()
    families = read(m)
    assert prom.value(families, "mooncakefs_tier_disks", tier="ssd") == 2
    assert prom.value(families, "mooncakefs_tier_failed_disks", tier="ssd") == 1
    assert prom.value(families, "mooncakefs_disk_failed", path=good) == 0
    assert prom.value(families, "mooncakefs_disk_failed", path=bad) == 1
    assert prom.value(families, "mooncakefs_disk_budget_bytes", path=bad) == 0
    by_path = {disk["path"]: disk for disk in m.status()["disks"]}
    assert (by_path[good]["state"], by_path[bad]["state"]) == ("ok", "failed") and by_path[bad]["reason"]
    text = ctl("status", m.path).stdout
    assert re.search(rf"^{bad} +failed ", text, re.M) and f"{bad}: {by_path[bad]['reason']}" in text


def test_a_name_that_is_not_utf8_breaks_neither_file(new_mount):
    """A mount point with any bytes and quotes in its name gives valid JSON and Prometheus text."""
    m = new_mount()
    m.path = os.path.join(m.base, os.fsdecode(b'm"\\n\xff\xc3\xbc'))
    os.mkdir(m.path)
    m.start()
    assert m.status()["mountpoint"].endswith('m"\\n?\u00fc')
    families = read(m)
    ((_, labels),) = families["mooncakefs_mount_info"].samples
    assert dict(labels)["mountpoint"].endswith('m"\\n?\u00fc')


def test_the_strict_parser_is_strict():
    """Each rule of the parser refuses a text that breaks it and nothing else."""
    def histogram(*lines):
        return "# HELP h x\n# TYPE h histogram\n" + "".join(f"h{line}\n" for line in lines)

    prom.parse(b"")
    prom.parse(histogram('_bucket{le="1"} 1', '_bucket{le="+Inf"} 2', "_sum 3", "_count 2").encode())
    for bad in ("x 1", "# TYPE x gauge\nx 1\n", "# HELP x y\nx 1\n", "# HELP x y\n# TYPE x gauge\ny 1\n",
                "# HELP x y\n# TYPE x gauge\nx 1\nx 1\n", "# HELP x y\n# TYPE x gauge\nx one\n",
                "# HELP x y\n# TYPE x gauge\nx{a=b} 1\n", '# HELP x y\n# TYPE x gauge\nx{a="\\x"} 1\n',
                "# HELP x y\n# TYPE x gauge\nx 1", "# HELP x y\n# TYPE x counter\nx 1\n",
                "# HELP x_total y\n# TYPE x_total counter\nx_total -1\n", "# HELP x_ms y\n# TYPE x_ms gauge\n",
                histogram('_bucket{le="1"} 1', "_sum 3", "_count 1"),
                histogram('_bucket{le="1"} 2', '_bucket{le="+Inf"} 1', "_sum 3", "_count 1"),
                histogram('_bucket{le="2"} 1', '_bucket{le="1"} 1', '_bucket{le="+Inf"} 1', "_sum 3", "_count 1"),
                histogram('_bucket{le="1"} 1', '_bucket{le="+Inf"} 1', "_sum 3", "_count 2"),
                histogram('_bucket{le="+Inf"} 1', "_count 1")):
        with pytest.raises(prom.BadExposition):
            prom.parse(bad.encode())


# ---- over HTTP ----

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def served(new_mount):
    port = free_port()
    m = new_mount(metrics=f"127.0.0.1:{port}").start()
    m.port = port
    return m


def ask(port, method="GET", path="/metrics", timeout=5):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=env.scaled(timeout))
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def test_http_serves_the_same_text(served):
    """GET /metrics is the text of .mooncake/metrics, with the type that Prometheus expects."""
    some_work(served.path)
    with urllib.request.urlopen(f"http://127.0.0.1:{served.port}/metrics", timeout=5) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        over_http = prom.parse(answer.read())
    families = read(served)
    assert set(over_http) == set(families)
    for name in ("mooncakefs_publishes_total", "mooncakefs_unlinks_total"):
        assert prom.value(over_http, name) == prom.value(families, name) >= 20


def test_http_refuses_all_else(served):
    """Other paths are 404, other methods 405, nonsense 400; HEAD has no body; it goes on serving."""
    assert ask(served.port, path="/")[0].status == 404
    assert ask(served.port, path="/metrics/../control")[0].status == 404
    for method in ("POST", "PUT", "DELETE"):
        answer, _ = ask(served.port, method)
        assert answer.status == 405 and answer.headers["Allow"] == "GET, HEAD"
    answer, body = ask(served.port, "HEAD")
    assert answer.status == 200 and body == b"" and int(answer.headers["Content-Length"]) > 1000
    for request in (b"NONSENSE\r\n\r\n", os.urandom(4096),
                    b"GET /" + b"x" * 100000 + b" HTTP/1.1\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", served.port), timeout=env.scaled(15)) as s:
            try:
                s.sendall(request)
                s.shutdown(socket.SHUT_WR)
                assert not s.recv(100).startswith(b"HTTP/1.1 200")
            except OSError:
                pass
    assert ask(served.port)[0].status == 200


@pytest.mark.limit(60)
def test_http_survives_clients_that_dawdle(served):
    """Connections that never finish a request are cut after ten seconds and then others are served."""
    dawdlers = [socket.create_connection(("127.0.0.1", served.port), timeout=30) for _ in range(20)]
    began = time.monotonic()
    for s in dawdlers:
        s.sendall(b"GET /metrics HTTP/1.1\r\n")
    while time.monotonic() - began < 8:
        for s in dawdlers[:5]:
            s.sendall(b"X: y\r\n")
        time.sleep(1)
    assert ask(served.port, timeout=30)[0].status == 200
    assert time.monotonic() - began < env.scaled(20)
    assert dawdlers[0].recv(1) == b""
    for s in dawdlers:
        s.close()
    assert len(os.listdir(f"/proc/{served.pid}/fd")) < 200


def test_http_serves_many_at_once(served):
    """More scrapers at a time than connections are allowed: each gets its answer."""
    failures = []

    def scrape():
        try:
            for _ in range(5):
                prom.parse(ask(served.port, timeout=20)[1])
        except Exception as e:  # noqa: BLE001 - whatever it is, the test is to say it
            failures.append(e)

    threads = [threading.Thread(target=scrape) for _ in range(30)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures


def test_http_is_off_unless_asked_for(mount):
    """Without metrics= the daemon listens nowhere."""
    inodes = set()
    for fd in os.listdir(f"/proc/{mount.pid}/fd"):
        target = os.readlink(f"/proc/{mount.pid}/fd/{fd}")
        if target.startswith("socket:"):
            inodes.add(target[8:-1])
    for table in ("tcp", "tcp6", "udp"):
        with open(f"/proc/net/{table}") as f:
            assert not inodes & {line.split()[9] for line in f.readlines()[1:]}


def test_http_address_that_cannot_be_had(new_mount):
    """A port that is taken, or an address of elsewhere, refuses the start and names both."""
    m = new_mount()
    m.expect_errors("metrics=")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        code, said = m.refuse(metrics=address)
        assert code == 1 and address in said and "in use" in said
    code, said = m.refuse(metrics="192.0.2.1:9100")
    assert code == 1 and "192.0.2.1:9100" in said
    code, said = m.refuse(metrics="9100")
    assert code == 2 and "metrics=9100" in said and "HOST:PORT" in said
    m.start()


def test_http_ends_with_the_daemon(served, client_a):
    """A stop does not wait for a client that holds a connection, and frees the port."""
    idle = socket.create_connection(("127.0.0.1", served.port), timeout=5)
    idle.sendall(b"GET /met")
    began = time.monotonic()
    served.stop()
    assert time.monotonic() - began < env.scaled(5)
    served.start()
    assert ask(served.port)[0].status == 200
    idle.close()


# ---- the Grafana board ----

def test_grafana_board_asks_for_what_is_there(mount):
    """Every metric and label that the board names is exported, and counters are shown as rates."""
    some_work(mount.path)
    families = read(mount)
    with open(os.path.join(env.REPO, "docs", "grafana", "mooncakefs.json")) as f:
        board = json.load(f)
    expressions = [t["expr"] for p in board["panels"] for t in p.get("targets", ())]
    expressions += [v["query"]["query"] if isinstance(v["query"], dict) else v["query"]
                    for v in board["templating"]["list"] if v["type"] == "query"]
    assert len(expressions) > 20
    sample_names = {key[0] for f in families.values() for key in f.samples}
    sample_names |= {name for name in families}
    for expression in expressions:
        names = re.findall(r"\b(?:mooncakefs|process)_[a-z0-9_]+", expression)
        assert names, expression
        for name in names:
            assert name in sample_names, (name, expression)
            if name.endswith(("_total", "_bucket", "_sum", "_count")):
                assert re.search(rf"(rate|increase|label_values)\({name}\b", expression), expression
        for label in re.findall(r"\b(tier|op)=", expression):
            assert any(label in dict(key[1]) for f in families.values() for key in f.samples)
    ids = [p["id"] for p in board["panels"]]
    assert len(ids) == len(set(ids))
    for panel in board["panels"]:
        position = panel["gridPos"]
        assert position["x"] + position["w"] <= 24


@pytest.mark.one_mode
def test_every_metric_is_in_the_handbook(cluster):
    """docs/operations.md names every metric that is exported, and none that is not."""
    put(cluster[0].at("f"), b"x")
    cluster.wait_everywhere("f", b"x")
    families = read(cluster[1])
    with open(os.path.join(env.REPO, "docs", "operations.md")) as f:
        text = f.read()
    named = set(re.findall(r"`((?:mooncakefs|process)_[a-z0-9_]+)`", text))
    counters = {f"mooncakefs_{c}_total" for c in cluster[1].status()["counters"]}
    assert set(families) - counters <= named, set(families) - counters - named
    assert named <= set(families), named - set(families)


def test_cost_does_not_grow_with_objects(fs, d):
    """A scrape with thousands of objects takes no longer than one with few, within a wide margin."""
    def best(n=15):
        took = math.inf
        for _ in range(n):
            began = time.monotonic()
            get(fs.control("metrics"))
            took = min(took, time.monotonic() - began)
        return took

    some_work(d)
    few = best()
    for i in range(5000):
        put(os.path.join(d, f"o{i}"), b"x")
    assert best() < 5 * few + 0.002


def test_ctl_metrics_json_has_every_series(fs, d):
    """mooncakectl metrics --json tells the same series as the text."""
    some_work(d)
    series = json.loads(ctl("metrics", "--json", fs.path).stdout)
    count = sum(len(f.samples) for f in read(fs).values())
    assert abs(len(series) - count) <= 30  # an operation asked for in between for the first time
