# SPDX-License-Identifier: Apache-2.0
"""One name space on three nodes: what is closed on one is there on all, once, and what is gone is gone everywhere."""
import errno
import itertools
import os
import statistics
import stat
import subprocess
import threading
import time

import pytest

from harness import env
from harness.client import Client
from harness.cluster import Cluster, holders, seconds_of, seconds_until, timed
from harness.content import exists, get, pattern, peek, put, put_by_rename, wait_for, xattr
from harness.ctl import check_ctl, ctl_json
from harness.session_lab import fails

pytestmark = [pytest.mark.mooncake, pytest.mark.one_mode, pytest.mark.slow_asan]
VISIBLE_SECONDS = 0.05


def show(what, times):
    """Prints the times; returns their median."""
    median = statistics.median(times)
    print(f"{what}: median {median * 1000:.1f} ms, longest {max(times) * 1000:.1f} ms of {len(times)}")
    return median


def listing(node, path):
    return sorted(os.listdir(node.at(path)))


def bare(path):
    """stat without what is of one node alone."""
    st = os.stat(path)
    return st.st_mode, st.st_size, st.st_uid, st.st_gid, st.st_nlink, st.st_mtime_ns


# ---- visible ----

def test_a_closed_file_is_visible_on_all_nodes_within_50_ms(cluster, cdir):
    """Right before, every node has answered ENOENT for the name: by stat, by open and by a listing."""
    times = []
    for i in range(20):
        writer, name = cluster[i % 3], f"{cdir}/f{i}"
        others = [n for n in cluster if n is not writer]
        for n in others:
            fails(errno.ENOENT, os.stat, n.at(name))
            fails(errno.ENOENT, os.open, n.at(name), os.O_RDONLY)
            assert f"f{i}" not in os.listdir(n.at(cdir))
        put(writer.at(name), pattern(i, 1000))
        began = time.monotonic()
        for n in others:
            seconds_until(lambda n=n: exists(n.at(name)), 5, f"{name} on node {n.name}")
            times.append(time.monotonic() - began)
            assert os.stat(n.at(name)).st_size == 1000
            assert f"f{i}" in os.listdir(n.at(cdir))
            assert get(n.at(name)) == pattern(i, 1000)
    assert show("visible elsewhere after close", times) <= env.scaled(VISIBLE_SECONDS)


def test_a_renamed_temporary_file_is_visible_within_50_ms(cluster, cdir):
    """The usual way of writing: a temporary name, then rename; after that only the last name is anywhere."""
    times = []
    for i in range(10):
        name = f"{cdir}/f{i}"
        assert not exists(cluster[1].at(name))
        put_by_rename(cluster[0].at(name), pattern(i, 5000))
        times.append(seconds_until(lambda: exists(cluster[1].at(name)), 5, name))
        assert get(cluster[1].at(name)) == pattern(i, 5000)
    assert show("visible elsewhere after rename", times) <= env.scaled(VISIBLE_SECONDS)
    for n in cluster:
        seconds_until(lambda n=n: listing(n, cdir) == sorted(f"f{i}" for i in range(10)), 1, f"names on {n.name}")


def test_a_draft_is_seen_on_no_other_node(cluster, cdir):
    """Until close there is no name elsewhere, however many bytes were written; of a killed writer there never is."""
    name = f"{cdir}/f"
    writer = Client()
    try:
        fd = writer.os.open(cluster[0].at(name), os.O_WRONLY | os.O_CREAT, 0o644)
        writer.os.write(fd, b"x" * 100000)
        time.sleep(0.1)
        for n in cluster:
            assert not exists(n.at(name)) and listing(n, cdir) == []
        writer.kill()
    finally:
        writer.destroy()
    time.sleep(0.1)
    for n in cluster:
        assert not exists(n.at(name)) and listing(n, cdir) == []


def test_stat_tells_the_same_everywhere(cluster, cdir):
    """Type, mode, owner, size and time of modification, before and after the bytes were read there."""
    name = f"{cdir}/f"
    fd = os.open(cluster[0].at(name), os.O_WRONLY | os.O_CREAT, 0o640)
    os.write(fd, pattern(1, 70001))
    os.fchown(fd, 1234, 4321)
    os.close(fd)
    for n in cluster:
        seconds_until(lambda n=n: exists(n.at(name)), 5, name)
        assert bare(n.at(name)) == bare(cluster[0].at(name))
        get(n.at(name))
        assert bare(n.at(name)) == bare(cluster[0].at(name))


def test_a_change_of_mode_goes_round(cluster, cdir):
    """chmod, chown and utimens on the node that wrote: in bounded time the others say the same, with or without a
    copy, and the version is the old one."""
    name, data = f"{cdir}/f", pattern(1, 1000)
    put(cluster[0].at(name), data)
    for n in cluster:
        seconds_until(lambda n=n: exists(n.at(name)), 5, name)
    get(cluster[1].at(name))
    version = xattr(cluster[0].at(name), "version")
    os.chmod(cluster[0].at(name), 0o640)
    os.chown(cluster[0].at(name), 1234, 4321)
    os.utime(cluster[0].at(name), (1e9, 1e9))
    for n in cluster:
        took = seconds_until(lambda n=n: bare(n.at(name)) == bare(cluster[0].at(name)), 5, f"the same on {n.name}")
        print(f"{n.name}: the same after {took * 1000:.1f} ms")
        assert xattr(n.at(name), "version") == version


@pytest.mark.parametrize("name", [
    "ab" * 16, "AB" * 16, "0" * 64, "f" * 63, "a" * 31, "ab" * 16 + ".bin", "n" * 255, "...", "-rf", "a b\n\t'\"*?",
    b"\xff\xfe" * 60, b"".join(bytes([i]) for i in range(1, 256) if i != 47)], ids=lambda n: repr(n)[:16])
def test_any_name_goes_round(cluster, cdir, name):
    """Hashes in both cases, 255 bytes of anything: found, listed and read on every node."""
    raw = os.fsencode(name)
    put(os.path.join(os.fsencode(cluster[0].at(cdir)), raw), raw)
    for n in cluster:
        folder = os.fsencode(n.at(cdir))
        seconds_until(lambda f=folder: exists(os.path.join(f, raw)), 5, f"{name!r} on {n.name}")
        assert os.listdir(folder) == [raw] and get(os.path.join(folder, raw)) == raw
        assert not exists(os.path.join(folder, raw.swapcase())) or raw.swapcase() == raw


# ---- listing ----

def test_a_listing_is_the_union_and_has_each_name_once(cluster, cdir):
    """Names of all nodes, those that were read elsewhere, directories and symlinks, with their types."""
    made = {}
    for i, n in enumerate(cluster):
        for k in range(5):
            put(n.at(cdir, f"f{i}{k}"), pattern(k, 10 * k))
            made[f"f{i}{k}"] = stat.S_IFREG
        os.mkdir(n.at(cdir, f"d{i}"))
        os.symlink("f00", n.at(cdir, f"l{i}"))
        made.update({f"d{i}": stat.S_IFDIR, f"l{i}": stat.S_IFLNK})
    for n in cluster:
        seconds_until(lambda n=n: len(set(os.listdir(n.at(cdir)))) == len(made), 2, f"all names on {n.name}")
        for name in made:
            if name.startswith("f"):
                get(n.at(cdir, name))
    for n in cluster:
        with os.scandir(n.at(cdir)) as entries:
            found = [(e.name, stat.S_IFMT(e.stat(follow_symlinks=False).st_mode), e.is_dir(follow_symlinks=False))
                     for e in entries]
        assert sorted(found) == sorted((name, kind, kind == stat.S_IFDIR) for name, kind in made.items())
        assert ".mooncake" not in os.listdir(n.path)


def test_a_long_listing_while_others_change_it(cluster, cdir):
    """3,000 names of three nodes: each that stays is listed exactly once, while others come and go."""
    stays = []
    for i, n in enumerate(cluster):
        for k in range(1000):
            put(n.at(cdir, f"stay-{i}-{k}"), b"")
            stays.append(f"stay-{i}-{k}")
    over, failures = threading.Event(), []

    def churn(n):
        try:
            for k in itertools.count():
                if over.is_set():
                    break
                put(n.at(cdir, f"go-{n.name}-{k % 50}"), b"x")
                os.unlink(n.at(cdir, f"go-{n.name}-{k % 50}"))
        except OSError as e:
            failures.append(f"{n.name}: {e}")

    threads = [threading.Thread(target=churn, args=(n,)) for n in cluster]
    for t in threads:
        t.start()
    try:
        for n in cluster:
            wait_for(lambda n=n: len([x for x in os.listdir(n.at(cdir)) if x.startswith("stay")]) >= 3000,
                     env.scaled(10), f"all names on {n.name}")
            took, names = timed(os.listdir, n.at(cdir))
            print(f"listing of {len(names)} names on {n.name}: {took * 1000:.0f} ms")
            assert sorted(x for x in names if x.startswith("stay")) == sorted(stays)
            assert len(names) == len(set(names))
    finally:
        over.set()
        for t in threads:
            t.join()
    assert not failures, failures


# ---- gone ----

def test_unlink_anywhere_is_done_everywhere_when_it_returns(cluster, cdir):
    """Removed on each node in turn, holder or not: no later open finds it; stat, which the kernel may
    answer out of its own cache, and listings follow."""
    for i in range(21):
        name, data = f"{cdir}/f{i}", pattern(i, 3000)
        put(cluster[i % 3].at(name), data)
        cluster.wait_everywhere(name, data)
        if i % 2:
            put(cluster[0].at(f"{cdir}/other"), b"x")
        os.unlink(cluster[i // 3 % 3].at(name))
        for n in cluster:
            fails(errno.ENOENT, os.open, n.at(name), os.O_RDONLY)
            seconds_until(lambda n=n: not exists(n.at(name)), 1, f"{name} in the kernel's cache of {n.name}")
    for n in cluster:
        seconds_until(lambda n=n: listing(n, cdir) == ["other"], 1, f"removed names on {n.name}")


def test_unlink_of_what_was_never_read_here(cluster, cdir):
    """A node that holds no copy removes it at its only holder; another node's negative answer stays right."""
    name = f"{cdir}/f"
    put(cluster[0].at(name), b"x" * 100)
    seconds_until(lambda: exists(cluster[1].at(name)), 5, name)
    os.unlink(cluster[1].at(name))
    for n in cluster:
        assert peek(n.at(name)) is None
    fails(errno.ENOENT, os.unlink, cluster[2].at(name))


@pytest.mark.parametrize("size", [1000, 1 << 20], ids=["small", "1MiB"])
def test_overwrite_anywhere_is_what_every_later_open_sees(cluster, cdir, size):
    """All three hold the old version; one of them, in turn, writes a new one of the same or another size."""
    name = f"{cdir}/f"
    put(cluster[0].at(name), pattern(0, size))
    cluster.wait_everywhere(name, pattern(0, size))
    times = []
    for i in range(1, 13):
        data = pattern(i, size + (i % 2))
        times.append(seconds_of(put if i % 3 else put_by_rename, cluster[i % 3].at(name), data))
        for n in cluster:
            got = get(n.at(name))
            assert got == data, f"round {i}, node {n.name}: {'another version' if got else 'no bytes'}"
            seconds_until(lambda n=n: os.stat(n.at(name)).st_size == len(data), 1, f"the new size on {n.name}")
    show("overwrite", times)


def test_what_is_open_stays_what_it_was(cluster, cdir):
    """A handle read through on one node gives the old bytes after another node has overwritten, then removed it."""
    name, old, new = f"{cdir}/f", pattern(1, 300000), pattern(2, 200000)
    put(cluster[0].at(name), old)
    cluster.wait_everywhere(name, old)
    fd = os.open(cluster[1].at(name), os.O_RDONLY)
    try:
        put(cluster[2].at(name), new)
        assert os.pread(fd, 400000, 0) == old and get(cluster[1].at(name)) == new
        os.unlink(cluster[0].at(name))
        assert os.pread(fd, 400000, 0) == old and peek(cluster[1].at(name)) is None
    finally:
        os.close(fd)


def test_a_name_removed_and_made_again_elsewhere(cluster, cdir):
    """Removed here, made there, thirty times: each time every node has the last bytes, never older ones."""
    name = f"{cdir}/f"
    for i in range(30):
        put(cluster[i % 3].at(name), pattern(i, 2000))
        for n in cluster:
            seconds_until(lambda n=n: exists(n.at(name)), 2, name)
            assert get(n.at(name)) == pattern(i, 2000)
        os.unlink(cluster[(i + 1) % 3].at(name))
        assert [peek(n.at(name)) for n in cluster] == [None] * 3


# ---- changes of what lies elsewhere ----

def test_rename_of_a_file_that_lies_elsewhere(cluster, cdir):
    """The old name is gone everywhere when rename returns, the new one has the bytes, also in another directory."""
    os.mkdir(cluster[0].at(cdir, "sub"))
    data = pattern(1, 100000)
    put(cluster[0].at(cdir, "a"), data)
    cluster.wait_everywhere(f"{cdir}/a", data)
    os.rename(cluster[1].at(cdir, "a"), cluster[1].at(cdir, "b"))
    for n in cluster:
        assert peek(n.at(cdir, "a")) is None
        assert get(n.at(cdir, "b")) == data
    os.rename(cluster[2].at(cdir, "b"), cluster[2].at(cdir, "sub", "c"))
    for n in cluster:
        assert peek(n.at(cdir, "b")) is None
        assert get(n.at(cdir, "sub", "c")) == data


def test_rename_of_a_file_that_was_never_read_here(cluster, cdir):
    """The same on a node that has no copy of the bytes."""
    data = pattern(1, 100000)
    put(cluster[0].at(cdir, "a"), data)
    seconds_until(lambda: exists(cluster[1].at(cdir, "a")), 5, "a")
    os.rename(cluster[1].at(cdir, "a"), cluster[1].at(cdir, "b"))
    for n in cluster:
        assert peek(n.at(cdir, "a")) is None
        assert get(n.at(cdir, "b")) == data


def test_rename_over_a_file_that_lies_elsewhere(cluster, cdir):
    """The target's old version is on all nodes; after the rename none of them has it."""
    old, new = pattern(1, 50000), pattern(2, 60000)
    put(cluster[2].at(cdir, "target"), old)
    cluster.wait_everywhere(f"{cdir}/target", old)
    put(cluster[1].at(cdir, "source"), new)
    os.rename(cluster[1].at(cdir, "source"), cluster[1].at(cdir, "target"))
    for n in cluster:
        assert get(n.at(cdir, "target")) == new
        assert peek(n.at(cdir, "source")) is None


def test_exclusive_creation_of_what_another_node_has(cluster, cdir):
    """O_EXCL is EEXIST; mkdir and symlink of that name too."""
    name = f"{cdir}/f"
    put(cluster[0].at(name), b"x")
    for n in cluster:
        seconds_until(lambda n=n: exists(n.at(name)), 5, name)
        fails(errno.EEXIST, os.open, n.at(name), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        fails(errno.EEXIST, os.mkdir, n.at(name))
        fails(errno.EEXIST, os.symlink, "x", n.at(name))


def test_append_and_patch_of_what_lies_elsewhere(cluster, cdir):
    """Opened for writing on a node without a copy: the bytes come along, and the result is there for all."""
    name, data = f"{cdir}/f", bytearray(pattern(1, 2 * env.MIB + 5))
    put(cluster[0].at(name), data)
    seconds_until(lambda: exists(cluster[1].at(name)), 5, name)
    fd = os.open(cluster[1].at(name), os.O_WRONLY | os.O_APPEND)
    os.write(fd, b"tail")
    os.close(fd)
    data += b"tail"
    assert all(get(n.at(name)) == data for n in cluster)
    fd = os.open(cluster[2].at(name), os.O_RDWR)
    os.pwrite(fd, b"patch", 1000000)
    os.close(fd)
    data[1000000:1000005] = b"patch"
    assert all(get(n.at(name)) == data for n in cluster)


# ---- directories ----

def test_directories_come_and_go_everywhere(cluster, cdir):
    """Made on one node, filled on another, removed on the third; rmdir of one with entries elsewhere is ENOTEMPTY."""
    a, b, c = cluster
    os.makedirs(a.at(cdir, "x/y"))
    seconds_until(lambda: os.path.isdir(b.at(cdir, "x/y")), 2, "x/y on b")
    put(b.at(cdir, "x/y/f"), b"data")
    for n in cluster:
        seconds_until(lambda n=n: exists(n.at(cdir, "x/y/f")), 2, "x/y/f")
    for n in (a, c):
        fails(errno.ENOTEMPTY, os.rmdir, n.at(cdir, "x/y"))
        fails(errno.ENOTEMPTY, os.rmdir, n.at(cdir, "x"))
    assert get(a.at(cdir, "x/y/f")) == b"data"
    os.unlink(c.at(cdir, "x/y/f"))
    os.rmdir(c.at(cdir, "x/y"))
    for n in cluster:
        seconds_until(lambda n=n: not exists(n.at(cdir, "x/y")), 2, f"x/y is gone on {n.name}")
    os.rmdir(b.at(cdir, "x"))
    for n in cluster:
        seconds_until(lambda n=n: listing(n, cdir) == [], 2, f"x is gone on {n.name}")


def test_a_file_is_made_in_a_directory_that_only_others_have(cluster, cdir):
    """No listing and no lookup on the way: create by full path on a node that never saw the directory."""
    os.makedirs(cluster[0].at(cdir, "p/q/r"))
    time.sleep(env.scaled(VISIBLE_SECONDS))
    put(cluster[1].at(cdir, "p/q/r/f"), b"made on b")
    for n in cluster:
        seconds_until(lambda n=n: peek(n.at(cdir, "p/q/r/f")) == b"made on b", 2, "f")


def test_mkdir_of_the_same_tree_on_all_nodes_at_once(cluster, cdir):
    """mkdir -p everywhere: all succeed, and it is one tree."""
    makers = [subprocess.Popen(["mkdir", "-p", n.at(cdir, "a/b/c/d")], stderr=subprocess.PIPE)
              for n in cluster for _ in range(4)]
    for p in makers:
        assert p.communicate()[1] == b"" and p.returncode == 0
    for i, n in enumerate(cluster):
        put(n.at(cdir, f"a/b/c/d/f{i}"), b"")
    for n in cluster:
        seconds_until(lambda n=n: listing(n, f"{cdir}/a/b/c/d") == ["f0", "f1", "f2"], 2, "one tree")
        assert listing(n, cdir) == ["a"] and listing(n, f"{cdir}/a") == ["b"]


def test_rename_of_a_directory(cluster, cdir):
    """With entries held elsewhere EXDEV, so that mv(1) copies; one whose entries are all here moves at once."""
    a, b, _ = cluster
    os.mkdir(a.at(cdir, "d"))
    put(a.at(cdir, "d", "mine"), b"1")
    seconds_until(lambda: exists(b.at(cdir, "d")), 2, "d on b")
    put(b.at(cdir, "d", "theirs"), b"2")
    seconds_until(lambda: exists(a.at(cdir, "d", "theirs")), 2, "theirs on a")
    fails(errno.EXDEV, os.rename, a.at(cdir, "d"), a.at(cdir, "e"))
    subprocess.run(["mv", a.at(cdir, "d"), a.at(cdir, "e")], check=True, timeout=env.scaled(20))
    for n in cluster:
        seconds_until(lambda n=n: listing(n, cdir) == ["e"], 2, "d is e")
        assert (get(n.at(cdir, "e/mine")), get(n.at(cdir, "e/theirs"))) == (b"1", b"2")
    os.mkdir(b.at(cdir, "own"))
    put(b.at(cdir, "own", "f"), b"3")
    os.rename(b.at(cdir, "own"), b.at(cdir, "moved"))
    for n in cluster:
        seconds_until(lambda n=n: listing(n, cdir) == ["e", "moved"], 2, "own is moved")
        assert get(n.at(cdir, "moved/f")) == b"3"


def test_symlinks_flip_everywhere(cluster, cdir):
    """ln -sfn on any node: every node follows the new target within 50 ms, as weights/MODEL/current does."""
    for v in ("v1", "v2"):
        os.mkdir(cluster[0].at(cdir, v))
        put(cluster[0].at(cdir, v, "f"), v.encode())
    times = []
    for i in range(8):
        target = ("v1", "v2")[i % 2]
        subprocess.run(["ln", "-sfn", target, cluster[i % 3].at(cdir, "current")], check=True)
        for n in cluster:
            times.append(seconds_until(lambda n=n: peek(n.at(cdir, "current/f")) == target.encode(), 5,
                                       f"round {i}: {target} on {n.name}"))
            assert os.readlink(n.at(cdir, "current")) == target
    assert show("symlink flipped", times) <= env.scaled(VISIBLE_SECONDS)


def test_a_symlink_is_renamed_where_it_was_not_made(cluster, cdir):
    """And is not replaced by RENAME_NOREPLACE."""
    a, b, c = cluster
    put(a.at(cdir, "f"), b"f")
    os.symlink("f", a.at(cdir, "old"))
    seconds_until(lambda: os.path.islink(b.at(cdir, "old")), 5, "the link is known")
    os.rename(b.at(cdir, "old"), b.at(cdir, "new"))
    for n in cluster:
        seconds_until(lambda n=n: listing(n, cdir) == ["f", "new"], 5, f"the link is renamed on {n.name}")
        assert os.readlink(n.at(cdir, "new")) == "f"
    done = subprocess.run(["mv", "-n", c.at(cdir, "f"), c.at(cdir, "new")], capture_output=True)
    assert done.returncode in (0, 1) and os.readlink(c.at(cdir, "new")) == "f" and get(a.at(cdir, "f")) == b"f"


# ---- kv: immutable by contract ----

def test_a_second_publisher_below_kv_is_a_second_holder(cluster):
    """Same name, same size, not bit-equal: each keeps its own bytes, both are holders, a third reads one of them."""
    a, b, c = cluster
    name = "kv/model/" + os.urandom(16).hex()
    for i, n in enumerate((a, b)):
        os.makedirs(n.at("kv/model"), exist_ok=True)
        put(n.at(name), bytes([i]) * 100000)
    assert get(a.at(name)) == b"\0" * 100000 and get(b.at(name)) == b"\1" * 100000
    seconds_until(lambda: exists(c.at(name)), 2, name)
    assert get(c.at(name)) in (b"\0" * 100000, b"\1" * 100000)
    assert get(a.at(name)) == b"\0" * 100000 and get(b.at(name)) == b"\1" * 100000
    assert listing(c, "kv/model").count(os.path.basename(name)) == 1


def test_another_size_below_kv_is_an_overwrite(cluster):
    """What was published with another size replaces the old version on all nodes, though nobody waits for it."""
    a, b, _ = cluster
    name = "kv/model/" + os.urandom(16).hex()
    os.makedirs(a.at("kv/model"), exist_ok=True)
    put(a.at(name), b"1" * 1000)
    cluster.wait_everywhere(name, b"1" * 1000)
    put(b.at(name), b"2" * 1001)
    cluster.wait_everywhere(name, b"2" * 1001, 1)


def test_unlink_below_kv(cluster):
    """A block removed on one node is gone on all that hold it, though nobody waits for it."""
    name = "kv/model/" + os.urandom(16).hex()
    os.makedirs(cluster[0].at("kv/model"), exist_ok=True)
    put(cluster[0].at(name), b"1" * 1000)
    cluster.wait_everywhere(name, b"1" * 1000)
    os.unlink(cluster[2].at(name))
    cluster.wait_everywhere(name, None, 1)


# ---- at once ----

@pytest.mark.parametrize("folder", ["", "kv"], ids=["files", "kv"])
def test_two_nodes_publish_one_name_at_once(cluster, cdir, folder):
    """Each reader sees one version whole. Outside kv/ all nodes agree on the last one."""
    path = f"kv/{cdir}" if folder else cdir
    for n in cluster:
        os.makedirs(n.at(path), exist_ok=True)
    writers = [Client(), Client()]
    try:
        for i in range(15):
            name, both = f"{path}/f{i}", (pattern(2 * i, 200000), pattern(2 * i + 1, 200000))
            fds = [w.os.open(n.at(name), os.O_WRONLY | os.O_CREAT, 0o644) for w, n in zip(writers, cluster)]
            for w, fd, data in zip(writers, fds, both):
                w.os.write(fd, data)
            for w, fd in zip(writers, fds):
                w.start("os.close", fd)
            for w in writers:
                w.finish(env.scaled(10))
            seen = [get(n.at(name)) for n in list(cluster)[:2]]
            assert all(s in both for s in seen), f"round {i}: torn"
            if folder == "":
                seconds_until(lambda: len({peek(n.at(name)) for n in cluster}) == 1, 2, f"round {i}: one version")
                assert get(cluster[2].at(name)) in both
    finally:
        for w in writers:
            w.destroy()


def test_all_nodes_overwrite_one_file_under_readers(cluster, cdir):
    """Three writers and three readers for some seconds: every read is a whole version, and in the end one is left."""
    name, size = f"{cdir}/f", 100000
    put(cluster[0].at(name), b"\0" * size)
    cluster.wait_everywhere(name, b"\0" * size)
    write = """
import time
deadline, k, result = time.monotonic() + seconds, 0, {}
while time.monotonic() < deadline:
    k = (k + 3) % 250
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.write(fd, bytes([k + first]) * size)
        os.close(fd)
        what = "written"
    except OSError as e:
        what = e.strerror
    result[what] = result.get(what, 0) + 1
"""
    read = """
import time
deadline, result = time.monotonic() + seconds, {}
while time.monotonic() < deadline:
    try:
        with open(path, "rb", buffering=0) as f:
            data = f.read(size + 1)
        assert len(data) == size and data == data[:1] * size, "torn: %d bytes, %r" % (len(data), set(data))
        what = "read"
    except OSError as e:
        what = e.strerror
    result[what] = result.get(what, 0) + 1
"""
    clients = []
    try:
        for i, n in enumerate(cluster):
            clients += [Client(), Client()]
            clients[-2].start_exec(write, path=n.at(name), size=size, first=i, seconds=3)
            clients[-1].start_exec(read, path=n.at(name), size=size, seconds=3)
        done = [c.finish(env.scaled(30)) for c in clients]
        print("writers", done[::2], "readers", done[1::2])
        seconds_until(lambda: len({peek(n.at(name)) for n in cluster}) == 1, 2, "one version is left")
        assert all(set(d) == {"written"} for d in done[::2]) and all(set(d) == {"read"} for d in done[1::2])
    finally:
        for c in clients:
            c.destroy()


# ---- what is said of it ----

def test_attributes_say_where_a_file_is(cluster, cdir):
    """user.mooncake.tier is remote until it was read; then here, with one more holder."""
    a, b, _ = cluster
    name = f"{cdir}/f"
    put(a.at(name), pattern(1, 100000))
    seconds_until(lambda: exists(b.at(name)), 2, name)
    assert xattr(a.at(name), "tier") == "dram" and xattr(b.at(name), "tier") == "remote"
    assert xattr(b.at(name), "version") == xattr(a.at(name), "version")
    get(b.at(name))
    assert xattr(b.at(name), "tier") == "dram"
    for n in (a, b):
        seconds_until(lambda n=n: holders(n.at(name)) == {"a", "b"}, 2, f"two holders as {n.name} says")


def test_ctl_shows_nodes_and_peers(cluster, cdir):
    """Every node lists all nodes, itself too, and its peers with addresses and states."""
    put(cluster[0].at(cdir, "f"), b"x" * 100000)
    for n in cluster:
        seconds_until(lambda n=n: exists(n.at(cdir, "f")), 2, "f")
        get(n.at(cdir, "f"))
    for n in cluster:
        text = check_ctl("nodes", n.path)
        assert all(other.name in text.split() and other.address in text for other in cluster)
        found = ctl_json("nodes", n.path)
        found = found["nodes"] if isinstance(found, dict) else found
        assert sorted(x["name"] for x in found) == sorted(other.name for other in cluster)
        found = ctl_json("peers", n.path)
        found = found["peers"] if isinstance(found, dict) else found
        addresses = {other.address: other.name for other in cluster if other is not n}
        assert found or n is cluster[0]
        for p in found:
            assert addresses[p["address"]] == p["name"] and p["state"] in ("up", "idle")
        check_ctl("peers", n.path)


def test_a_node_that_joins_later_sees_everything(new_cluster):
    """Names of two nodes, one of which has ended since: the third sees and reads what a holder is there for."""
    c = new_cluster(2, dram="64M").start()
    a, b = c
    put(a.at("f"), b"one")
    put(b.at("g"), b"two")
    c.wait_everywhere("f", b"one")
    a.stop()
    late = c.add()
    c.start()
    assert get(late.at("f")) == b"one" and get(late.at("g")) == b"two"
    assert sorted(os.listdir(late.path)) == ["f", "g"]


def test_everything_again_on_ipv6(new_cluster):
    """The same on ::1: written, seen, read, overwritten, renamed, removed."""
    c = new_cluster(3, host="[::1]", dram="64M").start()
    assert all(n.address.startswith("[::1]:") for n in c)
    put(c[0].at("f"), pattern(1, 3 * env.MIB))
    c.wait_everywhere("f", pattern(1, 3 * env.MIB))
    put(c[1].at("f"), pattern(2, 1000))
    assert all(get(n.at("f")) == pattern(2, 1000) for n in c)
    os.rename(c[2].at("f"), c[2].at("g"))
    assert all(peek(n.at("f")) is None and get(n.at("g")) == pattern(2, 1000) for n in c)
    os.unlink(c[0].at("g"))
    assert all(peek(n.at("g")) is None for n in c)


def test_a_user_s_probe_of_two_mounts(cluster):
    """What users' programs do, tried on one node and looked at from another."""
    probe = os.path.join(env.SHARED, "probe", "kvfs_probe.py")
    env.require_file(probe)
    done = subprocess.run(["python3", probe, cluster[0].path, cluster[1].path], capture_output=True, text=True,
                          timeout=env.scaled(50))
    print(done.stdout[-4000:])
    assert done.returncode == 0 and "FAIL" not in done.stdout, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.limit(180)
def test_many_nodes_start_on_one_host_at_once(new_cluster):
    """Each on a port of its own: all know all, a file of each is read on another, and an overwrite of what all hold is
    seen by all. MCFS_LONG=1: fifty of them."""
    n = 50 if env.LONG else 6
    c = new_cluster(n, names=[f"n{i}" for i in range(n)], dram="16M", kind=Cluster)
    took = seconds_of(c.start)
    print(f"{n} nodes know each other after {took:.1f} s")
    assert len({node.address for node in c}) == n
    for i, node in enumerate(c):
        put(node.at(f"f{i}"), pattern(i, 10000))
    for i, node in enumerate(c):
        for k in (i + 1, i + n // 2):
            wait_for(lambda: exists(node.at(f"f{k % n}")), env.scaled(5), f"f{k % n} on {node.name}")
            assert get(node.at(f"f{k % n}")) == pattern(k % n, 10000)
    for node in c:
        assert get(node.at("f0")) == pattern(0, 10000)
    put(c[1].at("f0"), b"new")
    assert all(get(node.at("f0")) == b"new" for node in c), "more hold it than the directory lists"
