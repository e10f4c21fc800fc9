# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of daemons on an RDMA device, beside those of the integration tests.

device      the device, which can be removed; skips the test where tests/rdma/run.sh has not made one
key         path of a key file, for addresses that are no loopback ones
new_nodes   a function that makes clusters of nodes on the device: new_nodes(2, dram="64M"), not started
nodes       three for all tests of a file: a and b with RDMA, c with transport=tcp
lab         the same, with faults allowed; healed after the test
"""
import importlib.util
import os
import sys

import pytest

_INTEGRATION = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "integration")
sys.path[:0] = [_INTEGRATION, os.path.dirname(os.path.abspath(__file__))]

from harness import client, watchdog  # noqa: E402
from harness.cluster import write_key  # noqa: E402
from nodes import Device, RdmaCluster  # noqa: E402


def pytest_configure(config):
    """The fixtures, markers and limits of the integration tests; two files called conftest cannot be imported."""
    spec = importlib.util.spec_from_file_location("integration_conftest", os.path.join(_INTEGRATION, "conftest.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    del module.__file__  # fixtures of a conftest.py are for the files below it alone
    config.pluginmanager.register(module, "integration")


@pytest.fixture(scope="session", autouse=True)
def device():
    name = os.environ.get("MCFS_RDMA_DEVICE")
    if not name:
        pytest.skip("needs a device (tests/rdma/run.sh)")
    return Device(name)


@pytest.fixture(scope="session")
def key(tmp_path_factory):
    return write_key(str(tmp_path_factory.mktemp("key") / "key"))


@pytest.fixture
def new_nodes(new_cluster, key):
    def make(n, **options):
        return new_cluster(n, kind=RdmaCluster, **{"key": key, **options})

    return make


@pytest.fixture(scope="module")
def _shared_nodes(key):
    holder = {"nodes": None}
    yield holder
    if holder["nodes"]:
        with watchdog.Limit(60, "stopping the shared nodes"):
            problems = holder["nodes"].destroy()
        assert not problems, "\n".join(problems)


def _start_three(key):
    c = RdmaCluster(2, key=key, dram="192M")
    c.add("c", transport="tcp")
    return c.start()


@pytest.fixture
def nodes(_shared_nodes, key):
    c = _shared_nodes["nodes"]
    if c is None or not c.is_whole:
        _shared_nodes["nodes"] = None
        if c is not None:
            c.destroy()
        c = _shared_nodes["nodes"] = _start_three(key)
    for node in c:
        node.expected = []
    yield c
    problems = c.check()
    assert not problems, "\n".join(problems)


@pytest.fixture
def lab(nodes, device):
    nodes.expect_errors("peer|directory|fetch|remote|cluster|rdma")
    nodes.wait_pulls()
    yield nodes
    for c in list(client.live):
        c.destroy()
    if device.removal:
        for node in nodes:
            node.stop()
        device.come_back()
    nodes.heal()
