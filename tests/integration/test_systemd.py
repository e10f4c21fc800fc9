# SPDX-License-Identifier: Apache-2.0
"""The systemd unit: read by systemd-analyze, and run by a real systemd, process 1 of a box."""
import glob
import json
import os
import re

import pytest

from harness import env
from harness.box import Box
from harness.content import wait_for

pytestmark = [pytest.mark.mooncake, pytest.mark.one_mode, pytest.mark.no_asan]

UNIT = "mooncakefs@mnt-mooncake.service"
CONFIG = "/etc/mooncakefs/mnt-mooncake.conf"


def _boot():
    env.require_daemon()
    found = glob.glob(os.path.join(env.BUILD, "deb", "mooncakefs_*.deb"))
    if not found:
        pytest.skip(f"no package in {env.BUILD}/deb (make deb)")
    box = Box(systemd=True).__enter__()
    try:
        wait_for(lambda: box.run("systemctl", "is-system-running").stdout.strip() in ("running", "degraded"),
                 env.scaled(30), "systemd is up")
        box.copy_in(found[0], "/tmp/package.deb")
        box.check("dpkg", "--no-triggers", "-i", "/tmp/package.deb")
        box.sh(f"printf 'dram=64M\\nlog=/share/log\\n' >{CONFIG}")
    except BaseException:
        box.destroy()
        raise
    return box


@pytest.fixture(scope="module")
def machine():
    box = _boot()
    yield box
    box.destroy()


@pytest.fixture
def unit(machine):
    """A box whose unit is stopped and has no cache, before and after."""
    clear = f"""
        systemctl stop {UNIT}; systemctl reset-failed
        if mountpoint -q /var/lib/mooncakefs/dram; then umount /var/lib/mooncakefs/dram; fi
        rm -rf /var/lib/mooncakefs /etc/systemd/system/{UNIT}.d; systemctl daemon-reload; : >/share/log"""
    machine.sh(clear)
    yield machine
    machine.sh(clear)


def _show(box, *names):
    out = box.check("systemctl", "show", UNIT, *(f"-p{n}" for n in names))
    values = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    return values[names[0]] if len(names) == 1 else values


def _status(box):
    return json.loads(box.check("cat", "/mnt/mooncake/.mooncake/status.json"))


def _log(box):
    with open(box.share + "/log") as f:
        return f.read()


def _start(box):
    box.check("systemctl", "start", UNIT)


def test_unit_is_correct(machine):
    """systemd-analyze verify has nothing to say about the unit."""
    assert machine.check("systemd-analyze", "verify", "--man=no", UNIT).strip() == ""


def test_start_returns_when_the_mount_answers(unit):
    """After systemctl start the mount works, and systemd knows which process is the daemon."""
    _start(unit)
    unit.sh("echo x >/mnt/mooncake/f")
    shown = _show(unit, "ActiveState", "SubState", "MainPID")
    assert (shown["ActiveState"], shown["SubState"]) == ("active", "running")
    assert int(shown["MainPID"]) == _status(unit)["pid"]


def test_passthrough_under_the_hardening(unit):
    """The unit's restrictions take nothing away: passthrough, other users' files and processes."""
    unit.sh(f"echo allow_other >>{CONFIG}")
    _start(unit)
    unit.sh(f"sed -i /allow_other/d {CONFIG}")
    assert _status(unit)["passthrough"]["live"], _status(unit)["passthrough"]["reason"]
    unit.sh("""
        mkdir -m 1777 /mnt/mooncake/d
        setpriv --reuid=65534 --regid=65534 --clear-groups sh -ec '
            umask 077; echo secret >/mnt/mooncake/d/f; chmod 4711 /mnt/mooncake/d/f; cat /mnt/mooncake/d/f'
        test "$(stat -c %u:%a /mnt/mooncake/d/f)" = 65534:4711""")
    # Whose process it is does not matter to what a killed writer leaves.
    unit.sh("""
        setpriv --reuid=65534 --regid=65534 --clear-groups \\
            sh -c 'exec 3>/mnt/mooncake/d/half; echo x >&3; kill -9 $$' || :
        test ! -e /mnt/mooncake/d/half""")
    pid = _status(unit)["pid"]
    assert re.search(r"Max open files +(\d+) +\1 ", unit.check("cat", f"/proc/{pid}/limits"))


def test_stop_keeps_the_cache_and_start_adopts_it(unit):
    """systemctl stop ends in order and unmounts; systemctl start has the objects again."""
    _start(unit)
    unit.sh("head -c 5000000 /dev/urandom >/mnt/mooncake/f; cp /mnt/mooncake/f /tmp/f")
    unit.check("systemctl", "stop", UNIT)
    shown = _show(unit, "ActiveState", "Result")
    assert (shown["ActiveState"], shown["Result"]) == ("inactive", "success")
    assert "stay in DRAM" in _log(unit)
    unit.sh("! mountpoint -q /mnt/mooncake; mountpoint -q /var/lib/mooncakefs/dram; ! pgrep -x mooncakefs")
    _start(unit)
    unit.sh("cmp /tmp/f /mnt/mooncake/f")


def test_restart_after_a_kill(unit):
    """A killed daemon is started again by systemd, over its dead mount, with its cache."""
    _start(unit)
    unit.sh("echo kept >/mnt/mooncake/f")
    first = _status(unit)["pid"]
    unit.check("kill", "-9", str(first))
    wait_for(lambda: _show(unit, "ActiveState") == "active" and _show(unit, "MainPID") not in ("0", str(first)),
             env.scaled(20), "the unit is up again")
    assert unit.check("cat", "/mnt/mooncake/f") == "kept\n"
    assert unit.check("grep", "-c", " /mnt/mooncake ", "/proc/mounts").strip() == "1"
    assert _show(unit, "NRestarts") == "1"


def test_umount_ends_the_unit(unit):
    """umount by an administrator ends the unit without a failure and without a restart."""
    _start(unit)
    unit.check("umount", "/mnt/mooncake")
    wait_for(lambda: _show(unit, "ActiveState") == "inactive", env.scaled(20), "the unit has ended")
    assert _show(unit, "Result") == "success"
    assert "DRAM is freed" in _log(unit)


def test_wrong_option_is_a_failure_that_says_so(unit):
    """A configuration that the daemon refuses: start fails, the journal has the line, nothing is mounted."""
    unit.sh(f"cp {CONFIG} /tmp/conf; echo nonsense=1 >>{CONFIG}")
    done = unit.run("systemctl", "start", UNIT)
    unit.sh(f"cp /tmp/conf {CONFIG}")
    assert done.returncode != 0
    assert "nonsense" in unit.check("journalctl", "--no-pager", "-u", UNIT)
    unit.sh("! mountpoint -q /mnt/mooncake")
    unit.check("systemctl", "stop", UNIT)


def test_memory_limit_below_the_budget(unit):
    """MemoryMax= below dram=: refused at the start, with both numbers."""
    unit.sh(f"""
        mkdir -p /etc/systemd/system/{UNIT}.d
        printf '[Service]\\nMemoryMax=48M\\nRestart=no\\n' >/etc/systemd/system/{UNIT}.d/memory.conf
        systemctl daemon-reload""")
    assert unit.run("systemctl", "start", UNIT).returncode != 0
    said = _log(unit)
    assert str(64 << 20) in said and str(48 << 20) in said


def test_frames_are_charged_to_the_unit(unit):
    """What clients write counts as shared memory of the unit's cgroup, not of theirs."""
    _start(unit)
    before = int(_show(unit, "MemoryCurrent"))
    unit.sh("head -c 40000000 /dev/urandom >/mnt/mooncake/f")
    assert int(_show(unit, "MemoryCurrent")) - before > 36_000_000


def test_removal_of_the_package_stops_the_unit(unit):
    """dpkg -r ends the daemons that systemd started, in order; the cache stays."""
    _start(unit)
    try:
        unit.check("dpkg", "--no-triggers", "-r", "mooncakefs")
        assert "stay in DRAM" in _log(unit)
        unit.sh("! mountpoint -q /mnt/mooncake; ! pgrep -x mooncakefs")
    finally:
        unit.check("dpkg", "--no-triggers", "-i", "/tmp/package.deb")


def test_shutdown_stops_the_daemon_first():
    """At a shutdown the daemon is stopped before systemd unmounts what it uses, so the cache is kept in order."""
    box = _boot()
    try:
        _start(box)
        box.sh("echo x >/mnt/mooncake/f")
        # Whatever of the two stops in less time.
        assert {"mnt-mooncake.mount", "var-lib-mooncakefs-dram.mount"} <= set(_show(box, "After").split())
        box.run("systemctl", "--no-block", "poweroff")
        wait_for(lambda: box.proc.poll() is not None, env.scaled(30), "the box is off")
        assert "stay in DRAM" in _log(box)
        assert not re.search(r" (error|warn): ", _log(box))
    finally:
        box.destroy()
