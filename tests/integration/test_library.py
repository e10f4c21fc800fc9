# SPDX-License-Identifier: Apache-2.0
"""libmooncakefs.so on a mount: batches, tickets, maps, a restarted daemon; and the C example."""
import ctypes
import errno
import os
import select
import shutil
import subprocess
import threading

import pytest

from harness import env
from harness.content import make_dir, put_blocks
from harness.library import GROUP, MISS, READY, RECONNECT, Failed, Library, Map

pytestmark = [pytest.mark.mooncake, pytest.mark.one_mode, pytest.mark.no_asan]

KIB = 1024


@pytest.fixture
def lib(own_live):
    with Library(own_live.path) as made:
        yield made


# ---- reading and writing ----


def test_read_gives_what_files_hold(own_live, lib):
    """300 files of different sizes in one call, byte for byte; a missing one fails alone."""
    folder = make_dir(own_live, "kv/r")
    sizes = [1 + 37 * i for i in range(300)]
    for i, size in enumerate(sizes):
        put_blocks(folder, 1, size, i)
    memory = lib.buffer(300 * 16 * KIB)
    items = [(f"b{i}", memory.at(i * 16 * KIB), 16 * KIB) for i in range(300)]
    items[7] = ("none", memory.at(7 * 16 * KIB), 16 * KIB)
    n, r = lib.read(lib.dir("kv/r"), items)
    assert n == 299
    assert r[7].status == -errno.ENOENT
    for i, size in enumerate(sizes):
        if i != 7:
            assert (r[i].status, r[i].bytes, r[i].size) == (0, size, size)
            assert memory.get(i * 16 * KIB, size) == bytes([i % 251]) * size


def test_written_objects_are_files(own_live, lib):
    """What one call writes, plain reads find whole, with its mode; names with any bytes."""
    folder = make_dir(own_live, "kv/w")
    memory = lib.buffer(64 * KIB)
    memory.put(0, os.urandom(64 * KIB))
    names = [b"plain", b"\xff\xfe bytes \n", b"n" * 255]
    items = [(os.fsdecode(name), memory.at(i * 1000), 5000, {"mode": 0o640}) for i, name in enumerate(names)]
    n, _ = lib.write(lib.dir("kv/w"), items)
    assert n == 3
    assert sorted(os.listdir(os.fsencode(folder))) == sorted(names)
    for i, name in enumerate(names):
        path = os.path.join(os.fsencode(folder), name)
        assert os.stat(path).st_mode & 0o7777 == 0o640
        with open(path, "rb") as f:
            assert f.read() == memory.get(i * 1000, 5000)


def test_strided_segments_gather_and_scatter(own_live, lib):
    """An object is put together out of strided pieces, and read back into other strides."""
    make_dir(own_live, "kv/s")
    d = lib.dir("kv/s")
    memory = lib.buffer(1 << 20)
    data = os.urandom(8 * KIB)
    for i in range(8):
        memory.put(i * 5000, data[i * KIB:(i + 1) * KIB])
    lib.write(d, [("o", memory.at(0), KIB, {"segment_count": 8, "stride": 5000})])
    n, r = lib.read(d, [("o", memory.at(1 << 19), 2 * KIB, {"segment_count": 4, "stride": 9000})])
    assert (n, r[0].bytes) == (1, 8 * KIB)
    assert b"".join(memory.get((1 << 19) + i * 9000, 2 * KIB) for i in range(4)) == data


def test_group_is_all_or_none(own_live, lib):
    """A group with one bad name publishes nothing."""
    folder = make_dir(own_live, "kv/g")
    d = lib.dir("kv/g")
    memory = lib.buffer(4096)
    n, r = lib.write(d, [("a", memory.at(0), 10), ("b/c", memory.at(0), 10)], flags=GROUP)
    assert n == 0 and r[1].status != 0
    assert os.listdir(folder) == []
    n, _ = lib.write(d, [("a", memory.at(0), 10), ("b", memory.at(0), 10)], flags=GROUP)
    assert n == 2 and sorted(os.listdir(folder)) == ["a", "b"]


def test_lookup_tells_the_ready_prefix(own_live, lib):
    """4,096 names: all there; then one in the middle unlinked."""
    folder = make_dir(own_live, "kv/l")
    d = lib.dir("kv/l")
    memory = lib.buffer(4096)
    names = [f"{i:064x}" for i in range(4096)]
    n, _ = lib.write(d, [(name, memory.at(0), 16) for name in names])
    assert n == 4096
    ready, states = lib.lookup(d, names)
    assert ready == 4096 and states[0].size == 16
    os.unlink(os.path.join(folder, names[1000]))
    ready, states = lib.lookup(d, names)
    assert ready == 1000
    assert (states[1000].state, states[1001].state) == (MISS, READY)


def test_open_file_is_read_by_handle(own_live, lib):
    """A file's descriptor stands for its version, also when the name holds another by now."""
    folder = make_dir(own_live, "kv/h")
    put_blocks(folder, 1, 5000)
    path = os.path.join(folder, "b0")
    memory = lib.buffer(8 * KIB)
    with open(path, "rb") as f:
        handle = ctypes.c_uint64()
        lib.check(lib.so.mcfs_file_handle(f.fileno(), ctypes.byref(handle)))
        with open(path + ".new", "wb") as g:
            g.write(b"x" * 100)
        os.rename(path + ".new", path)
        r = lib.requests(None, [("", memory.at(0), 4096, {"file": handle.value, "file_offset": 1000, "name": None})])
        n, r = lib.read(None, r)
    assert (n, r[0].bytes) == (1, 4000)
    assert memory.get(0, 4000) == bytes(4000)
    with open(os.devnull) as f:
        assert lib.so.mcfs_file_handle(f.fileno(), ctypes.byref(handle)) == -errno.ENOTTY


# ---- without waiting ----


def test_tickets_end_and_the_descriptor_tells(own_live, lib):
    """Tickets under way make the session's descriptor readable."""
    folder = make_dir(own_live, "kv/t")
    put_blocks(folder, 16, 64 * KIB)
    d = lib.dir("kv/t")
    memory = lib.buffer(16 * 64 * KIB)
    tickets = []
    for i in range(16):
        r = lib.requests(d, [(f"b{i}", memory.at(i * 64 * KIB), 64 * KIB)])
        tickets.append((lib.start("read", r, user=i + 1), r))
    poller = select.poll()
    poller.register(lib.so.mcfs_session_fd(lib.session), select.POLLIN)
    seen = set()
    while len(seen) < 16:
        assert poller.poll(env.scaled(5000)), "no completion"
        while done := lib.so.mcfs_session_next_done(lib.session):
            seen.add(lib.so.mcfs_ticket_user(ctypes.c_void_p(done)))
    assert seen == set(range(1, 17))
    for i, (ticket, r) in enumerate(tickets):
        assert lib.wait(ticket, 0) == 1
        assert memory.get(i * 64 * KIB, 64 * KIB) == bytes([i]) * 64 * KIB
        lib.so.mcfs_ticket_free(ticket)


def test_many_tickets_come_back(own_live, lib):
    """2,000 tickets of several threads at once, all collected."""
    folder = make_dir(own_live, "kv/m")
    put_blocks(folder, 1, 4096)
    d = lib.dir("kv/m")
    memory = lib.buffer(4096)
    bad = []

    def work():
        for _ in range(10):
            under_way = []
            for _ in range(50):
                r = lib.requests(d, [("b0", memory.at(0), 4096)])
                under_way.append((lib.start("read", r), r))
            for ticket, r in under_way:
                if lib.wait(ticket, 20000) != 1:
                    bad.append(r[0].status)
                lib.so.mcfs_ticket_free(ticket)
    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not bad


def test_cancelled_ticket_ends(own_live, lib):
    """A cancelled ticket ends soon, and its items say how far it came."""
    folder = make_dir(own_live, "kv/c")
    put_blocks(folder, 64, 1 << 20)
    d = lib.dir("kv/c")
    memory = lib.buffer(1 << 20)
    r = lib.requests(d, [(f"b{i % 64}", memory.at(0), 1 << 20) for i in range(4000)])
    ticket = lib.start("read", r)
    lib.so.mcfs_ticket_cancel(ticket)
    rc = lib.wait(ticket, int(env.scaled(5000)))
    assert rc in (-errno.ECANCELED, 4000)
    statuses = {x.status for x in r}
    assert statuses <= {0, -errno.ECANCELED}
    lib.so.mcfs_ticket_free(ticket)


# ---- maps ----


def test_map_shows_the_object_in_place(own_live, lib):
    """A mapping holds its version through an overwrite and an unlink."""
    folder = make_dir(own_live, "kv/z")
    put_blocks(folder, 1, 100_000)
    m = Map()
    lib.check(lib.so.mcfs_map(lib.dir("kv/z"), b"b0", 1, ctypes.byref(m)))
    assert m.bytes == 100_000
    with open(os.path.join(folder, "b0"), "wb") as f:
        f.write(b"other")
    os.unlink(os.path.join(folder, "b0"))
    assert ctypes.string_at(m.data, m.bytes) == bytes(100_000)
    lib.so.mcfs_unmap(ctypes.byref(m))


# ---- limits and errors ----


def test_no_mount_is_named(lib, tmp_path):
    with pytest.raises(Failed) as e:
        Library(tmp_path)
    assert e.value.errno == errno.ENOENT and str(tmp_path) in str(e.value)


def test_buffers_are_bounded(own_live, lib):
    """More than the mount gives to buffers is refused and named, and a freed one makes room."""
    with pytest.raises(Failed) as e:
        lib.buffer(1 << 40)
    assert e.value.errno in (errno.ENOSPC, errno.EFBIG)
    for _ in range(20):
        b = lib.buffer(64 << 20)
        assert lib.so.mcfs_buffer_free(b.handle) == 0
    assert os.listdir(own_live.control("buffers")) == []


@pytest.mark.options(passthrough="off")
def test_a_mount_without_passthrough_is_told(mount):
    """Buffers need passthrough; the error says so."""
    with Library(mount.path) as lib, pytest.raises(Failed) as e:
        lib.buffer(4096)
    assert e.value.errno == errno.EOPNOTSUPP and "passthrough" in str(e.value)


# ---- a restarted daemon ----


def test_a_dead_daemon_is_told(own_live):
    own_live.expect_errors(".")
    with Library(own_live.path) as lib:
        make_dir(own_live, "kv/d")
        d = lib.dir("kv/d")
        memory = lib.buffer(4096)
        own_live.kill9()
        with pytest.raises(Failed) as e:
            lib.write(d, [("a", memory.at(0), 10)])
        assert e.value.errno == errno.ENOTCONN
        assert lib.so.mcfs_session_reconnect(lib.session, 200) == -errno.ETIMEDOUT
        memory.put(0, b"still there")


def test_session_gets_over_a_restart(own_live):
    """After kill -9 and a new start: reconnect, and buffers hold what they held and work again."""
    own_live.expect_errors(".")
    with Library(own_live.path) as lib:
        folder = make_dir(own_live, "kv/d")
        d = lib.dir("kv/d")
        memory = lib.buffer(8 << 20)
        data = os.urandom(1 << 20)
        memory.put(7 << 20, data)
        own_live.kill9()
        own_live.start()
        with pytest.raises(Failed):
            lib.write(d, [("a", memory.at(7 << 20), 1 << 20)])
        assert lib.so.mcfs_session_reconnect(lib.session, 5000) == 0
        assert lib.write(d, [("a", memory.at(7 << 20), 1 << 20)])[0] == 1
        with open(os.path.join(folder, "a"), "rb") as f:
            assert f.read() == data
        assert lib.read(d, [("a", memory.at(0), 1 << 20)])[0] == 1
        assert memory.get(0, 1 << 20) == data


def test_calls_reconnect_when_told_to(own_live):
    own_live.expect_errors(".")
    with Library(own_live.path, RECONNECT) as lib:
        make_dir(own_live, "kv/d")
        d = lib.dir("kv/d")
        memory = lib.buffer(1 << 20)
        for i in range(2):
            own_live.kill9()
            own_live.start()
            assert lib.write(d, [(f"a{i}", memory.at(0), 1000)])[0] == 1
        assert lib.lookup(d, ["a0", "a1", "a2"])[0] == 2


# ---- the example ----


def test_example_loads_a_prefix(own_live):
    """examples/prefix_load: 256 blocks; the chain is broken at 200."""
    example = os.path.join(env.BUILD, "examples", "prefix_load")
    if not os.path.exists(example):
        pytest.skip(f"not built: {example}")
    folder = make_dir(own_live, "kv/e")
    put_blocks(folder, 256, 64 * KIB)
    names = "\n".join(f"b{i}" for i in range(256))

    def run():
        return subprocess.run([example, own_live.path, "kv/e", "65536"], input=names, capture_output=True, text=True,
                              timeout=env.scaled(30))
    done = run()
    assert (done.returncode, done.stdout) == (0, "256 of 256 blocks ready, 256 loaded\n"), done.stderr
    os.unlink(os.path.join(folder, "b200"))
    assert run().stdout == "200 of 256 blocks ready, 200 loaded\n"


def test_examples_are_short():
    """60 lines of C, 30 of Python: what the example shows is how little it takes."""
    for name, most in (("prefix_load.c", 60), ("prefix_load.py", 30)):
        with open(os.path.join(env.REPO, "examples", name)) as f:
            assert len(f.readlines()) <= most


def test_installed_library_builds_a_program(tmp_path):
    """make install, then cc with what pkg-config says; symbols carry their version; uninstall leaves none."""
    env.require_tool("pkg-config", "cc", "make", "nm")
    if "asan" in os.path.basename(env.BUILD):
        pytest.skip("make install would build this tree anew, without sanitizers")
    prefix = tmp_path / "usr"
    common = ["make", "-s", "-C", env.REPO, f"O={env.BUILD}", f"PREFIX={prefix}"]
    if not os.path.exists(os.path.join(env.BUILD, "lib", "libmooncakefs.a")):
        pytest.skip("not built: libmooncakefs.a")
    done = subprocess.run([*common, "install"], capture_output=True, text=True, timeout=env.scaled(50))
    assert done.returncode == 0, done.stderr
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "mooncakefs"], capture_output=True, text=True,
                           env={**os.environ, "PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig"}, check=True)
    out = tmp_path / "prefix_load"
    if shutil.which("cc"):
        subprocess.run(["cc", "-Wall", "-Werror", f"{env.REPO}/examples/prefix_load.c", "-o", out,
                        *flags.stdout.split()], check=True)
        libraries = subprocess.run(["ldd", out], capture_output=True, text=True,
                                   env={**os.environ, "LD_LIBRARY_PATH": f"{prefix}/lib"}).stdout
        assert f"{prefix}/lib/libmooncakefs.so.1" in libraries
    symbols = subprocess.run(["nm", "-D", "--defined-only", f"{prefix}/lib/libmooncakefs.so"], capture_output=True,
                             text=True).stdout
    names = [line.split()[-1] for line in symbols.splitlines()]
    assert "mcfs_read_batch@@MOONCAKEFS_1" in names
    assert all(n.startswith("mcfs_") or n == "MOONCAKEFS_1" for n in names)
    subprocess.run([*common, "uninstall"], check=True, capture_output=True)
    left = [os.path.join(d, f) for d, _, files in os.walk(prefix) for f in files]
    assert not left
