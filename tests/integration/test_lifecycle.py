# SPDX-License-Identifier: Apache-2.0
"""Start, stop and death of the daemon: what is refused and how, what stays, how a mount comes back."""
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from harness import env
from harness.content import exists, get, pattern, put, wait_for, xattr
from harness.mount import mounts_below, umount
from harness.progs import prog

pytestmark = pytest.mark.mooncake
MIB = env.MIB


def adopted(m):
    """How many objects the daemon says it found again at its start."""
    def search(node):
        if isinstance(node, dict):
            for key, value in node.items():
                if "adopted" in key and isinstance(value, int):
                    yield value
                yield from search(value)
        elif isinstance(node, list):
            for value in node:
                yield from search(value)
    return max(search(m.status()), default=None)


# ---- start ----

def test_start_returns_when_the_mount_answers(new_mount):
    """The command returns only when the mount works, and its daemon is another process."""
    m = new_mount().start()
    put(os.path.join(m.path, "f"), b"x")
    assert os.path.ismount(m.path)
    assert m.status()["mountpoint"] == m.path
    with open(f"/proc/{m.pid}/stat") as f:
        assert f.read().split(") ")[1].split()[0] != "Z"


def test_foreground(new_mount):
    """-f stays in the foreground and ends with status 0 at umount and at SIGTERM."""
    for end in ("umount", "term"):
        m = new_mount()
        p = subprocess.Popen([env.DAEMON, "-f", "-o", m.option_text(), m.path],
                             stderr=subprocess.DEVNULL)
        wait_for(lambda: os.path.ismount(m.path) and exists(m.control("status.json")), 10, "it mounts")
        assert m.status()["pid"] == p.pid
        if end == "umount":
            assert umount(m.path) == ""
        else:
            p.send_signal(signal.SIGTERM)
        assert p.wait(timeout=env.scaled(15)) == 0
        assert not os.path.ismount(m.path)


def test_relative_mount_point_and_config_file(new_mount):
    """A relative mount point, and options from a file with comments, -o overriding it."""
    m = new_mount()
    config = os.path.join(m.base, "conf")
    put(config, f"# a test\ndram=512M\nstate={m.state}\n\nlog={m.log}  # the log\n".encode())
    code, said = m.launch(["env", "-C", m.base, env.DAEMON, "-c", config, "-o",
                           f"dram=64M,passthrough={env.PASSTHROUGH}", "mnt"])
    assert code == 0, said
    m.attach()
    assert m.status()["mountpoint"] == m.path
    assert m.tier()["budget_bytes"] == 64 * MIB


# ---- refusals: exit status and a message that names the culprit ----

def test_mount_point_missing(new_mount):
    """A mount point that does not exist: status 1, the path and ENOENT's text."""
    m = new_mount()
    os.rmdir(m.path)
    code, said = m.refuse()
    assert code == 1 and m.path in said and "No such file or directory" in said


def test_mount_point_is_a_file(new_mount):
    """A mount point that is a file: status 1, and the path."""
    m = new_mount()
    os.rmdir(m.path)
    put(m.path, b"")
    code, said = m.refuse()
    assert code == 1 and m.path in said and re.search("[Nn]ot a directory", said)


def test_mount_point_is_not_empty(new_mount):
    """A directory with files in it is refused by name, unless nonempty says so."""
    m = new_mount()
    put(os.path.join(m.path, "precious"), b"x")
    code, said = m.refuse()
    assert code == 1 and m.path in said and "empty" in said
    m.start(nonempty=True)
    assert os.listdir(m.path) == []
    m.stop()
    assert os.listdir(m.path) == ["precious"]


def test_mount_point_is_busy(new_mount):
    """A mount point that is a mooncakefs already: status 1, the path; the first mount is unharmed."""
    m, other = new_mount().start(), new_mount()
    put(os.path.join(m.path, "f"), b"x")
    os.rmdir(other.path)
    other.path, path = m.path, other.path
    code, said = other.refuse()
    other.path = path
    assert code == 1 and m.path in said
    assert get(os.path.join(m.path, "f")) == b"x"


def test_mount_point_is_stale(new_mount):
    """A mount point left by a killed daemon: cleared and used again, with a line that names it."""
    m = new_mount().start()
    _fill(m)
    m.kill9()
    m.start()
    assert re.search(re.escape(m.path) + ".*(stale|gone|dead|unmount)", m.said)
    assert len([where for where, _ in mounts_below(m.path) if where == m.path]) == 1
    _check_filled(m)


def test_state_directory_in_use(new_mount):
    """A state directory that another daemon uses: status 1, its path; the first daemon is unharmed."""
    m, other = new_mount().start(), new_mount()
    put(os.path.join(m.path, "f"), b"x")
    code, said = other.refuse(state=m.state)
    assert code == 1 and m.state in said
    assert get(os.path.join(m.path, "f")) == b"x"
    assert not os.path.ismount(other.path)


def test_state_directory_cannot_be_made(new_mount):
    """A state directory below a file, and one on a read-only file system: status 1 and the path."""
    m = new_mount()
    put(os.path.join(m.base, "file"), b"")
    below = os.path.join(m.base, "file", "state")
    code, said = m.refuse(state=below)
    assert code == 1 and below in said
    ro = os.path.join(m.base, "ro")
    os.mkdir(ro)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", ro], check=True)
    code, said = m.refuse(state=os.path.join(ro, "state"))
    assert code == 1 and os.path.join(ro, "state") in said and "Read-only file system" in said


def test_budget_larger_than_memory(new_mount):
    """A budget above what the machine has: status 1, and both numbers."""
    m = new_mount()
    code, said = m.refuse(dram="100T")
    numbers = set(re.findall(r"\d[\d.]*", said))
    assert code == 1
    assert str(100 << 40) in numbers or re.search(r"\b100(\.0)? ?T", said)
    with open("/proc/meminfo") as f:
        total = int(re.search(r"MemTotal: +(\d+)", f.read()).group(1)) * 1024
    in_bytes = [float(n) for n in numbers]
    assert any(total / 100 < n <= total for n in in_bytes) or re.search(r"[\d.]+ ?[GM]", said)
    assert not os.path.exists(m.state) or m.dram_mounts() == []


@pytest.mark.parametrize("options, names", [
    ({"nonsense": True}, "nonsense"), ({"nonsense": "1"}, "nonsense"), ({"dram": "much"}, "dram"),
    ({"dram": "-1"}, "dram"), ({"dram": ""}, "dram"), ({"dram": "0"}, "dram"),
    ({"passthrough": "maybe"}, "passthrough"), ({"max_objects": "many"}, "max_objects"),
    ({"state": "relative/path"}, "state"), ({"space_wait": "-5"}, "space_wait"),
    ({"allow_other": "yes"}, "allow_other"), ({"log": "stderr:loud"}, "log"),
], ids=str)
def test_nonsense_options(new_mount, options, names):
    """A wrong option is a usage error: status 2, the option named, nothing mounted."""
    m = new_mount()
    code, said = m.refuse(**options)
    assert code == 2 and names in said
    assert not os.path.ismount(m.path)


def test_usage_errors(new_mount, tmp_path):
    """No mount point, two of them, an unknown letter, a configuration file that is not there: status 2."""
    config = tmp_path / "conf"
    config.write_text("dram=64M\nnonsense=1\n")
    for argv, names in (([], "mount point"), (["/a", "/b"], "/b"), (["-z", "/a"], "z"),
                        (["-c", "/none/conf", "/a"], "/none/conf"), (["-c", str(config), "/a"], "line 2")):
        p = subprocess.run([env.DAEMON, *argv], capture_output=True, text=True)
        assert p.returncode == 2 and names in p.stderr, (argv, p)


def test_help_and_version():
    """--help and --version print to stdout and end with 0."""
    env.require_daemon()
    for flag, expected in (("--help", "max_objects"), ("-h", "max_objects"), ("--version", "mooncakefs "),
                           ("-V", "mooncakefs ")):
        p = subprocess.run([env.DAEMON, flag], capture_output=True, text=True)
        assert p.returncode == 0 and expected in p.stdout and p.stderr == ""


# ---- death and return ----

def _fill(m, n=40):
    for i in range(n):
        put(os.path.join(m.path, f"f{i}"), pattern(i, 10000 * (i + 1)))
    put(os.path.join(m.path, "empty"), b"")


def _check_filled(m, n=40):
    assert sorted(os.listdir(m.path)) == sorted([f"f{i}" for i in range(n)] + ["empty"])
    for i in range(n):
        path = os.path.join(m.path, f"f{i}")
        assert get(path) == pattern(i, 10000 * (i + 1))
        assert xattr(path, "tier") == "dram"
    assert get(os.path.join(m.path, "empty")) == b""


def test_killed_daemon_leaves_a_dead_mount_that_says_so(mount):
    """After kill -9 the mount answers ENOTCONN at once, to a new and to a waiting client."""
    mount.kill9()
    began = time.monotonic()
    with pytest.raises(OSError) as e:
        os.listdir(mount.path)
    assert e.value.strerror == "Transport endpoint is not connected"
    assert time.monotonic() - began < 1


def test_cache_survives_a_killed_daemon(mount):
    """kill -9, umount -l, start: every object is there with its content, adopted from DRAM."""
    _fill(mount)
    mount.kill9()
    mount.umount_lazy()
    mount.start()
    assert adopted(mount) >= 40
    _check_filled(mount)


def test_cache_survives_ten_crashes(mount):
    """Killed at random moments of writing, ten times: what was closed is whole, and nothing else is there."""
    known = {}
    for n in range(10):
        for i in range(10):
            path = os.path.join(mount.path, f"r{n}-{i}")
            put(path, pattern((n, i).__repr__(), 20000 + i))
            known[os.path.basename(path)] = ((n, i).__repr__(), 20000 + i)
        fd = os.open(os.path.join(mount.path, f"half{n}"), os.O_WRONLY | os.O_CREAT)
        os.write(fd, b"half")
        mount.kill9()
        try:
            os.close(fd)
        except OSError:
            pass
        mount.remount()
    assert set(os.listdir(mount.path)) == set(known)
    for name, (seed, size) in known.items():
        assert get(os.path.join(mount.path, name)) == pattern(seed, size)


def test_sigterm_leaves_the_cache(mount):
    """SIGTERM ends the daemon, unmounts, and leaves the DRAM frames to the next start."""
    _fill(mount)
    mount.signal(signal.SIGTERM)
    mount.wait_end()
    assert not os.path.ismount(mount.path)
    assert len(mount.dram_mounts()) == 1
    mount.start()
    assert adopted(mount) >= 40
    _check_filled(mount)


def test_umount_frees_the_dram(mount):
    """umount ends the daemon and gives the DRAM back; cache objects are gone at the next start."""
    _fill(mount)
    mount.stop()
    assert mount.problems == []
    assert mount.dram_mounts() == []
    mount.start()
    assert [n for n in os.listdir(mount.path) if n != "empty"] == []


def test_umount_of_a_busy_mount_is_refused(mount):
    """umount with a file open is EBUSY and changes nothing; after the close it works."""
    put(os.path.join(mount.path, "f"), b"x")
    fd = os.open(os.path.join(mount.path, "f"), os.O_RDONLY)
    assert subprocess.run(["umount", mount.path], capture_output=True).returncode != 0
    assert os.pread(fd, 10, 0) == b"x"
    os.close(fd)
    assert umount(mount.path) == ""
    mount.wait_end()


def test_open_readers_after_a_killed_daemon(mount):
    """With passthrough, open handles and mappings go on reading when the daemon is dead; else ENOTCONN."""
    import mmap
    path, data = os.path.join(mount.path, "f"), pattern(1, MIB)
    put(path, data)
    fd = os.open(path, os.O_RDONLY)
    m = mmap.mmap(fd, MIB, mmap.MAP_PRIVATE, mmap.PROT_READ)
    live = mount.passthrough_live
    mount.kill9()
    if live:
        assert os.pread(fd, MIB, 0) == data
        assert m[:] == data
    else:
        with pytest.raises(OSError) as e:
            os.pread(fd, MIB, 0)
        assert e.value.strerror == "Transport endpoint is not connected"
    m.close()
    os.close(fd)


def test_clients_that_wait_in_the_mount_when_the_daemon_is_killed(mount, client_a, client_b):
    """A client that waits for flock gets an error within a second of the daemon's death."""
    path = os.path.join(mount.path, "x.lock")
    put(path, b"")
    fa, fb = client_a.os.open(path, os.O_RDWR), client_b.os.open(path, os.O_RDWR)
    client_a.exec("fcntl.flock(fd, fcntl.LOCK_EX)", fd=fa)
    client_b.start_exec("fcntl.flock(fd, fcntl.LOCK_EX)", fd=fb)
    assert not client_b.done(0.1)
    mount.kill9()
    with pytest.raises(OSError):
        client_b.finish(1)


def _storm(m):
    """Writers and readers of one name, which keep directory locks and notifications busy."""
    return subprocess.Popen([prog("storm"), os.path.join(m.path, "f"), "mixed", "6", "4", "1000000", "65536"],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def _ends(storm, seconds):
    """Whether all processes of the storm end by themselves; kills what is left."""
    try:
        storm.wait(timeout=env.scaled(seconds))
        return True
    except subprocess.TimeoutExpired:
        os.killpg(storm.pid, signal.SIGKILL)
        return False


def test_sigterm_in_the_middle_of_a_storm(mount):
    """SIGTERM while many write, rename and read: the daemon ends, all clients get an error, nobody hangs."""
    for _ in range(6):
        storm = _storm(mount)
        time.sleep(0.4)
        mount.signal(signal.SIGTERM)
        mount.wait_end(10)
        assert mount.problems == []
        assert _ends(storm, 5), "clients hang after SIGTERM of the daemon"
        _clear(mount.path)
        mount.remount()
        assert len(get(os.path.join(mount.path, "f"))) == 65536
        for name in os.listdir(mount.path):
            os.unlink(os.path.join(mount.path, name))


def _clear(path):
    """What clients wrote below the bare mount point before they ended."""
    for name in os.listdir(path):
        os.unlink(os.path.join(path, name))


def test_killed_in_the_middle_of_a_storm(mount):
    """kill -9 and umount -f while many write, rename and read: all is free, the next start has whole files."""
    for _ in range(6):
        storm = _storm(mount)
        time.sleep(0.4)
        mount.signal(signal.SIGKILL)
        subprocess.run(["umount", "-f", "-l", mount.path], check=True)
        mount.wait_end(5)
        assert mount.problems == []
        assert _ends(storm, 5), "clients hang after kill -9 and umount -f"
        _clear(mount.path)
        mount.start()
        data = get(os.path.join(mount.path, "f"))
        assert data == data[:8] * 8192
        for name in os.listdir(mount.path):
            os.unlink(os.path.join(mount.path, name))


def test_other_budget_at_the_next_start(mount):
    """A smaller budget than what the cache holds: the newest objects stay, the budget is kept."""
    for i in range(100):
        put(os.path.join(mount.path, f"f{i:03}"), pattern(i, MIB))
    mount.signal(signal.SIGTERM)
    mount.wait_end()
    mount.start(dram="64M")
    wait_for(lambda: mount.tier()["used_bytes"] <= 64 * MIB, 5, "the budget is kept")
    assert mount.tier()["budget_bytes"] == 64 * MIB
    names = os.listdir(mount.path)
    assert 20 <= len(names) <= 64
    for name in names:
        assert get(os.path.join(mount.path, name)) == pattern(int(name[1:]), MIB)


# ---- mount -t mooncakefs ----

def _helper(m, *more):
    options = m.option_text(**dict(more))
    environ = {**os.environ, "PATH": os.path.join(env.BUILD, "bin") + ":" + os.environ["PATH"]}
    return m.launch(["env", "PATH=" + environ["PATH"], env.MOUNT_HELPER, "none", m.path, "-o", options])


def test_mount_helper(new_mount):
    """mount.mooncakefs none DIR -o ...,rw,_netdev: mounts."""
    env.require_file(env.MOUNT_HELPER)
    m = new_mount()
    code, said = _helper(m, ("rw", True), ("_netdev", True), ("noauto", True))
    assert code == 0, said
    m.attach()
    put(os.path.join(m.path, "f"), b"x")
    assert get(os.path.join(m.path, "f")) == b"x"


def test_mount_helper_with_a_config_file(new_mount):
    """mount.mooncakefs CONFIG DIR: options from the file."""
    env.require_file(env.MOUNT_HELPER)
    m = new_mount()
    config = os.path.join(m.base, "conf")
    put(config, f"dram=64M\nstate={m.state}\nlog={m.log}\n".encode())
    path = os.path.join(env.BUILD, "bin") + ":" + os.environ["PATH"]
    code, said = m.launch(["env", "PATH=" + path, env.MOUNT_HELPER, config, m.path, "-o", "rw"])
    assert code == 0, said
    m.attach()
    assert m.tier()["budget_bytes"] == 64 * MIB


def test_mount_helper_clears_a_stale_mount(new_mount):
    """mount.mooncakefs over a mount whose daemon was killed: clears it, mounts, the cache is there."""
    env.require_file(env.MOUNT_HELPER)
    m = new_mount().start()
    _fill(m)
    m.kill9()
    code, said = _helper(m)
    assert code == 0, said
    m.attach()
    assert len([where for where, _ in mounts_below(m.path) if where == m.path]) == 1
    _check_filled(m)


def test_mount_helper_passes_refusals_on(new_mount):
    """An option the daemon does not know comes back with its status and message."""
    env.require_file(env.MOUNT_HELPER)
    m = new_mount()
    code, said = _helper(m, ("nonsense", True))
    assert code == 2 and "nonsense" in said


def test_state_directory_can_be_moved(new_mount):
    """The state directory of a stopped daemon works under another path: nothing in it is absolute."""
    m = new_mount().start()
    os.mkdir(os.path.join(m.path, "weights"))
    put(os.path.join(m.path, "weights", "w"), pattern("w", MIB))
    m.stop()
    moved = os.path.join(m.base, "moved")
    shutil.move(m.state, moved)
    m.state = moved
    m.options["state"] = moved
    m.start()
    assert get(os.path.join(m.path, "weights", "w")) == pattern("w", MIB)
