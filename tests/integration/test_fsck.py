# SPDX-License-Identifier: Apache-2.0
"""mooncakectl fsck on the state of a stopped daemon, mooncakectl scrub on a running one."""
import glob
import json
import os
import signal
import subprocess
import time

import pytest

from harness import env
from harness.content import flip, get, n_intact, pattern, peek, put, wait_for
from harness.ctl import check_ctl, ctl, ctl_json

pytestmark = [pytest.mark.mooncake, pytest.mark.one_mode]
MIB = env.MIB


# ---- helpers ----

def fill(m, n=30, size=5000):
    """n files of class cache and n of class keep. Returns path -> bytes."""
    kept = os.path.join(m.path, "weights")
    os.mkdir(kept)
    files = {os.path.join(m.path, f"f{i}"): pattern(i, size + i) for i in range(n)}
    files.update({os.path.join(kept, f"w{i}"): pattern(-i - 1, size + i) for i in range(n)})
    for path, data in files.items():
        put(path, data)
    return files


def ssd_frames(m):
    found = sorted(glob.glob(m.state + "/ssd/??/??/" + "[0-9a-f]" * 16))
    assert found
    return found


def fsck(m, *args):
    """(exit status, document) of fsck --json."""
    done = ctl("fsck", "--json", *args, m.state)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def kinds(document):
    return {f["kind"]: f["count"] for f in document["findings"]}


# ---- fsck ----

def test_a_stopped_daemon_leaves_a_clean_state(mount):
    """Exit 0, and the counts are those of what was written."""
    files = fill(mount)
    mount.terminate()
    code, found = fsck(mount, "--data")
    assert code == 0 and found["clean"] and found["complete"] and not found["findings"]
    assert found["files"] == found["objects"] == len(files)
    assert found["bytes"] == sum(map(len, files.values()))
    tiers = {t["name"]: t for t in found["tiers"]}
    assert tiers["dram"]["frames"] == len(files)
    assert tiers["ssd"]["frames"] == len(files) // 2
    assert found["checked_bytes"] == sum(len(d) for p, d in files.items() if "weights" in p)
    text = check_ctl("fsck", mount.state)
    assert f"{mount.state}: clean." in text
    mount.start()
    assert n_intact(files) == len(files)


def test_it_refuses_while_the_daemon_runs(mount):
    """Exit 1 and the daemon's pid; --repair too."""
    for args in ((), ("--repair",)):
        done = ctl("fsck", *args, mount.state)
        assert done.returncode == 1 and f"pid {mount.pid}" in done.stderr, done.stderr


@pytest.mark.parametrize("args", [(), ("--ssd",), ("--nonsense", "x"), ("a", "b")])
def test_usage(args):
    """Exit 2."""
    env.require_daemon()
    assert ctl("fsck", *args).returncode == 2


def test_no_state_directory(tmp_path):
    """Exit 1 and what is missing; nothing is made there."""
    env.require_daemon()
    done = ctl("fsck", "--repair", tmp_path)
    assert done.returncode == 1 and "no state directory" in done.stderr
    assert os.listdir(tmp_path) == []


def test_a_killed_daemon_leaves_leftovers_at_most(mount):
    """Frames of drafts and of the free list: fsck says that the next start removes them, or removes them."""
    files = fill(mount)
    for i in range(5):
        os.unlink(os.path.join(mount.path, f"f{i}"))
        del files[os.path.join(mount.path, f"f{i}")]
    fd = os.open(os.path.join(mount.path, "draft"), os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"never closed")
    mount.kill9()
    mount.umount_lazy()
    code, found = fsck(mount)
    assert code == 1 and set(kinds(found)) == {"orphan_frames"}
    assert all(f["leftover"] for f in found["findings"])
    assert "Leftovers alone" in ctl("fsck", mount.state).stdout
    code, found = fsck(mount, "--repair")
    assert code == 0 and found["clean"] and found["findings"][0]["repaired"] > 0
    assert fsck(mount)[0] == 0
    mount.start()
    assert n_intact(files) == len(files)


def test_after_a_reboot(mount):
    """Objects that were in DRAM alone are leftovers; what is on the ssd stays."""
    files = fill(mount)
    mount.terminate()
    mount.lose_dram()
    code, found = fsck(mount)
    assert code == 1 and kinds(found) == {"lost_with_dram": len(files) // 2}
    assert not found["tiers"][0]["present"]
    assert fsck(mount, "--repair")[0] == 0
    assert fsck(mount)[1]["objects"] == len(files) // 2
    mount.start()
    assert n_intact(files) == len(files) // 2


def test_frames_changed_behind_the_back(mount):
    """Deleted, cut, flipped and swapped frames: found, repaired, and no wrong byte is read afterwards."""
    files = fill(mount)
    mount.terminate()
    mount.lose_dram()
    assert fsck(mount, "--repair")[0] == 0
    gone, cut, flipped, one, other = ssd_frames(mount)[:5]
    os.unlink(gone)
    os.truncate(cut, os.path.getsize(cut) - 1)
    flip(flipped, 100)
    same = os.path.getsize(one) == os.path.getsize(other)
    os.rename(one, one + "x")
    os.rename(other, one)
    os.rename(one + "x", other)
    code, found = fsck(mount, "--data")
    assert code == 1
    n_size, n_bytes = (1, 3) if same else (3, 1)
    assert kinds(found) == {"names_without_bytes": 5, "wrong_frame_sizes": n_size,
                            "wrong_frame_bytes": n_bytes}
    code, found = fsck(mount, "--data", "--repair")
    assert code == 0 and found["clean"]
    assert fsck(mount, "--data")[0] == 0
    mount.start()
    assert n_intact(files) == len(files) // 2 - 5


def test_a_bad_copy_with_a_good_one_in_dram(mount):
    """The copy goes, no name does."""
    files = fill(mount)
    mount.terminate()
    flip(ssd_frames(mount)[0], 10)
    code, found = fsck(mount, "--data")
    assert code == 1 and kinds(found) == {"wrong_frame_bytes": 1}
    assert fsck(mount, "--data", "--repair")[0] == 0
    mount.start()
    assert n_intact(files) == len(files)


def test_the_ssd_directory_is_named(mount):
    """--ssd in place of what the state directory says."""
    fill(mount)
    mount.terminate()
    assert ctl("fsck", "--ssd", mount.state + "/ssd", mount.state).returncode == 0


def test_a_promise_is_told_and_kept(mount):
    """An fsynced draft of a daemon that died is counted, survives a repair, and is published."""
    path = os.path.join(mount.path, "promised")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.write(fd, b"as of the fsync")
    os.fsync(fd)
    mount.kill9()
    mount.umount_lazy()
    code, found = fsck(mount, "--repair")
    assert code == 0 and found["fsynced_drafts"] == 1
    mount.start()
    assert get(path) == b"as of the fsync"


# ---- the sweep after a start ----

def test_orphans_go_in_the_background_of_a_start(mount):
    """Frames that no record names are removed once the mount answers, counted and logged; no other is."""
    files = fill(mount, n=5)
    mount.terminate()
    frames = ssd_frames(mount)
    folder, name = os.path.split(frames[0])
    # The lowest ten bits of an id do not tell its directory.
    taken = {int(os.path.basename(p), 16) for p in frames}
    base = int(name, 16) & ~1023
    orphans = [f"{folder}/{base + k:016x}" for k in range(100) if base + k not in taken]
    for path in orphans:
        put(path, b"nobody's")
    mount.start()
    wait_for(lambda: mount.counter("orphans") >= len(orphans), 10, "the sweep")
    assert ssd_frames(mount) == frames
    assert n_intact(files) == len(files)


# ---- scrub ----

def scrub(m):
    return m.status()["scrub"]


def test_scrub_of_good_frames(mount):
    """Exit 0; every frame was read."""
    assert scrub(mount)["state"] == "idle"
    files = fill(mount, n=10)
    result = ctl_json("scrub", mount.path)
    assert result["state"] == "finished" and result["checked"] == 10 and result["bad"] == 0
    assert result["checked_bytes"] == sum(len(d) for p, d in files.items() if "weights" in p)
    assert "10 frames" in check_ctl("scrub", mount.path, "--rate", "1G/s")


def test_scrub_drops_bad_copies(mount):
    """Exit 1 and a counter; what is in DRAM as well lives on, the rest is a miss."""
    files = fill(mount, n=10)
    mount.terminate()
    mount.lose_dram()
    mount.start()
    mount.expect_errors("frame|object")
    for path in ssd_frames(mount)[:3]:
        flip(path, 7)
    done = ctl("scrub", "--json", mount.path)
    result = json.loads(done.stdout)
    assert done.returncode == 1 and result["bad"] == 3 and result["checked"] == 10
    assert mount.counter("corrupt") == 3
    assert n_intact(files) == 7
    assert ctl_json("scrub", mount.path)["bad"] == 0


def test_scrub_keeps_to_its_rate_and_can_be_stopped(mount):
    """Status shows it running; a second one is refused; --stop ends it; so does Ctrl-C of the client."""
    fill(mount, n=4, size=2 * MIB)
    assert ctl_json("scrub", "--detach", "--rate", "1M", mount.path)["state"] == "running"
    done = ctl("scrub", mount.path)
    assert done.returncode == 1 and "already" in done.stderr
    wait_for(lambda: scrub(mount)["checked_bytes"] > 0, 5, "progress")
    assert scrub(mount)["checked_bytes"] < 6 * MIB
    assert ctl_json("scrub", "--stop", mount.path)["state"] == "stopped"
    with subprocess.Popen([env.CTL, "scrub", "--rate", "1M", mount.path], stdout=subprocess.PIPE,
                          text=True) as p:
        wait_for(lambda: scrub(mount)["state"] == "running", 5, "a scrub that runs")
        p.send_signal(signal.SIGINT)
        assert p.wait(timeout=env.scaled(10)) == 1
        assert "scrub stopped" in p.stdout.read()
    assert scrub(mount)["state"] == "stopped"


def test_scrub_ends_with_the_daemon(mount):
    """A stop does not wait for it."""
    fill(mount, n=4, size=2 * MIB)
    ctl_json("scrub", "--detach", "--rate", "64K", mount.path)
    begin = time.monotonic()
    mount.stop()
    assert time.monotonic() - begin < env.scaled(10)


@pytest.mark.parametrize("args", [("--rate", "fast"), ("--rate", "0"), ("a", "b")])
def test_scrub_usage(args):
    """Exit 2."""
    env.require_daemon()
    assert ctl("scrub", *args).returncode == 2
