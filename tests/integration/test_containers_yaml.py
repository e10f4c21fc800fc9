# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes examples of docs/containers.md: they parse, and have what the text around them promises."""
import os
import re

import pytest

from harness import env

yaml = pytest.importorskip("yaml", reason="needs python3-yaml")

pytestmark = [pytest.mark.mooncake, pytest.mark.one_mode, pytest.mark.no_asan]

STATUS = "/mnt/mooncake/.mooncake/status.json"


@pytest.fixture(scope="module")
def guide():
    with open(os.path.join(env.REPO, "docs", "containers.md")) as f:
        return f.read()


@pytest.fixture(scope="module")
def documents(guide):
    return {d["kind"]: d for block in re.findall(r"```yaml\n(.*?)```", guide, re.S) for d in yaml.safe_load_all(block)}


@pytest.fixture(scope="module")
def daemon(documents):
    """(pod spec, container) of the DaemonSet."""
    spec = documents["DaemonSet"]["spec"]["template"]["spec"]
    assert len(spec["containers"]) == 1
    return spec, spec["containers"][0]


def _gib(quantity):
    number, unit = re.fullmatch(r"(\d+)(Gi?)", quantity).groups()
    return int(number)


def _option(container, name):
    return re.search(rf"(?:^|,){name}=([^,]*)", container["args"][container["args"].index("-o") + 1]).group(1)


def test_kinds_and_selectors(documents):
    """A DaemonSet that selects its own pods, and a Pod."""
    assert set(documents) == {"DaemonSet", "Pod"}
    spec = documents["DaemonSet"]["spec"]
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    assert documents["DaemonSet"]["apiVersion"] == "apps/v1" and documents["Pod"]["apiVersion"] == "v1"


def test_daemon_has_what_it_needs(daemon):
    """The host's process ids, privileged, both volumes Bidirectional and on the host's disk."""
    spec, container = daemon
    assert spec["hostPID"] is True
    assert container["securityContext"]["privileged"] is True
    mounts = {m["mountPath"]: m for m in container["volumeMounts"]}
    assert set(mounts) == {"/mnt", "/var/lib/mooncakefs"}
    assert {m["mountPropagation"] for m in mounts.values()} == {"Bidirectional"}
    volumes = {v["name"]: v for v in spec["volumes"]}
    assert all("hostPath" in volumes[m["name"]] for m in mounts.values())
    assert container["args"][0] == "-f" and container["args"][-1] == "/mnt/mooncake"


def test_mount_point_is_made(daemon):
    """An init container makes the mount point in the folder that the daemon mounts in."""
    spec, container = daemon
    (init,) = spec["initContainers"]
    assert "mkdir -p /mnt/mooncake" in init["command"][-1]
    assert init["volumeMounts"][0]["name"] == container["volumeMounts"][0]["name"]


def test_memory_holds_the_budget(daemon):
    """The limit is at least what the rule of thumb asks for dram=, and the request equals it."""
    _, container = daemon
    limit = _gib(container["resources"]["limits"]["memory"])
    assert limit >= _gib(_option(container, "dram")) * 1.05 + 1
    assert container["resources"]["requests"]["memory"] == container["resources"]["limits"]["memory"]


def test_probes_and_stop(daemon):
    """Readiness reads status.json; the stop has its time, longer than the daemon's own limit; no liveness probe."""
    spec, container = daemon
    assert container["readinessProbe"]["exec"]["command"] == ["cat", STATUS]
    assert container["startupProbe"]["exec"]["command"] == ["cat", STATUS]
    assert "livenessProbe" not in container
    stop = container["lifecycle"]["preStop"]["exec"]["command"]
    assert stop[:2] == ["mooncakectl", "stop"]
    assert 600 < int(stop[stop.index("--timeout") + 1]) < spec["terminationGracePeriodSeconds"]


def test_client_follows_the_mount(documents, daemon):
    """The client has the same host folder by HostToContainer, in every container, no rights, and waits."""
    spec = documents["Pod"]["spec"]
    folder = {v["name"]: v["hostPath"]["path"] for v in spec["volumes"]}
    theirs = next(v["hostPath"]["path"] for v in daemon[0]["volumes"] if v["name"] == "mount")
    for container in spec["initContainers"] + spec["containers"]:
        (mount,) = container["volumeMounts"]
        assert mount["mountPropagation"] == "HostToContainer" and mount["mountPath"] == "/mnt"
        assert folder[mount["name"]] == theirs
        assert "securityContext" not in container
    assert "hostPID" not in spec
    assert STATUS in spec["initContainers"][0]["args"][0]


def test_docker_lines(guide):
    """The docker line of the daemon gives what the text asks for."""
    line = next(b for b in re.findall(r"```\n(docker run -d.*?)```", guide, re.S))
    for needed in ("--pid=host", "--device /dev/fuse", "--cap-add SYS_ADMIN", "--cap-add SYS_PTRACE"):
        assert needed in line
    assert line.count("bind-propagation=rshared") == 2 and line.count("bind-propagation=rslave") == 1
