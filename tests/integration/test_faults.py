# SPDX-License-Identifier: Apache-2.0
"""Races between processes, and clients that die while the daemon works for them."""
import mmap
import os
import signal
import subprocess
import time

import pytest

from harness import env
from harness.content import exists, get, pattern, put, put_by_rename, set_xattr, wait_for
from harness.mount import umount
from harness.progs import check_prog

MIB = env.MIB
CREATE = os.O_RDWR | os.O_CREAT
mooncake = pytest.mark.mooncake


# ---- races for names ----

@mooncake
@pytest.mark.parametrize("how", ["plain", "excl"])
def test_eight_creators_race_for_one_name(d, how):
    """1000 rounds: readers see nothing or one whole version; with O_EXCL exactly one creator wins."""
    out = check_prog("racecreate", d, how, 8, 2, 1000, 4096, timeout=50)
    assert out.startswith("ok ") and int(out.split()[1]) > 0


@mooncake
def test_writers_that_share_one_temporary_name(d):
    """Two writers write and rename the same temporary name over and over: readers see whole versions only."""
    check_prog("storm", os.path.join(d, "f"), "shared-tmp", 2, 2, 300, 65536, timeout=50)


@mooncake
def test_a_shared_temporary_name_step_by_step(d, client_a, client_b):
    """Both write tmp, one closes and renames: its own bytes; the other closes and renames: its own again."""
    tmp, path = os.path.join(d, "tmp"), os.path.join(d, "f")
    fa, fb = (c.os.open(tmp, CREATE | os.O_TRUNC, 0o644) for c in (client_a, client_b))
    client_a.os.write(fa, b"A" * 1000)
    client_b.os.write(fb, b"B" * 10)
    client_a.os.close(fa)
    client_a.os.rename(tmp, path)
    assert get(path) == b"A" * 1000 and not exists(tmp)
    client_b.os.write(fb, b"B" * 10)
    client_b.os.close(fb)
    assert get(tmp) == b"B" * 20
    client_b.os.rename(tmp, path)
    assert get(path) == b"B" * 20 and os.listdir(d) == ["f"]


def test_concurrent_mkdir_p_of_one_tree(d):
    """32 processes mkdir -p one tree at the same time: all succeed, one tree is there."""
    go = os.path.join(d, "go")
    script = f"while [ ! -e {go} ]; do :; done; exec mkdir -p {d}/a/b/c/d/e"
    makers = [subprocess.Popen(["sh", "-c", script], stderr=subprocess.PIPE) for _ in range(32)]
    put(go, b"")
    for p in makers:
        assert p.wait() == 0, p.stderr.read()
    os.unlink(go)
    assert [names for _, names, _ in os.walk(d)] == [["a"], ["b"], ["c"], ["d"], ["e"], []]


def test_directory_renamed_while_files_are_created_in_it(d, client_a):
    """A directory flips between two names while files are made in it: each that was made is in it, whole."""
    os.mkdir(os.path.join(d, "x"))
    client_a.start_exec("""
result = []
for i in range(400):
    for sub in ("x", "y"):
        try:
            fd = os.open(os.path.join(d, sub, "f%d" % i), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileNotFoundError:
            continue
        os.write(fd, b"%d" % i * 100)
        os.close(fd)
        result.append(i)
        break
""", d=d)
    flips = 0
    while not client_a.done():
        a, b = ("x", "y") if flips % 2 == 0 else ("y", "x")
        os.rename(os.path.join(d, a), os.path.join(d, b))
        flips += 1
    made = client_a.finish()
    assert flips > 10 and len(made) > 100
    home = os.path.join(d, "x" if flips % 2 == 0 else "y")
    assert sorted(os.listdir(home)) == sorted(f"f{i}" for i in made)
    for i in made:
        assert get(os.path.join(home, f"f{i}")) == b"%d" % i * 100


@mooncake
def test_torture(d):
    """Ten seconds of every change and every way to read at once, checked against a model."""
    check_prog("torture_mount", d, 10, 1, timeout=50)


def test_torture_by_rename_only(d):
    """Two seconds of the same with renames and unlinks alone."""
    check_prog("torture_mount", d, 2, 2, "rename-only", timeout=50)


@mooncake
@pytest.mark.limit(400)
def test_torture_long(d):
    """Five minutes of it."""
    env.require_long()
    check_prog("torture_mount", d, 300, 3, timeout=380)


@mooncake
def test_torture_keeps_no_bytes(mount):
    """When a storm of changes is over and its files are removed, the tier is as empty as before."""
    folder = os.path.join(mount.path, "t")
    os.mkdir(folder)
    check_prog("torture_mount", folder, 2, 4, timeout=50)
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))

    def all_given_back():
        tier, status = mount.tier(), mount.status()
        left = tier["used_bytes"] - tier["free_list_bytes"]
        return left == 0 and status["drafts"]["open"] == 0 and status["objects"]["count"] == 0

    wait_for(all_given_back, 8, f"everything is given back: {mount.tier()}")


# ---- changes under a reader ----

@mooncake
def test_unlink_and_overwrite_under_a_live_reader_and_mapping(d, client_a):
    """A handle and a mapping read the old bytes while the name is unlinked, rewritten and its frames reused."""
    path, old = os.path.join(d, "f"), pattern("old", 4 * MIB)
    put(path, old)
    fd = os.open(path, os.O_RDONLY)
    m = mmap.mmap(fd, len(old), mmap.MAP_SHARED, mmap.PROT_READ)
    assert m[:4096] == old[:4096]
    client_a.start_exec("""
for i in range(100):
    with open(path, "wb") as f:
        f.write(bytes([i]) * size)
    os.unlink(path)
""", path=path, size=len(old))
    n = 0
    while not client_a.done():
        off = n * 65536 % len(old)
        assert os.pread(fd, 65536, off) == old[off:off + 65536]
        assert m[off:off + 65536] == old[off:off + 65536]
        n += 1
    client_a.finish()
    assert n > 20 and m[:] == old and os.pread(fd, len(old), 0) == old
    m.close()
    os.close(fd)


@mooncake
def test_replaced_under_a_slow_reader(d):
    """A reader that takes its time gets one version, however often the name is replaced meanwhile."""
    path = os.path.join(d, "f")
    put(path, b"%04d" % 0 * 16384)
    for i in range(1, 30):
        with open(path, "rb", buffering=0) as f:
            first = f.read(4096)
            put_by_rename(path, b"%04d" % i * 16384)
            rest = f.read()
        assert first + rest == b"%04d" % (i - 1) * 16384


# ---- clients that are killed ----

def test_killed_while_waiting_for_a_lock(d, client_a, client_b):
    """SIGKILL of a process that waits for flock takes effect within a second; the lock stays its holder's."""
    path = os.path.join(d, "x.lock")
    put(path, b"")
    fa, fb = client_a.os.open(path, os.O_RDWR), client_b.os.open(path, os.O_RDWR)
    client_a.exec("fcntl.flock(fd, fcntl.LOCK_EX)", fd=fa)
    client_b.start_exec("fcntl.flock(fd, fcntl.LOCK_EX)", fd=fb)
    assert not client_b.done(0.2)
    assert client_b.kill(signal.SIGKILL, within=1) < env.scaled(1)
    other = os.open(path, os.O_RDWR)
    client_a.exec("fcntl.flock(fd, fcntl.LOCK_UN)")
    wait_for(lambda: _try_flock(other), 1, "the dead waiter's lock is nobody's")
    os.close(other)


def _try_flock(fd):
    import fcntl
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


@pytest.mark.options(dram="64M", space_wait=30)
def test_killed_while_waiting_for_space(mount, client_a):
    """SIGKILL of a writer that waits for space, all of which is pinned, takes effect within a second."""
    fill_with_pinned(mount, 48)
    path = os.path.join(mount.path, "f")
    client_a.start_exec("""
fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
for _ in range(64):
    os.write(fd, bytes(1) + b"x" * ((1 << 20) - 1))
""", path=path)
    assert not client_a.done(1.5), "the write should wait for space, for 30 s"
    assert client_a.kill(signal.SIGKILL, within=1) < env.scaled(1)
    assert not exists(path)
    assert mount.counter("space_waits") > 0


@pytest.mark.options(dram="64M", space_wait=30)
def test_interrupted_while_waiting_for_space(mount, client_a):
    """A signal that a handler catches ends the wait for space with EINTR. Who then gives up and closes publishes
    nothing: half a file would look like a whole one."""
    fill_with_pinned(mount, 48)
    client_a.start_exec("""
class Alarm(Exception): pass
def on_alarm(*_): raise Alarm
signal.signal(signal.SIGALRM, on_alarm)
signal.setitimer(signal.ITIMER_REAL, 1)
fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
began = time.monotonic()
try:
    for _ in range(64):
        os.write(fd, b"x" * (1 << 20))
    result = "written"
except Alarm:
    result = time.monotonic() - began
try:
    os.close(fd)
    result = "closed"
except OSError as e:
    assert e.errno == errno.EIO, e
""", path=os.path.join(mount.path, "f"))
    took = client_a.finish(env.scaled(10))
    assert isinstance(took, float) and 0.9 < took < env.scaled(3)
    assert not os.path.exists(os.path.join(mount.path, "f"))


def fill_with_pinned(mount, mib):
    """Fills so many MiB with objects that may not leave DRAM."""
    folder = os.path.join(mount.path, "pinned")
    os.mkdir(folder)
    set_xattr(folder, "class", "pinned")
    for i in range(mib):
        put(os.path.join(folder, f"p{i}"), pattern(i, MIB))


@mooncake
def test_killed_in_the_middle_of_everything(fs, d, new_client):
    """Clients killed at random moments of writing, renaming and reading leave nothing open, and whole files."""
    before = fs.status()["drafts"]["open"]
    for n in range(20):
        c = new_client()
        c.start_exec("""
i = 0
while True:
    i += 1
    tmp = os.path.join(d, "tmp%d" % who)
    with open(tmp, "wb") as f:
        f.write(b"%08d" % i * 20000)
    os.rename(tmp, os.path.join(d, "f%d" % (i % 5)))
    with open(os.path.join(d, "f%d" % (i % 5)), "rb") as f:
        f.read()
""", d=d, who=n)
        time.sleep(0.01 + n * 0.007)
        c.kill(signal.SIGKILL, within=2)
    for name in os.listdir(d):
        data = get(os.path.join(d, name))
        assert data == data[:8] * 20000
    wait_for(lambda: fs.status()["drafts"]["open"] == before, 3, "drafts of killed clients are gone")


# ---- other namespaces ----

CONTAINER = ["unshare", "-mp", "--fork", "--mount-proc"]


@mooncake
def test_client_in_another_pid_namespace(d):
    """A client in a PID and mount namespace of its own writes, closes (published), renames and reads back."""
    script = """set -e
printf data > f
[ "$(cat f)" = data ]
dd if=/dev/zero of=big bs=64k count=40 status=none
cp big copy; mv copy moved; cmp big moved
printf more >> f
( echo a; echo b ) > two; [ "$(cat two)" = "a
b" ]
mkdir sub; ln -s ../f sub/link; [ "$(cat sub/link)" = datamore ]
rm big"""
    p = subprocess.run([*CONTAINER, "sh", "-c", script], cwd=d, capture_output=True, timeout=30)
    if p.returncode != 0 and b"unshare failed" in p.stderr:
        pytest.skip("unshare is not permitted here")
    assert p.returncode == 0, p.stderr
    assert get(os.path.join(d, "f")) == b"datamore"
    assert get(os.path.join(d, "moved")) == bytes(40 * 65536)
    assert get(os.path.join(d, "two")) == b"a\nb\n"
    assert sorted(os.listdir(d)) == ["f", "moved", "sub", "two"]


@mooncake
def test_daemon_in_a_pid_namespace_of_its_own(new_mount, client_a):
    """A daemon in a container: callers outside have no pid for it. Their closes publish, and it counts them."""
    m = new_mount()
    ready = os.path.join(m.base, "ready")
    script = f"{env.DAEMON} -o {m.option_text()} {m.path} && touch {ready} && exec sleep 1000"
    container = subprocess.Popen(["unshare", "-p", "--fork", "--kill-child", "sh", "-c", script],
                                 stderr=subprocess.PIPE)
    try:
        wait_for(lambda: os.path.exists(ready) or container.poll() is not None, 15, "the daemon is ready")
        if container.poll() is not None:
            pytest.skip("unshare is not permitted here: " + container.stderr.read().decode())
        path = os.path.join(m.path, "f")
        client_a.put(path, pattern(1, 100000))
        assert get(path) == pattern(1, 100000)
        subprocess.run("(echo a; /bin/echo b) > two; cp f three; mv three four; echo c >> two",
                       shell=True, cwd=m.path, check=True)
        assert get(os.path.join(m.path, "two")) == b"a\nb\nc\n"
        assert get(os.path.join(m.path, "four")) == pattern(1, 100000)
        with open(path, "r+b") as f:
            f.write(b"changed")
        assert get(path) == b"changed" + pattern(1, 100000)[7:]
        assert m.counter("pid0_calls") > 0
        client_a.exit()
        assert umount(m.path) == ""
        wait_for(lambda: not m.daemons(), 15, "the daemon ends")
    finally:
        container.kill()
        container.wait()
        container.stderr.close()


@mooncake
def test_reader_in_another_pid_namespace_sees_whole_versions(d):
    """A container reads while the host replaces: always a whole version."""
    path = os.path.join(d, "f")
    put(path, b"0" * 100000)
    script = "for i in $(seq 200); do cat f | tr -s 0-9 | wc -c; done | sort | uniq -c"
    p = subprocess.Popen([*CONTAINER, "sh", "-c", script], cwd=d, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE)
    i = 0
    while p.poll() is None:
        i += 1
        (put if i % 2 else put_by_rename)(path, b"%d" % (i % 10) * 100000)
    out, err = p.communicate()
    if b"unshare failed" in err:
        pytest.skip("unshare is not permitted here")
    assert out.split() == [b"200", b"1"], err
