# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the integration tests.

mount       a mount of this test's own; @pytest.mark.options(dram="64M", ...) sets options
new_mount   a function that makes more of them: new_mount(dram="64M") -> Mount, not started
fs          one mount for all tests of a file
d           an empty directory of the test's own on fs
new_client  a function that starts a client process, see harness.client
live        fs, where buffers of sessions can be had; skips without passthrough
own_live    mount, likewise
new_session a function that opens sessions on it, each with a buffer: new_session(size)
s           one such session
cluster     three nodes and a directory server for all tests of a file; options(...) are those of each node
new_cluster a function that makes more of them: new_cluster(2, dram="64M") -> Cluster, not started
lab         cluster, with faults allowed: healed after the test, its nodes may report what is done to them
relay       a relay to put in front of a node, see harness.relay
cdir        a path, the same on all nodes of cluster, of an empty directory of the test's own

@pytest.mark.mooncake     the behaviour is mooncakefs's own: skipped on MCFS_TEST_DIR
@pytest.mark.limit(90)    seconds the test may take (default 60)
@pytest.mark.one_mode     how bytes reach the reader plays no part: run with passthrough only
@pytest.mark.no_asan      about packages or the terminal: not run again under AddressSanitizer
@pytest.mark.slow_asan    run again under AddressSanitizer with MCFS_LONG=1 only
"""
import os
import re
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from harness import client, cluster as cluster_module, env, mount as mount_module, progs  # noqa: E402
from harness import relay as relay_module, session, watchdog  # noqa: E402
from harness.session_lab import fresh_name  # noqa: E402

DEFAULT_LIMIT = 60


def pytest_configure(config):
    config.addinivalue_line("markers", "options(**options): -o options of the mount fixture")
    config.addinivalue_line("markers", "mooncake: behaviour that only mooncakefs has")
    config.addinivalue_line("markers", "limit(seconds): time limit of the test")
    config.addinivalue_line("markers", "one_mode: the same with passthrough and without: run once")
    config.addinivalue_line("markers", "no_asan: not run again under AddressSanitizer")
    config.addinivalue_line("markers", "slow_asan: run again under AddressSanitizer with MCFS_LONG=1 only")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """What would be the same again is left out of the later runs, not counted as skipped there."""
    for i in items:
        if {"live", "own_live"} & set(i.fixturenames):  # there are no buffers without passthrough
            i.add_marker(pytest.mark.one_mode)
    left_out = {"one_mode"} if env.PASSTHROUGH == "off" else set()
    if "asan" in os.path.basename(env.BUILD):
        left_out.update({"no_asan"} if env.LONG else {"no_asan", "slow_asan"})
    again = [i for i in items if any(i.get_closest_marker(m) for m in left_out)]
    if again:
        config.hook.pytest_deselected(items=again)
        items[:] = [i for i in items if i not in again]


def pytest_unconfigure(config):
    progs.cleanup()


def pytest_runtest_setup(item):
    if env.PLAIN_DIR and item.get_closest_marker("mooncake"):
        pytest.skip("behaviour of mooncakefs only (MCFS_TEST_DIR is set)")


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_call(item):
    marker = item.get_closest_marker("limit")
    with watchdog.Limit(marker.args[0] if marker else DEFAULT_LIMIT, item.nodeid):
        yield


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_fixture_setup(fixturedef, request):
    with watchdog.Limit(DEFAULT_LIMIT, f"fixture {fixturedef.argname}"):
        yield


def _report(problems):
    if problems:
        pytest.fail("\n".join(problems), pytrace=False)


@pytest.fixture
def new_mount():
    """Makes mounts that are not started yet; all are stopped and checked at the end."""
    env.require_daemon()
    made = []

    def make(**options):
        made.append(mount_module.Mount(**options))
        return made[-1]

    yield make
    problems = []
    with watchdog.Limit(DEFAULT_LIMIT, "stopping the mounts"):
        for c in list(client.live):
            c.destroy()
        for m in made:
            problems += m.destroy()
    _report(problems)


@pytest.fixture
def mount(request, new_mount):
    marker = request.node.get_closest_marker("options")
    return new_mount(**(marker.kwargs if marker else {})).start()


@pytest.fixture(scope="module")
def _shared():
    """Holds the mount of a file; a test that finds it broken replaces it."""
    holder = {"mount": None}
    yield holder
    if holder["mount"]:
        with watchdog.Limit(DEFAULT_LIMIT, "stopping the shared mount"):
            _report(holder["mount"].destroy())


@pytest.fixture
def fs(request, _shared):
    m = _shared["mount"]
    if m is None or not m.is_up:
        if m is not None:
            m.destroy()
        _shared["mount"] = None
        if env.PLAIN_DIR:
            m = mount_module.PlainDir()
        else:
            env.require_daemon()
            marker = request.node.get_closest_marker("options")
            m = mount_module.Mount(**(marker.kwargs if marker else {})).start()
        _shared["mount"] = m
    m.expected = []
    yield m
    m.check()
    problems, m.problems = m.problems, []
    _report(problems)


_serial = 0


def _own_name(request):
    global _serial
    _serial += 1
    return re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name)[:60] + f".{_serial}"


@pytest.fixture
def d(request, fs):
    path = os.path.join(fs.path, _own_name(request))
    os.mkdir(path)
    return path


@pytest.fixture
def new_client(request):
    """Starts client processes; all are ended before the mount is."""
    made = []

    def make(**kwargs):
        made.append(client.Client(**kwargs))
        return made[-1]

    yield make
    for c in made:
        c.destroy()


@pytest.fixture
def client_a(new_client):
    return new_client()


@pytest.fixture
def client_b(new_client):
    return new_client()


def _with_buffers(m):
    if not m.passthrough_live:
        pytest.skip("buffers need passthrough")
    return m


@pytest.fixture
def live(fs):
    """The shared mount, where buffers can be had."""
    return _with_buffers(fs)


@pytest.fixture
def own_live(mount):
    """The test's own mount, where buffers can be had."""
    return _with_buffers(mount)


@pytest.fixture
def new_session(live):
    made = []

    def make(size=4 * env.MIB, **more):
        made.append(session.Session(live.path, fresh_name(), size, **more))
        return made[-1]

    yield make
    for s in made:
        s.close()


@pytest.fixture
def s(new_session):
    return new_session()


@pytest.fixture
def new_cluster():
    """Makes clusters that are not started yet; all are stopped and checked at the end."""
    env.require_daemon()
    made = []

    def make(*args, kind=cluster_module.Cluster, **options):
        made.append(kind(*args, **options))
        return made[-1]

    yield make
    problems = []
    with watchdog.Limit(DEFAULT_LIMIT, "stopping the clusters"):
        for c in list(client.live):
            c.destroy()
        for c in made:
            problems += c.destroy()
    _report(problems)


@pytest.fixture(scope="module")
def _shared_cluster():
    """Holds the cluster of a file; a test that finds it broken replaces it."""
    holder = {"cluster": None}
    yield holder
    if holder["cluster"]:
        with watchdog.Limit(DEFAULT_LIMIT, "stopping the shared cluster"):
            _report(holder["cluster"].destroy())


@pytest.fixture
def cluster(request, _shared_cluster):
    c = _shared_cluster["cluster"]
    if c is None or not c.is_whole:
        _shared_cluster["cluster"] = None
        if c is not None:
            c.destroy()
        env.require_daemon()
        marker = request.node.get_closest_marker("options")
        c = cluster_module.Cluster(**(marker.kwargs if marker else {}))
        try:
            c.start()
        except BaseException:
            c.destroy()
            raise
        _shared_cluster["cluster"] = c
    for node in c:
        node.expected = []
    yield c
    _report(c.check())


@pytest.fixture
def lab(cluster):
    cluster.expect_errors(r"peer|directory|fetch|remote|cluster")
    yield cluster
    cluster.heal()


@pytest.fixture
def relay():
    r = relay_module.Relay(cluster_module.HOST)
    yield r
    r.destroy()


@pytest.fixture
def cdir(request, cluster):
    return cluster.make_dir(_own_name(request))
