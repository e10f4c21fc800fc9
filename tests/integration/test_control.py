# SPDX-License-Identifier: Apache-2.0
"""The control files, the extended attributes and mooncakectl."""
import ctypes
import errno
import json
import os
import re
import subprocess
import time

import pytest

from harness import env
from harness.content import crc32c, exists, get, pattern, put, set_xattr, wait_for, xattr
from harness.ctl import check_ctl, ctl, ctl_json

pytestmark = pytest.mark.mooncake
MIB = env.MIB


@pytest.fixture
def f(d):
    path = os.path.join(d, "f")
    put(path, pattern("f", 100000))
    return path


# ---- .mooncake ----

def test_control_directory_is_hidden_but_there(fs):
    """.mooncake is not listed in the root, can be entered and listed, and exists nowhere else."""
    os.makedirs(os.path.join(fs.path, "sub"), exist_ok=True)
    assert ".mooncake" not in os.listdir(fs.path)
    assert ".mooncake" not in subprocess.run(["ls", "-a", fs.path], capture_output=True, text=True).stdout
    assert os.path.isdir(os.path.join(fs.path, ".mooncake"))
    assert {"status.json", "metrics", "control"} <= set(os.listdir(os.path.join(fs.path, ".mooncake")))
    assert not exists(os.path.join(fs.path, "sub", ".mooncake"))


def test_control_directory_cannot_be_changed(fs):
    """Nobody creates, removes, renames or replaces control files, not even root."""
    folder = os.path.join(fs.path, ".mooncake")
    other = os.path.join(fs.path, "control-test")
    put(other, b"x")
    for call in (lambda: put(os.path.join(folder, "new"), b""), lambda: os.mkdir(os.path.join(folder, "n")),
                 lambda: os.unlink(fs.control("status.json")), lambda: os.rmdir(folder),
                 lambda: os.rename(folder, other + "2"), lambda: os.rename(other, fs.control("metrics")),
                 lambda: os.rename(fs.control("metrics"), other), lambda: os.mkdir(folder),
                 lambda: os.symlink("x", folder), lambda: put(fs.control("status.json"), b"x"),
                 lambda: os.truncate(fs.control("metrics"), 0)):
        with pytest.raises(OSError):
            call()
    assert fs.status()["pid"] == fs.pid
    assert get(other) == b"x"


def test_status_json(fs, d):
    """status.json is JSON with the documented members, true ones."""
    put(os.path.join(d, "f"), b"x" * MIB)
    s = fs.status()
    assert isinstance(s["version"], str) and s["version"]
    with open(os.path.join(env.REPO, "VERSION")) as version:
        assert s["version"] == version.read().strip()
    with open(f"/proc/{s['pid']}/comm") as comm:
        assert comm.read().startswith("mooncakefs")
    assert isinstance(s["node"], str) and s["node"]
    assert (s["mountpoint"], s["state_dir"]) == (fs.path, fs.state)
    assert 0 <= s["uptime_s"] < 3600
    assert isinstance(s["passthrough"]["live"], bool) and isinstance(s["passthrough"]["reason"], str)
    if env.PASSTHROUGH == "off":
        assert s["passthrough"]["live"] is False and "off" in s["passthrough"]["reason"]
    elif not s["passthrough"]["live"]:
        assert s["passthrough"]["reason"]
    dram = next(t for t in s["tiers"] if t["name"] == "dram")
    assert dram["budget_bytes"] == 256 * MIB and MIB <= dram["used_bytes"] <= dram["budget_bytes"]
    assert 1 <= s["objects"]["count"] <= s["objects"]["max"] == 256 * MIB // 4096
    assert s["drafts"]["open"] == 0
    assert s["counters"]["publishes"] >= 1
    assert all(isinstance(v, int) and v >= 0 for v in s["counters"].values())
    for tier in s["tiers"]:
        assert tier["low_watermark_bytes"] < tier["high_watermark_bytes"] <= tier["budget_bytes"]
        assert (tier["disks"], tier["failed_disks"]) == (1, 0)
    (disk,) = s["disks"]
    assert (disk["state"], disk["reason"], disk["errors"]) == ("ok", "", 0) and os.path.isdir(disk["path"])
    assert s["residency"]["writeback_queue"]["objects"] >= 0
    assert s["process"]["threads"] > 1 and 0 < s["process"]["open_fds"] < s["process"]["max_fds"]
    assert s["latency"]["flush"]["count"] >= 1


def test_status_is_a_snapshot_of_its_open(fs, d):
    """A status file read byte by byte while things change is one valid document; the next open is newer."""
    fd = os.open(fs.control("status.json"), os.O_RDONLY)
    text = b""
    while True:
        piece = os.read(fd, 7)
        if not piece:
            break
        text += piece
        if len(text) < 300:
            put(os.path.join(d, "f"), text)
    os.close(fd)
    old = json.loads(text)
    assert fs.status()["counters"]["publishes"] > old["counters"]["publishes"]


def test_counters_count(fs, d):
    """creates, publishes, bytes and unlinks move by what was done."""
    before = fs.status()["counters"]
    for i in range(7):
        put(os.path.join(d, f"f{i}"), b"x" * 1000)
    put(os.path.join(d, "f0"), b"y" * 500)
    for i in range(3):
        os.unlink(os.path.join(d, f"f{i}"))
    moved = {k: v - before[k] for k, v in fs.status()["counters"].items()}
    assert moved["publishes"] == 8 and moved["publish_bytes"] == 7500
    assert moved["publish_replaces"] == 1 and moved["unlinks"] == 3
    assert moved["creates"] == 7 and moved["write_bytes"] == 7500


def test_reads_go_the_way_the_status_says(fs, f):
    """With passthrough live the daemon serves no READ of an object; without, all of them."""
    before = fs.status()["counters"]
    assert get(f) == pattern("f", 100000)
    after = fs.status()["counters"]
    live = fs.passthrough_live
    if live:
        assert after["opens_passthrough"] == before["opens_passthrough"] + 1
        assert after["opens_direct"] == before["opens_direct"]
        assert after["read_bytes"] == before["read_bytes"]
    else:
        assert after["opens_direct"] == before["opens_direct"] + 1
        assert after["opens_passthrough"] == 0
        assert after["read_bytes"] == before["read_bytes"] + 100000


# ---- extended attributes ----

def test_xattrs_of_an_object(f):
    """tier, state, version, class, pin, ttl_s of a fresh object; a hint that nobody gave is ENODATA."""
    assert xattr(f, "tier") == "dram"
    assert xattr(f, "state") == "ready"
    assert xattr(f, "eta_us") == "0"
    assert int(xattr(f, "version"), 0) > 0
    assert xattr(f, "class") == "cache"
    assert xattr(f, "pin") == "0"
    assert xattr(f, "ttl_s") == "0"
    with pytest.raises(OSError) as e:
        xattr(f, "hint")
    assert e.value.errno == errno.ENODATA


def test_listxattr_names_what_was_set(f):
    """listxattr names what users set, not facts about the object: copying tools carry wishes only."""
    assert os.listxattr(f) == []
    set_xattr(f, "hint", "soon")
    set_xattr(f, "class", "keep")
    assert set(os.listxattr(f)) == {"user.mooncake.hint", "user.mooncake.class"}
    subprocess.run(["cp", "-a", f, f + "2"], check=True)
    assert (xattr(f + "2", "hint"), xattr(f + "2", "class")) == ("soon", "keep")
    for name in ("hint", "class"):
        os.removexattr(f, "user.mooncake." + name)
    assert os.listxattr(f) == [] and xattr(f, "class") == "cache"


@pytest.mark.parametrize("size", [0, 1, 4096, 100000, MIB, 2 * MIB + 17])
def test_crc32c_is_that_of_the_bytes(d, size):
    """user.mooncake.crc32c is one CRC32C per MiB of content, eight hex digits each, however it was written."""
    path, data = os.path.join(d, "f"), pattern("crc", size)
    put(path, data)
    expected = ",".join(f"{crc32c(data[i:i + MIB]):08x}" for i in range(0, size, MIB))
    assert xattr(path, "crc32c") == expected
    out_of_order = os.path.join(d, "g")
    fd = os.open(out_of_order, os.O_WRONLY | os.O_CREAT)
    half = size // 2
    os.pwrite(fd, data[half:], half)
    os.pwrite(fd, data[:half], 0)
    os.pwrite(fd, data[half:], half)
    os.close(fd)
    assert xattr(out_of_order, "crc32c") == expected


@pytest.mark.parametrize("name, values", [
    ("class", ["keep", "pinned", "cache"]), ("pin", ["1", "0"]), ("ttl_s", ["3600", "0"]),
    ("hint", ["turn=3;offset=12", "ü", "x" * 255]),
])
@pytest.mark.parametrize("what", ["object", "directory"])
def test_settable_xattrs(d, f, name, values, what):
    """class, pin, ttl_s and hint read back what was set, on objects and on directories."""
    target = f if what == "object" else d
    for value in values:
        set_xattr(target, name, value)
        assert xattr(target, name) == value


@pytest.mark.parametrize("name, value", [("class", "gold"), ("class", ""), ("pin", "2"), ("pin", "yes"),
                                         ("ttl_s", "-1"), ("ttl_s", "soon"), ("ttl_s", "99999999999"),
                                         ("class", "x" * 300)])
def test_bad_values_are_refused(f, name, value):
    """A value that means nothing is EINVAL (or too long) and changes nothing."""
    before = xattr(f, name)
    with pytest.raises(OSError) as e:
        set_xattr(f, name, value)
    assert e.value.errno in (errno.EINVAL, errno.ERANGE, errno.E2BIG)
    assert xattr(f, name) == before


@pytest.mark.parametrize("value", ["", "x" * 256, "x" * 5000])
def test_bad_hints_are_refused(f, value):
    """A hint is 1 to 255 bytes; another length is refused and leaves the old one."""
    set_xattr(f, "hint", "old")
    with pytest.raises(OSError) as e:
        set_xattr(f, "hint", value)
    assert e.value.errno in (errno.EINVAL, errno.ERANGE, errno.E2BIG)
    assert xattr(f, "hint") == "old"


@pytest.mark.parametrize("name", ["tier", "state", "eta_us", "holders", "version", "crc32c"])
def test_read_only_xattrs(f, name):
    """What describes the object cannot be set."""
    before = xattr(f, name)
    with pytest.raises(OSError):
        set_xattr(f, name, "1")
    assert xattr(f, name) == before


def test_unknown_xattrs(f):
    """An attribute that nobody set is ENODATA; unknown user.mooncake names cannot be set."""
    for name in ("user.mooncake.none", "user.other", "security.capability"):
        with pytest.raises(OSError) as e:
            os.getxattr(f, name)
        assert e.value.errno in (errno.ENODATA, errno.EOPNOTSUPP)
    with pytest.raises(OSError):
        set_xattr(f, "none", "1")


def test_xattr_sizes(f):
    """getfattr's way: ask for the size first; a buffer too small is ERANGE."""
    libc = ctypes.CDLL(None, use_errno=True)
    path, name = os.fsencode(f), b"user.mooncake.class"
    assert libc.getxattr(path, name, None, 0) == 5
    assert libc.getxattr(path, name, ctypes.create_string_buffer(2), 2) == -1
    assert ctypes.get_errno() == errno.ERANGE
    set_xattr(f, "hint", "soon")
    assert libc.listxattr(path, None, 0) == len("user.mooncake.hint") + 1
    assert libc.listxattr(path, ctypes.create_string_buffer(3), 3) == -1
    assert ctypes.get_errno() == errno.ERANGE
    env.require_tool("getfattr")
    out = subprocess.run(["getfattr", "--absolute-names", "-d", f], capture_output=True, text=True)
    assert 'user.mooncake.hint="soon"' in out.stdout


def test_attributes_are_inherited_from_directories(d):
    """What is created in a directory gets its class, pin, ttl_s and hint, subdirectories included."""
    for name, value in (("class", "keep"), ("pin", "1"), ("ttl_s", "7200"), ("hint", "prefill")):
        set_xattr(d, name, value)
    os.mkdir(os.path.join(d, "sub"))
    for path in (os.path.join(d, "f"), os.path.join(d, "sub", "g")):
        put(path, b"x")
        assert [xattr(path, n) for n in ("class", "pin", "ttl_s", "hint")] == ["keep", "1", "7200", "prefill"]
    set_xattr(d, "class", "cache")
    put(os.path.join(d, "later"), b"x")
    assert xattr(os.path.join(d, "later"), "class") == "cache"
    assert xattr(os.path.join(d, "f"), "class") == "keep"


def test_weights_are_kept_by_default(fs):
    """Below weights/ in the root the class is keep, elsewhere cache."""
    folder = os.path.join(fs.path, "weights", "model", "v1")
    os.makedirs(folder, exist_ok=True)
    put(os.path.join(folder, "w"), b"x")
    assert xattr(os.path.join(folder, "w"), "class") == "keep"
    elsewhere = os.path.join(fs.path, "elsewhere", "weights")
    os.makedirs(elsewhere, exist_ok=True)
    put(os.path.join(elsewhere, "w"), b"x")
    assert xattr(os.path.join(elsewhere, "w"), "class") == "cache"


def test_attributes_survive_overwrite_rename_and_restart(mount):
    """A set attribute stays with the name through a new version and a rename, and over a daemon restart."""
    path, moved = os.path.join(mount.path, "f"), os.path.join(mount.path, "g")
    put(path, b"1")
    set_xattr(path, "hint", "mine")
    set_xattr(path, "pin", "1")
    put(path, b"2")
    assert (xattr(path, "hint"), xattr(path, "pin")) == ("mine", "1")
    os.rename(path, moved)
    assert (xattr(moved, "hint"), xattr(moved, "pin")) == ("mine", "1")
    mount.kill9()
    mount.remount()
    assert (xattr(moved, "hint"), xattr(moved, "pin")) == ("mine", "1")


# ---- mooncakectl ----

def test_ctl_status(fs, f):
    """status --json is status.json; without --json a person reads mount, tiers and passthrough."""
    s = ctl_json("status", fs.path)
    assert (s["pid"], s["mountpoint"]) == (fs.pid, fs.path)
    assert ctl_json("status", f)["pid"] == fs.pid
    assert ctl_json("status", "--mount", fs.path)["pid"] == fs.pid
    text = check_ctl("status", fs.path)
    assert fs.path in text and "dram" in text and "passthrough" in text
    assert re.search(r"^write-back +[\d,]+ objects wait", text, re.M)
    assert re.search(r"^flush +[\d,]+ +[\d.]+ (us|ms|s) +[\d.]+ (us|ms|s)$", text, re.M)


def test_ctl_stat(f):
    """stat shows size, inode and attributes; several paths; a missing one is told and exit 1."""
    (s,) = ctl_json("stat", f)
    st = os.stat(f)
    assert (s["size_bytes"], s["inode"], s["type"]) == (100000, st.st_ino, "file")
    assert (s["tier"], s["state"], s["class"], s["pin"]) == ("dram", "ready", "cache", 0)
    assert s["crc32c"] == f"{crc32c(get(f)):08x}"
    assert "dram" in check_ctl("stat", f)
    p = ctl("stat", f, f + ".none", "--json")
    assert p.returncode == 1 and f + ".none" in p.stderr
    assert [bool(x.get("error")) for x in json.loads(p.stdout)] == [False, True]


def test_ctl_lookup(f):
    """lookup tells ready objects from missing ones."""
    found, missing = json.loads(ctl("lookup", f, f + ".none", "--json").stdout)
    assert (found["exists"], found["state"], found["tier"], found["size_bytes"]) == (True, "ready", "dram", 100000)
    assert missing["exists"] is False
    assert ctl("lookup", f).returncode == 0 and ctl("lookup", f + ".none").returncode == 1


def test_ctl_pin_and_class(d, f):
    """pin, unpin and class set the attributes; a directory's hold for what is created later."""
    check_ctl("pin", f, d)
    assert (xattr(f, "pin"), xattr(d, "pin")) == ("1", "1")
    put(os.path.join(d, "later"), b"x")
    assert xattr(os.path.join(d, "later"), "pin") == "1"
    check_ctl("unpin", f)
    assert xattr(f, "pin") == "0"
    check_ctl("class", "keep", f)
    assert xattr(f, "class") == "keep"
    assert ctl("class", "gold", f).returncode == 2
    assert ctl("pin", f + ".none").returncode == 1


def test_ctl_metrics(fs):
    """metrics prints the metrics; --json has them by series."""
    assert "mooncakefs_publishes_total" in check_ctl("metrics", fs.path)
    assert isinstance(ctl_json("metrics", fs.path)["mooncakefs_publishes_total"], int)


def test_ctl_usage(tmp_path):
    """Wrong usage is exit 2, no mount is exit 1 with the path, --help and --version are 0."""
    env.require_daemon()
    for argv in ((), ("dance",), ("stat",), ("status", "--nonsense"), ("status", "a", "b")):
        p = ctl(*argv)
        assert p.returncode == 2 and p.stderr, argv
    p = ctl("status", tmp_path)
    assert p.returncode == 1 and str(tmp_path) in p.stderr
    for argv in (("--help",), ("--version",), ("status", "--help")):
        p = ctl(*argv)
        assert p.returncode == 0 and p.stdout and not p.stderr


def test_ctl_stop_leaves_the_cache(mount):
    """stop ends daemon and mount and leaves DRAM; the next start has the objects."""
    path = os.path.join(mount.path, "f")
    put(path, pattern(1, MIB))
    out = ctl_json("stop", mount.path)
    mount.wait_end(2)
    assert out["stopped"] is True and out["dram_freed"] is False and out["dram_bytes"] >= MIB
    assert not os.path.ismount(mount.path)
    assert mount.dram_mounts() == [out["dram_path"]]
    mount.start()
    assert get(path) == pattern(1, MIB)
    text = check_ctl("stop", mount.path)
    mount.wait_end(2)
    assert "umount" in text


def test_ctl_stop_free(mount):
    """stop --free gives the DRAM back; cache objects are gone at the next start, keep objects are not."""
    os.mkdir(os.path.join(mount.path, "weights"))
    for name in ("f", "weights/w"):
        put(os.path.join(mount.path, name), pattern(1, MIB))
    out = ctl_json("stop", "--free", mount.path)
    mount.wait_end(2)
    assert out["dram_freed"] is True
    assert mount.dram_mounts() == []
    mount.start()
    assert not exists(os.path.join(mount.path, "f"))
    assert get(os.path.join(mount.path, "weights", "w")) == pattern(1, MIB)


def test_ctl_stop_with_files_open(mount, client_a):
    """stop while a client has files open: the daemon ends in bounded time and what was closed is kept."""
    put(os.path.join(mount.path, "f"), b"closed")
    client_a.os.open(os.path.join(mount.path, "f"), os.O_RDONLY)
    fd = client_a.os.open(os.path.join(mount.path, "g"), os.O_RDWR | os.O_CREAT, 0o644)
    client_a.os.write(fd, b"half")
    began = time.monotonic()
    ctl("stop", "--timeout", "15", mount.path)
    mount.wait_end(2)
    assert time.monotonic() - began < env.scaled(15)
    client_a.exit()
    mount.remount()
    assert os.listdir(mount.path) == ["f"]
    assert get(os.path.join(mount.path, "f")) == b"closed"


def test_control_file_refuses_nonsense(fs):
    """An order that does not exist is EINVAL, and the daemon lives on."""
    for order in (b"", b"dance\n", b"stop later\n", b"x" * 5000, bytes(10)):
        fd = os.open(fs.control("control"), os.O_WRONLY)
        try:
            if order:
                with pytest.raises(OSError):
                    os.write(fd, order)
        finally:
            try:
                os.close(fd)
            except OSError:
                pass
    wait_for(lambda: fs.status()["pid"] == fs.pid, 1, "it answers")
