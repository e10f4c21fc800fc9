# SPDX-License-Identifier: Apache-2.0
"""The Python package of examples/python on a mount: batches, arrays and tensors, asyncio, restarts."""
import asyncio
import errno
import os
import shutil
import subprocess
import sys
import threading

import pytest

from harness import env
from harness.content import make_dir, put_blocks

PACKAGE = os.path.join(env.REPO, "examples", "python")
sys.path.insert(0, PACKAGE)

import mooncakefs  # noqa: E402
from mooncakefs import abi  # noqa: E402

pytestmark = [pytest.mark.mooncake, pytest.mark.one_mode, pytest.mark.no_asan]

KIB = 1024


@pytest.fixture
def session(own_live):
    with mooncakefs.Session(own_live.path) as s:
        yield s


# ---- reading and writing ----


def test_read_gives_what_files_hold(own_live, session):
    """300 files in one call; a missing one fails alone and check() names it."""
    put_blocks(make_dir(own_live, "kv/r"), 300, 5000)
    d = session.directory("kv/r")
    buffer = session.buffer(300 * 8 * KIB)
    batch = session.batch("read")
    for i in range(300):
        batch.add(d, "none" if i == 7 else f"b{i}", buffer[i * 8 * KIB:(i + 1) * 8 * KIB])
    outcome = batch.run()
    assert outcome.n_ok == 299 and outcome.prefix() == 7
    assert outcome[7].status == -errno.ENOENT
    assert outcome[8][:4] == (0, "dram", 5000, 5000)
    with pytest.raises(FileNotFoundError, match="none"):
        outcome.check()
    for i in (0, 6, 8, 299):
        assert buffer.memory[i * 8 * KIB:i * 8 * KIB + 5000] == bytes([i % 251]) * 5000


def test_a_batch_can_be_run_again(own_live, session):
    """The same batch after a file was overwritten: other bytes, another version."""
    folder = make_dir(own_live, "kv/a")
    put_blocks(folder, 1, 100)
    buffer = session.buffer(4096)
    batch = session.batch("read").add(session.directory("kv/a"), "b0", buffer[:4096])
    first = batch.run().check()[0]
    with open(os.path.join(folder, "b0"), "wb") as f:
        f.write(b"new")
    second = batch.run().check()[0]
    assert (first.bytes, second.bytes) == (100, 3) and second.version > first.version
    assert buffer.memory[:3] == b"new"


def test_what_lies_in_no_buffer_is_copied(own_live, session):
    """bytes out, bytearray in: the buffer protocol of anything."""
    folder = make_dir(own_live, "kv/b")
    d = session.directory("kv/b")
    data = [os.urandom(10 + i * 1000) for i in range(20)]
    assert d.write([f"o{i}" for i in range(20)], data).n_ok == 20
    with open(os.path.join(folder, "o19"), "rb") as f:
        assert f.read() == data[19]
    targets = [bytearray(len(x)) for x in data]
    assert d.read([f"o{i}" for i in range(20)], targets).check().n_ok == 20
    assert targets == data
    with pytest.raises(ValueError, match="read-only"):
        d.read(["o0"], [b"constant"])


def test_strides_gather_and_scatter(own_live, session):
    make_dir(own_live, "kv/s")
    d = session.directory("kv/s")
    buffer = session.buffer(1 << 20)
    data = os.urandom(8 * KIB)
    for i in range(8):
        buffer.memory[i * 5000:i * 5000 + KIB] = data[i * KIB:(i + 1) * KIB]
    session.batch("write").add(d, "o", buffer[:], segment_bytes=KIB, segments=8, stride=5000).run().check()
    back = buffer[1 << 19:]
    session.batch("read").add(d, "o", back, segment_bytes=2 * KIB, segments=4, stride=9000).run().check()
    assert b"".join(back.memory[i * 9000:i * 9000 + 2 * KIB] for i in range(4)) == data


def test_group_and_names(own_live, session):
    """A group with a bad name publishes nothing; binary names are hexadecimal files."""
    folder = make_dir(own_live, "kv/g")
    d = session.directory("kv/g")
    assert d.write(["a", "b/c"], [b"1", b"2"], group=True).n_ok == 0
    assert os.listdir(folder) == []
    assert d.write(["a", "b"], [b"1", b"2"], group=True).n_ok == 2
    batch = session.batch("write", suffix=".bin").add(d, b"\x01\xab", b"x", binary=True)
    assert batch.run().n_ok == 1
    batch.clear()
    assert sorted(os.listdir(folder)) == ["01ab.bin", "a", "b"]


def test_lookup_tells_the_ready_prefix(own_live, session):
    """As text and as packed hashes; states by index and all at once."""
    folder = make_dir(own_live, "kv/l")
    d = session.directory("kv/l")
    hashes = mooncakefs.Hashes(b"".join(i.to_bytes(16, "big") for i in range(2000)), 16, ".kv")
    names = [f"{i:032x}.kv" for i in range(2000)]
    assert d.write(names, [b"x" * 10] * 2000).n_ok == 2000
    for given in (names, hashes, [os.fsencode(n) for n in names]):
        assert d.lookup(given).ready == 2000
    os.unlink(os.path.join(folder, names[1500]))
    for given in (names, hashes):
        found = d.lookup(given)
        assert (found.ready, len(found)) == (1500, 2000)
        assert found[1500].kind == abi.MISS and found[-1] == (abi.READY, "dram", 0.0, 10)
        assert list(found.kinds()).count(abi.READY) == 1999
        assert sum(s.kind == abi.READY for s in found) == 1999
    assert d.lookup([]).ready == 0


def test_open_file_is_read_by_handle(own_live, session):
    folder = make_dir(own_live, "kv/h")
    put_blocks(folder, 1, 5000)
    buffer = session.buffer(8 * KIB)
    with open(os.path.join(folder, "b0"), "rb") as f:
        os.unlink(f.name)
        batch = session.batch("read").add(session.file_handle(f), None, buffer[:], file_offset=1000)
        assert batch.run().check()[0].bytes == 4000


def test_more_than_max_items_go_in_parts(own_live, session):
    """What the daemon takes at once is no limit of the package."""
    session.max_items = 100
    make_dir(own_live, "kv/p")
    d = session.directory("kv/p")
    names = [f"n{i}" for i in range(350)]
    assert d.write(names, [b"%d" % i for i in range(350)]).n_ok == 350
    found = d.lookup(names + ["none"])
    assert found.ready == 350 and found[350].kind == abi.MISS
    ticket = session.submit(mooncakefs.lookup.LookupJob(d, names, None))
    assert ticket.wait(10).ready == 350
    with pytest.raises(OSError) as e:
        d.write(names, [b"x"] * 350, group=True)
    assert e.value.errno == errno.E2BIG


def test_bad_arguments_are_refused(own_live, session):
    make_dir(own_live, "kv/x")
    d = session.directory("kv/x")
    buffer = session.buffer(4096)
    for arguments in ({"segments": 2, "segment_bytes": 4000}, {"segments": 0}, {"segments": 2, "stride": 100}):
        with pytest.raises(ValueError):
            session.batch("read").add(d, "a", buffer[:], **arguments)
    for name in ("", "a\0b", "n" * 256):
        with pytest.raises(ValueError):
            session.batch("read").add(d, name, buffer[:])
    for names in (["a", "b\0c"], [b"a", b"b\0c"]):
        with pytest.raises(ValueError):
            d.lookup(names)
    with pytest.raises(ValueError):
        session.batch("read", group=True)
    with pytest.raises(ValueError):
        session.batch("prefetch").add(d, "a", buffer[:])
    with pytest.raises(FileNotFoundError):
        session.directory("kv/none")
    with pytest.raises(OSError) as e:
        session.directory("/proc")
    assert e.value.errno == errno.EXDEV
    with pytest.raises(FileNotFoundError):
        mooncakefs.Session("/proc")


def test_map_object_shows_it_in_place(own_live, session):
    folder = make_dir(own_live, "kv/m")
    put_blocks(folder, 2, 10_000)
    view = mooncakefs.map_object(os.path.join(folder, "b1"))
    os.unlink(os.path.join(folder, "b1"))
    assert view == bytes([1]) * 10_000 and view.readonly
    open(os.path.join(folder, "empty"), "w").close()
    assert len(mooncakefs.map_object(os.path.join(folder, "empty"))) == 0


# ---- arrays and tensors ----


def test_numpy_arrays_share_the_buffer(own_live, session):
    """An array over a region is read into without a copy, and is found where it lies."""
    numpy = pytest.importorskip("numpy")
    make_dir(own_live, "kv/n")
    d = session.directory("kv/n")
    buffer = session.buffer(1 << 20)
    array = buffer[4096:4096 + 4000].numpy("float32", (10, -1))
    array[:] = numpy.arange(1000, dtype="float32").reshape(10, 100)
    region = session.region_of(array[2:4])
    assert (region.offset, region.size) == (4096 + 800, 800)
    view = session.region_of(buffer.memory[100:200])
    assert (view.offset, view.size) == (100, 100)
    assert d.write(["whole", "rows"], [array, array[2:4]]).n_ok == 2
    array[:] = 0
    assert d.read(["rows"], [array[2:4]]).n_ok == 1
    assert (array[2:4].ravel() == numpy.arange(200, 400)).all() and not array[:2].any()
    away = numpy.zeros(1000, "float32")
    assert session.region_of(away) is None
    assert d.read(["whole"], [away]).n_ok == 1
    assert (away == numpy.arange(1000)).all()
    with pytest.raises((ValueError, BufferError)):
        d.read(["whole"], [numpy.zeros((50, 40), "float32")[:, ::2]])


def test_torch_tensors_share_the_buffer(own_live, session):
    torch = pytest.importorskip("torch")
    make_dir(own_live, "kv/t")
    d = session.directory("kv/t")
    buffer = session.buffer(1 << 20)
    tensor = buffer[8192:8192 + 2048].torch(torch.float16, (4, 256))
    tensor.copy_(torch.arange(1024).reshape(4, 256))
    region = session.region_of(tensor[1])
    assert (region.offset, region.size) == (8192 + 512, 512)
    away = torch.ones(8, 16, dtype=torch.bfloat16)
    assert d.write(["in", "out"], [tensor, away]).n_ok == 2
    tensor.zero_()
    back = torch.zeros(8, 16, dtype=torch.bfloat16)
    assert d.read(["in", "out"], [tensor, back]).n_ok == 2
    assert torch.equal(tensor.flatten().float(), torch.arange(1024).half().float())
    assert torch.equal(back, away)


# ---- without waiting ----


def test_asyncio_reads_side_by_side(own_live, session):
    """Twenty batches of one loop; the loop goes on meanwhile."""
    put_blocks(make_dir(own_live, "kv/y"), 20, 64 * KIB)
    d = session.directory("kv/y")
    buffer = session.buffer(20 * 64 * KIB)
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    async def read(i):
        batch = session.batch("read").add(d, f"b{i}", buffer[i * 64 * KIB:(i + 1) * 64 * KIB])
        return (await batch.run_async()).n_ok

    async def main():
        ticking = asyncio.ensure_future(tick())
        for _ in range(3):
            assert sum(await asyncio.gather(*(read(i) for i in range(20)))) == 20
        assert (await d.lookup_async([f"b{i}" for i in range(21)])).ready == 20
        ticking.cancel()
    for _ in range(2):  # a second loop after the first is closed
        asyncio.run(asyncio.wait_for(main(), env.scaled(30)))
    assert ticks
    for i in range(20):
        assert buffer.memory[i * 64 * KIB] == i


def test_a_cancelled_task_ends_after_its_ticket(own_live, session):
    """When CancelledError arrives, the memory is no longer in use."""
    put_blocks(make_dir(own_live, "kv/c"), 64, 1 << 20)
    d = session.directory("kv/c")
    buffer = session.buffer(1 << 20)
    batch = session.batch("read")
    for i in range(4000):
        batch.add(d, f"b{i % 64}", buffer[:])

    async def main():
        task = asyncio.ensure_future(batch.run_async())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not session._running
    asyncio.run(asyncio.wait_for(main(), env.scaled(20)))


def test_threads_share_a_session(own_live, session):
    """Synchronous calls and tickets of several threads."""
    put_blocks(make_dir(own_live, "kv/th"), 8, 4096)
    d = session.directory("kv/th")
    bad = []

    def work(k):
        buffer = session.buffer(8 * 4096)
        for n in range(50):
            batch = session.batch("read")
            for i in range(8):
                batch.add(d, f"b{i}", buffer[i * 4096:(i + 1) * 4096])
            outcome = batch.run() if (n + k) % 2 else batch.submit().wait(env.scaled(20))
            if outcome.n_ok != 8 or any(buffer.memory[i * 4096] != i for i in range(8)):
                bad.append(outcome.statuses())
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not bad


def test_a_ticket_tells_whether_it_has_ended(own_live, session):
    put_blocks(make_dir(own_live, "kv/k"), 1, 4096)
    batch = session.batch("read").add(session.directory("kv/k"), "b0", session.buffer(4096)[:])
    ticket = batch.submit()
    assert ticket.wait(env.scaled(10)).n_ok == 1
    assert ticket.done() and ticket.result().n_ok == 1


# ---- life ----


def test_nothing_is_left_when_it_closes(own_live):
    """Buffers leave no name, descriptors are closed, and what was made of a buffer stays valid memory."""
    before = set(os.listdir("/proc/self/fd"))
    with mooncakefs.Session(own_live.path) as s:
        make_dir(own_live, "kv/f")
        s.directory("kv/f").write(["a"], [b"x" * 100])
        buffer = s.buffer(1 << 20)
        view = buffer.memory
        view[0] = 5
        assert os.listdir(own_live.control("buffers")) == []
    assert view[0] == 5
    del view, buffer
    left = {os.readlink(f"/proc/self/fd/{fd}") for fd in set(os.listdir("/proc/self/fd")) - before
            if os.path.exists(f"/proc/self/fd/{fd}")}
    assert not [x for x in left if x.startswith(own_live.path)]


def test_freed_buffers_make_room(own_live, session):
    for _ in range(12):
        session.buffer(64 << 20).free()
    with pytest.raises(OSError) as e:
        session.buffer(1 << 40)
    assert e.value.errno in (errno.ENOSPC, errno.EFBIG)


@pytest.mark.options(passthrough="off")
def test_a_mount_without_passthrough_is_told(mount):
    with mooncakefs.Session(mount.path) as s, pytest.raises(OSError, match="passthrough") as e:
        s.buffer(4096)
    assert e.value.errno == errno.EOPNOTSUPP


def test_session_gets_over_a_restart(own_live):
    """DaemonGone, then reconnect: buffers hold what they held, directories and batches go on."""
    own_live.expect_errors(".")
    folder = make_dir(own_live, "kv/d")
    with mooncakefs.Session(own_live.path) as s:
        d = s.directory("kv/d")
        buffer = s.buffer(1 << 20)
        buffer.memory[:5] = b"hello"
        batch = s.batch("write").add(d, "a", buffer[:5])
        own_live.kill9()
        with pytest.raises(mooncakefs.DaemonGone):
            batch.run()
        with pytest.raises(TimeoutError):
            s.reconnect(0.2)
        own_live.start()
        s.reconnect(5)
        assert batch.run().n_ok == 1
        with open(os.path.join(folder, "a"), "rb") as f:
            assert f.read() == b"hello"
        assert asyncio.run(batch.run_async()).n_ok == 1


def test_a_loop_goes_on_after_a_restart(own_live):
    """asyncio: what ran in a loop before the daemon was restarted runs in it after."""
    own_live.expect_errors(".")
    make_dir(own_live, "kv/d")

    async def main():
        with mooncakefs.Session(own_live.path) as s:
            d = s.directory("kv/d")
            assert (await d.lookup_async(["a"])).ready == 0
            own_live.kill9()
            with pytest.raises(mooncakefs.DaemonGone):
                await d.lookup_async(["a"])
            own_live.start()
            s.reconnect(5)
            assert (await s.batch("write").add(d, "a", b"x").run_async()).n_ok == 1
            assert (await d.lookup_async(["a"])).ready == 1
    asyncio.run(asyncio.wait_for(main(), env.scaled(20)))


def test_calls_reconnect_when_told_to(own_live):
    own_live.expect_errors(".")
    make_dir(own_live, "kv/d")
    with mooncakefs.Session(own_live.path, reconnect=True) as s:
        d = s.directory("kv/d")
        for i in range(2):
            own_live.kill9()
            own_live.start()
            assert d.write([f"a{i}"], [b"x"]).n_ok == 1
        assert d.lookup(["a0", "a1", "a2"]).ready == 2


# ---- the package ----


def test_example_loads_a_prefix(own_live):
    put_blocks(make_dir(own_live, "kv/e"), 256, 64 * KIB)
    os.unlink(os.path.join(own_live.path, "kv/e/b200"))
    done = subprocess.run([sys.executable, os.path.join(env.REPO, "examples", "prefix_load.py"), own_live.path, "kv/e",
                           "65536"], input="\n".join(f"b{i}" for i in range(256)), capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": PACKAGE}, timeout=env.scaled(30))
    assert (done.returncode, done.stdout) == (0, "200 of 256 blocks ready, 200 loaded\n"), done.stderr


def test_installs_with_pip_from_the_folder(tmp_path):
    pytest.importorskip("setuptools")
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode:
        pytest.skip("needs pip")
    shutil.copytree(PACKAGE, tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-build-isolation",
                           "--no-deps", "--target", tmp_path / "site", tmp_path / "src"],
                          capture_output=True, text=True, timeout=env.scaled(50))
    assert done.returncode == 0, done.stderr
    done = subprocess.run([sys.executable, "-c", "import mooncakefs; print(mooncakefs.__file__)"], cwd="/",
                          env={**os.environ, "PYTHONPATH": str(tmp_path / "site")}, capture_output=True, text=True)
    assert done.stdout.startswith(str(tmp_path / "site")), done.stderr
    assert (tmp_path / "site/mooncakefs/py.typed").exists()
