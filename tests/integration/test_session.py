# SPDX-License-Identifier: Apache-2.0
"""Sessions: the ioctl fast path on a real mount, used by one process, by several, and by other users."""
import errno
import fcntl
import mmap
import os
import random
import select
import signal
import termios
import threading
import time

import pytest

from harness import env, session as fp
from harness.content import get, pattern, peek, put
from harness.session_lab import as_user, big_read, fails, fork, fresh_name, kill, open_version

pytestmark = pytest.mark.mooncake
MIB = env.MIB
_SOURCE = open(fp.__file__).read()


# ---- open, HELLO ----

def test_hello_tells_the_limits(s):
    assert s.limits["abi_version"] == 1
    assert s.limits["max_items"] >= 4096 and s.limits["max_buffers"] >= 16
    assert s.limits["incarnation"] == s.hello()["incarnation"]


def test_another_version_is_refused(s):
    for version in (0, 2, 0xFFFFFFFF):
        fails(errno.EPROTO, s.hello, version)


@pytest.mark.parametrize("command", [termios.TCGETS, 0, fp._ioc(3, 7, 8), fp._ioc(3, 2, 56), fp._ioc(0, 5, 0),
                                     fp._ioc(2, 1, 8), fp.SUBMIT ^ 0x100], ids=hex)
def test_unknown_commands_are_answered_at_once(s, command):
    began = time.monotonic()
    fails(errno.ENOTTY, fcntl.ioctl, s.fd, command, bytearray(256), True)
    assert time.monotonic() - began < env.scaled(0.5)


def test_session_commands_are_for_sessions(fs, d):
    put(os.path.join(d, "f"), b"x")
    for path in (d, os.path.join(d, "f"), fs.control("metrics")):
        fd = os.open(path, os.O_RDONLY)
        for command, size in ((fp.HELLO, 64), (fp.REGISTER, 128), (fp.SUBMIT, 112), (fp.CANCEL, 8)):
            fails(errno.ENOTTY, fcntl.ioctl, fd, command, bytearray(size), True)
        os.close(fd)


def test_only_files_directories_and_buffers_have_a_handle(fs, d):
    put(os.path.join(d, "f"), b"12345")
    fd, handle = open_version(os.path.join(d, "f"))
    assert fp.handle_of(fd) == (handle, 5, fp.FILE) and handle != 0
    os.close(fd)
    fd = os.open(d, os.O_RDONLY)
    assert fp.handle_of(fd)[2] == fp.DIR
    os.close(fd)
    draft = os.open(os.path.join(d, "draft"), os.O_RDWR | os.O_CREAT)
    session = fp.Session(fs.path)
    control = os.open(fs.control("metrics"), os.O_RDONLY)
    folder = os.open(fs.control("buffers"), os.O_RDONLY)
    for fd in (draft, session.fd, control, folder):
        fails(errno.EBUSY if fd == draft else errno.EINVAL, fp.handle_of, fd)
        if fd != session.fd:
            os.close(fd)
    session.close()


# ---- there and back ----

def test_write_and_read_many(s, d):
    """Objects written by a session are files; files are read by a session."""
    directory = s.open_dir(d)
    files = {f"n{k}": pattern(k, 1000 + 37 * k) for k in range(100)}
    assert [i["status"] for i in s.write(directory, files)] == [0] * 100
    for name, data in files.items():
        assert get(os.path.join(d, name)) == data
    for k in range(0, 100, 7):
        files[f"n{k}"] = pattern(k + 1000, 5000)
        put(os.path.join(d, f"n{k}"), files[f"n{k}"])
    assert s.read(directory, list(files), 6000) == [(0, data) for data in files.values()]


def test_an_overwritten_file_is_seen_by_the_next_open(s, d):
    """When a WRITE has returned every open finds the new version, also where the old one was cached."""
    directory, path = s.open_dir(d), os.path.join(d, "f")
    put(path, b"old")
    old = os.open(path, os.O_RDONLY)
    ino = os.fstat(old).st_ino
    for k in range(50):
        data = f"version {k}".encode()
        assert s.write(directory, {"f": data})[0]["status"] == 0
        assert get(path) == data
        assert os.stat(path).st_ino == ino
    assert os.pread(old, 10, 0) == b"old"
    os.close(old)


def test_a_file_is_read_by_the_handle_of_its_descriptor(s, d):
    put(os.path.join(d, "f"), b"0123456789")
    fd, handle = open_version(os.path.join(d, "f"))
    os.unlink(os.path.join(d, "f"))
    at = s.items([{"object": handle, "file_offset": 4, "segment_bytes": 100, "segment_count": 1, "base": 65536}])
    assert s.submit(op=fp.READ, n_items=1, items=at)["n_ok"] == 1
    assert s.buffer.mem[65536:65542] == b"456789"
    os.close(fd)
    assert s.submit(op=fp.READ, n_items=1, items=at)["n_ok"] == 0
    assert s.outcome(at, 1)[0]["status"] == -errno.ENOENT


def test_lookup_follows_what_other_processes_do(s, d, client_a):
    directory, path = s.open_dir(d), os.path.join(d, "f")
    assert s.lookup(directory, ["f"])[0][0][0] == fp.MISS
    fd = client_a.os.open(path, os.O_WRONLY | os.O_CREAT)
    client_a.os.write(fd, b"abc")
    assert s.lookup(directory, ["f"])[0][0][0] == fp.IN_FLIGHT
    client_a.os.close(fd)
    assert s.lookup(directory, ["f", "g"]) == ([(fp.READY, 1, 3), (fp.MISS, 0, 0)], 1)
    client_a.os.rename(path, os.path.join(d, "g"))
    assert [x[0] for x in s.lookup(directory, ["f", "g"])[0]] == [fp.MISS, fp.READY]
    assert client_a.get(os.path.join(d, "g")) == b"abc"
    os.unlink(os.path.join(d, "g"))
    assert [x[0] for x in s.lookup(directory, ["f", "g"])[0]] == [fp.MISS, fp.MISS]


@pytest.mark.options(dram="64M")
def test_lookup_of_what_was_evicted(own_live):
    """An evicted object is a miss, though its writer still knows it."""
    mount = own_live
    s = fp.Session(mount.path, fresh_name(), MIB)
    directory = s.open_dir(mount.path)
    names = [f"f{k}" for k in range(100)]
    for name in names:
        put(os.path.join(mount.path, name), bytes(MIB))
    states = [x[0] for x in s.lookup(directory, names)[0]]
    assert states[-1] == fp.READY and fp.IN_FLIGHT not in states and fp.MISS in states
    for name, state in zip(names, states):
        assert (peek(os.path.join(mount.path, name)) is not None) == (state == fp.READY)
    s.close()


def test_pages_are_shared_both_ways(s, live, d):
    """What the client stores is what the daemon reads, what a read(2) shows, and the other way round."""
    directory = s.open_dir(d)
    put(os.path.join(d, "f"), b"from the daemon")
    assert s.read(directory, ["f"], 15) == [(0, b"from the daemon")]
    at = s.buffer.mem.find(b"from the daemon")
    assert os.pread(s.buffer.fd, 15, at) == b"from the daemon"
    other = os.open(s.buffer.path, os.O_RDWR)
    again = mmap.mmap(other, s.buffer.size)
    again[at:at + 4] = b"FROM"
    assert s.buffer.mem[at:at + 8] == b"FROM the"
    assert os.pwrite(other, b"written", 0) == 7
    assert s.buffer.mem[:7] == again[:7] == b"written"
    again.close()
    os.close(other)


def test_another_mount_namespace_and_process(live, d, new_client):
    client = new_client()
    client.exec(_SOURCE)
    client.exec("unshare_mounts()")
    client.exec("s = Session(mount, name, 1 << 20); directory = s.open_dir(d)", mount=live.path,
                name=fresh_name(), d=d)
    assert client.exec("result = [i['status'] for i in s.write(directory, {'f': b'hello', 'g': b''})]") == [0, 0]
    assert get(os.path.join(d, "f")) == b"hello"
    assert client.exec("result = s.read(directory, ['f', 'g', 'h'], 10)") == [
        (0, b"hello"), (0, b""), (-errno.ENOENT, b"")]


def test_two_processes_at_once(live, d):
    """Each writes and reads its own names for a while; nobody sees a wrong byte."""
    def work(who):
        s = fp.Session(live.path, fresh_name() + who, 2 * MIB)
        directory = s.open_dir(d)
        rng = random.Random(who)
        for round_no in range(60):
            files = {f"{who}{k}": pattern(f"{who}{k}{round_no}", rng.randrange(30000)) for k in range(16)}
            assert all(i["status"] == 0 for i in s.write(directory, files))
            assert s.read(directory, list(files), 30000) == [(0, v) for v in files.values()]
        return 7

    pids = []
    for who in "ab":
        pid = os.fork()
        if not pid:
            status = 1
            try:
                status = work(who)
            finally:
                os._exit(status)
        pids.append(pid)
    assert [os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in pids] == [7, 7]


# ---- completions ----

def async_write(s, directory, name=b"f", **more):
    s.used = 0
    at = s.items([s.named(directory, name, s.put(b"data"), 4)])
    return s.submit(op=fp.WRITE, flags=fp.ASYNC, n_items=1, items=at, **more)["ticket"]


def test_read_waits_for_a_completion(s, d):
    directory = s.open_dir(d)
    threading.Timer(0.2, async_write, (s, directory), {"user_data": 42}).start()
    began = time.monotonic()
    [(ticket, user_data, status, n_ok, _)] = s.collect()
    assert time.monotonic() - began > 0.15
    assert (ticket, user_data, status, n_ok) == (1, 42, 0, 1)
    fails(errno.EINVAL, os.read, s.fd, fp.COMPLETION_BYTES - 1)


def test_nonblocking_read_and_poll(s, d):
    directory = s.open_dir(d)
    os.set_blocking(s.fd, False)
    fails(errno.EAGAIN, s.collect)
    poller = select.poll()
    poller.register(s.fd, select.POLLIN)
    assert poller.poll(50) == []
    ticket = async_write(s, directory)
    assert poller.poll(env.scaled(5000)) == [(s.fd, select.POLLIN)]
    assert [c[0] for c in s.collect()] == [ticket]
    assert poller.poll(0) == []


def test_epoll_wakes_for_each_completion(s, d):
    directory = s.open_dir(d)
    os.set_blocking(s.fd, False)
    for flags in (select.EPOLLIN, select.EPOLLIN | select.EPOLLET):
        with select.epoll() as e:
            e.register(s.fd, flags)
            for _ in range(20):
                threading.Timer(0.01, async_write, (s, directory)).start()
                assert e.poll(env.scaled(5)) == [(s.fd, select.EPOLLIN)]
                assert len(s.collect()) == 1


def test_pollers_in_many_threads_all_wake(s, d):
    directory = s.open_dir(d)
    woken = []

    def wait():
        p = select.poll()
        p.register(s.fd, select.POLLIN)
        woken.append(p.poll(env.scaled(10000)))

    threads = [threading.Thread(target=wait) for _ in range(8)]
    for t in threads:
        t.start()
    time.sleep(0.1)
    async_write(s, directory)
    for t in threads:
        t.join(env.scaled(15))
    assert woken == [[(s.fd, select.POLLIN)]] * 8


def test_tickets_never_collected(s, d):
    """After as many as HELLO said comes EAGAIN; collecting one makes room for one."""
    directory = s.open_dir(d)
    at = s.items([s.named(directory, b"none", 0, 4, mode=0)])
    for _ in range(s.limits["max_tickets"]):
        s.submit(op=fp.READ, flags=fp.ASYNC, n_items=1, items=at)
    fails(errno.EAGAIN, s.submit, op=fp.READ, flags=fp.ASYNC, n_items=1, items=at)
    assert len(s.collect(1)) == 1
    s.submit(op=fp.READ, flags=fp.ASYNC, n_items=1, items=at)


def test_a_signal_interrupts_a_waiting_read(s):
    """A handler that raises gets its chance: read(2) does not sit on the signal."""
    class Alarm(Exception):
        pass

    def on_usr1(_signo, _frame):
        raise Alarm

    old = signal.signal(signal.SIGUSR1, on_usr1)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    began = time.monotonic()
    try:
        with pytest.raises(Alarm):
            s.collect()
    finally:
        signal.signal(signal.SIGUSR1, old)
    assert time.monotonic() - began < env.scaled(2)


# ---- who may what ----

@pytest.mark.options(allow_other=True)
def test_a_session_may_do_what_its_user_may(own_live):
    """READ and WRITE follow modes and owners, as open(2) would."""
    mount = own_live
    top = mount.path
    os.chmod(top, 0o755)
    d = os.path.join(top, "d")
    os.mkdir(d)
    os.chmod(d, 0o777)
    for name, mode in (("secret", 0o600), ("open", 0o644), ("shared", 0o666)):
        put(os.path.join(d, name), b"root's")
        os.chmod(os.path.join(d, name), mode)

    def work():
        s = fp.Session(top, "users", MIB)
        directory = s.open_dir(d)
        found = s.read(directory, ["secret", "open", "shared"], 10)
        assert found == [(-errno.EACCES, b""), (0, b"root's"), (0, b"root's")], found
        done = [i["status"] for i in s.write(directory, {"secret": b"x", "open": b"x", "shared": b"x", "new": b"x"})]
        assert done == [-errno.EACCES, -errno.EACCES, 0, 0], done
        done = [i["status"] for i in s.write(s.open_dir(top), {"new": b"x"})]
        assert done == [-errno.EACCES], done
        return 7

    assert as_user(1000, work) == 7
    assert get(os.path.join(d, "secret")) == get(os.path.join(d, "open")) == b"root's"
    st = os.stat(os.path.join(d, "new"))
    assert (st.st_uid, st.st_gid, st.st_mode & 0o7777) == (1000, 1000, 0o644)
    assert os.stat(os.path.join(d, "shared")).st_uid == 0


@pytest.mark.options(allow_other=True)
def test_buffers_and_handles_are_their_users(own_live):
    """Nobody registers, opens or unlinks another user's buffer, or uses another user's handle."""
    mount = own_live
    os.chmod(mount.path, 0o755)
    mine = fp.Session(mount.path, "roots", MIB)
    os.chmod(mine.buffer.path, 0o644)
    put(os.path.join(mount.path, "f"), b"x")
    f, handle = open_version(os.path.join(mount.path, "f"))

    def work():
        s = fp.Session(mount.path, "users", MIB)
        fails(errno.EPERM, s.register, mine.buffer.handle)
        fd = os.open(mine.buffer.path, os.O_RDONLY)
        fails(errno.EACCES, s.register, fp.handle_of(fd)[0])  # readable: neither is it written for him
        fails(errno.EACCES, os.open, mine.buffer.path, os.O_RDWR)
        fails(errno.EPERM, os.unlink, mine.buffer.path)
        at = s.items([{"object": handle, "segment_bytes": 1, "segment_count": 1}])
        s.submit(op=fp.READ, n_items=1, items=at)
        assert s.outcome(at, 1)[0]["status"] == -errno.EPERM
        fails(errno.EPERM, fp.handle_of, f)  # asked by root before
        return 7

    assert as_user(1000, work) == 7
    os.close(f)
    mine.close()


@pytest.mark.options(allow_other=True)
def test_a_session_acts_for_who_opened_it(own_live):
    """A descriptor handed to a child that drops its rights still acts for root, and the other way round."""
    mount = own_live
    put(os.path.join(mount.path, "secret"), b"root's")
    os.chmod(os.path.join(mount.path, "secret"), 0o600)
    s = fp.Session(mount.path, "roots", MIB)
    directory = s.open_dir(mount.path)
    assert as_user(1000, lambda: 7 if s.read(directory, ["secret"], 9) == [(0, b"root's")] else 1) == 7
    s.close()


# ---- without passthrough, and after a restart ----

@pytest.mark.options(passthrough="off")
def test_without_passthrough_there_are_no_buffers(mount):
    """A session can be opened and says its limits; buffers answer EOPNOTSUPP, all else clearly."""
    s = fp.Session(mount.path)
    assert s.limits["abi_version"] == 1
    fails(errno.EOPNOTSUPP, fp.SharedBuffer, mount.path, "b", 4096)
    assert os.listdir(mount.control("buffers")) == []
    s.number = 1
    for op in (fp.LOOKUP, fp.READ, fp.WRITE, fp.PREFETCH):
        fails(errno.ENOENT, s.submit, op=op, n_items=1)
    fails(errno.ENOENT, s.cancel, 1)
    fails(errno.ENOENT, s.unregister, 1)
    os.set_blocking(s.fd, False)
    fails(errno.EAGAIN, s.collect)
    s.close()


def test_a_restart_is_a_clear_error_and_a_new_incarnation(own_live):
    m = own_live
    s = fp.Session(m.path, "b", MIB)
    directory = s.open_dir(m.path)
    s.write(directory, {"f": b"kept"})
    waiting = []

    def wait():
        try:
            s.collect()
        except OSError as e:
            waiting.append(e.errno)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    m.kill9()
    thread.join(env.scaled(5))
    assert waiting in ([errno.ECONNABORTED], [errno.ENOTCONN])
    for call in (s.hello, s.collect, lambda: s.read(directory, ["f"], 9)):
        fails(errno.ENOTCONN, call)
    s.buffer.mem[:4] = b"here"  # the pages stay with their mapping
    m.remount()
    fails(errno.ENOTCONN, s.hello)
    again = fp.Session(m.path, "b", MIB)
    assert again.limits["incarnation"] != s.limits["incarnation"]
    assert again.read(again.open_dir(m.path), ["f"], 9) == [(0, b"kept")]
    again.close()
    s.close()


def test_the_daemon_ends_with_sessions_open(own_live):
    """SIGTERM while clients wait, have work queued and buffers registered: a clean end, in time."""
    m = own_live
    put(os.path.join(m.path, "f"), bytes(4 * MIB))

    def work():
        s = fp.Session(m.path, "b", 12 * MIB)
        request = big_read(s, os.path.join(m.path, "f"))
        for _ in range(4):
            s.submit(**request | {"flags": fp.ASYNC})
        p = select.poll()
        p.register(s.fd)
        threading.Thread(target=p.poll, daemon=True).start()
        threading.Thread(target=s.collect, daemon=True).start()
        s.submit(**request)

    pid = fork(work)
    time.sleep(0.7)
    began = time.monotonic()
    m.signal(signal.SIGTERM)
    m.wait_end()
    assert time.monotonic() - began < env.scaled(5)
    kill(pid)
