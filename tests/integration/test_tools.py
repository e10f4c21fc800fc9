# SPDX-License-Identifier: Apache-2.0
"""The tools that people already run, on the mount as on any disk."""
import hashlib
import importlib.util
import mmap
import os
import shutil
import subprocess

import pytest

from harness import env
from harness.content import get, pattern, put

MIB = env.MIB


def run(*argv, cwd=None, input=None, ok=True):
    """Runs a command; by default it must succeed. Returns its stdout, or the process when ok is False."""
    env.require_tool(argv[0])
    p = subprocess.run(argv, cwd=cwd, input=input, capture_output=True, timeout=env.scaled(50))
    if not ok:
        return p
    assert p.returncode == 0, f"{argv}: exit {p.returncode}: {p.stderr.decode()[-1000:]}"
    return p.stdout


@pytest.fixture
def tree(tmp_path):
    """A source tree on disk: sizes around the block sizes, modes, times, symlinks, odd names."""
    root = tmp_path / "src"
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "empty dir").mkdir()
    sizes = [0, 1, 100, 4095, 4096, 4097, 65536, 300001, MIB, 3 * MIB + 17]
    for i, size in enumerate(sizes):
        folder = (root, root / "sub", root / "sub" / "deep")[i % 3]
        path = folder / f"file {i}.bin"
        path.write_bytes(pattern(i, size))
        path.chmod((0o644, 0o600, 0o755, 0o444)[i % 4])
        os.utime(path, ns=(10**18 + i, 1_600_000_000_000_000_000 + i * 1_000_003))
    (root / "link").symlink_to("sub/file 1.bin")
    (root / "dangling").symlink_to("nowhere")
    os.utime(root / "sub", ns=(10**18, 10**18))
    return str(root)


def _same(a, b):
    run("diff", "-r", "--no-dereference", a, b)


def test_cp_archive(tree, d):
    """cp -a keeps contents, modes, times and symlinks, into the mount and out again."""
    run("cp", "-a", tree, os.path.join(d, "in"))
    _same(tree, os.path.join(d, "in"))
    assert run("rsync", "-ain", "--delete", tree + "/", os.path.join(d, "in/")) == b""
    run("cp", "-a", os.path.join(d, "in"), os.path.join(os.path.dirname(tree), "out"))
    _same(tree, os.path.join(os.path.dirname(tree), "out"))


def test_cp_within_the_mount(tree, d):
    """cp from one file of the mount to another, sparse and reflink options included."""
    put(os.path.join(d, "a"), pattern(1, 2 * MIB))
    for i, options in enumerate(([], ["--sparse=always"], ["--sparse=never"], ["--reflink=auto"])):
        run("cp", *options, "a", f"b{i}", cwd=d)
        assert get(os.path.join(d, f"b{i}")) == pattern(1, 2 * MIB)
    assert run("cp", "--reflink=always", "a", "c", cwd=d, ok=False).returncode in (0, 1)


def test_rsync_twice(tree, d):
    """rsync -a copies all; a second run finds nothing to do; a third one brings a change and a removal."""
    dst = os.path.join(d, "dst/")
    run("rsync", "-a", tree + "/", dst)
    _same(tree, dst)
    assert run("rsync", "-ai", "--delete", tree + "/", dst) == b""
    put(os.path.join(tree, "sub", "new"), b"new")
    os.remove(os.path.join(tree, "file 0.bin"))
    run("rsync", "-a", "--delete", tree + "/", dst)
    _same(tree, dst)


def test_rsync_inplace_and_checksum(tree, d):
    """rsync --inplace rewrites a changed file; rsync -c agrees afterwards."""
    dst = os.path.join(d, "dst/")
    run("rsync", "-a", tree + "/", dst)
    path = os.path.join(tree, "sub/deep/file 8.bin")
    os.chmod(path, 0o644)
    with open(path, "r+b") as f:
        f.seek(500000)
        f.write(b"changed")
    run("rsync", "-a", "--inplace", "--no-whole-file", tree + "/", dst)
    assert run("rsync", "-aic", tree + "/", dst) == b""
    _same(tree, dst)


def test_tar_round_trip(tree, d):
    """tar into a file of the mount, compared there, unpacked there: everything as it was."""
    archive = os.path.join(d, "a.tar")
    run("tar", "-cf", archive, "-C", tree, ".")
    run("tar", "-df", archive, "-C", tree)
    os.mkdir(os.path.join(d, "out"))
    run("tar", "-xpf", archive, "-C", os.path.join(d, "out"))
    _same(tree, os.path.join(d, "out"))
    run("tar", "-df", archive, "-C", os.path.join(d, "out"))
    run("tar", "-rf", archive, "-C", tree, "link")
    assert run("tar", "-tf", archive).splitlines().count(b"link") == 1


@pytest.mark.parametrize("flags", [[], ["oflag=direct"], ["iflag=direct"], ["oflag=direct", "iflag=direct"],
                                   ["conv=fsync"], ["oflag=dsync"]], ids=lambda f: "+".join(f) or "plain")
def test_dd(d, flags):
    """dd copies exactly with and without O_DIRECT, fsync and O_DSYNC."""
    data = pattern(1, 2 * MIB)
    put(os.path.join(d, "in"), data)
    run("dd", "if=in", "of=out", "bs=64k", *flags, cwd=d)
    assert get(os.path.join(d, "out")) == data


def test_dd_in_the_middle(d):
    """dd conv=notrunc seek= rewrites a part of a published file, oflag=append adds to it."""
    path = os.path.join(d, "f")
    put(path, b"a" * 10000)
    run("dd", "of=f", "bs=1000", "seek=3", "conv=notrunc", cwd=d, input=b"b" * 1000)
    run("dd", "of=f", "oflag=append", "conv=notrunc", cwd=d, input=b"c" * 10)
    run("dd", "of=g", "bs=1000", "seek=2", cwd=d, input=b"d" * 5)
    assert get(path) == b"a" * 3000 + b"b" * 1000 + b"a" * 6000 + b"c" * 10
    assert get(os.path.join(d, "g")) == bytes(2000) + b"d" * 5


def test_truncate_and_touch(d):
    """truncate grows, shrinks and extends relatively; touch creates and sets times."""
    path = os.path.join(d, "f")
    run("touch", "f", cwd=d)
    assert get(path) == b""
    for size, expected in (("5000", 5000), ("100", 100), ("+50", 150), ("%4096", 4096)):
        run("truncate", "-s", size, "f", cwd=d)
        assert os.stat(path).st_size == expected
    assert get(path) == bytes(4096)
    run("touch", "-d", "2001-02-03 04:05:06.789 UTC", "f", cwd=d)
    assert os.stat(path).st_mtime_ns == 981173106789000000
    run("touch", "-r", "f", "g", cwd=d)
    assert os.stat(os.path.join(d, "g")).st_mtime_ns == 981173106789000000


def test_du_and_df(d, fs):
    """du counts the bytes of objects, du --apparent-size exactly; df shows a file system of that name."""
    for i in range(4):
        put(os.path.join(d, f"f{i}"), pattern(i, MIB))
    apparent = int(run("du", "-sb", d).split()[0])
    assert 4 * MIB <= apparent < 4 * MIB + 65536
    taken = int(run("du", "-s", "-B1", d).split()[0])
    assert 4 * MIB <= taken < 4 * MIB + 65536
    total, used, free = (int(v) for v in run("df", "--output=size,used,avail", "-B1", d).split()[-3:])
    assert used >= 4 * MIB and used + free <= total


def test_find(tree, d):
    """find by type, size, name, mode and age sees what is there; -delete removes it."""
    run("cp", "-a", tree, "t", cwd=d)
    found = run("find", "t", "-type", "f", "-size", "+1M", cwd=d).splitlines()
    assert found == [b"t/file 9.bin"]
    assert len(run("find", "t", "-type", "f", cwd=d).splitlines()) == 10
    assert len(run("find", "t", "-type", "l", cwd=d).splitlines()) == 2
    assert run("find", "t", "-empty", "-type", "d", cwd=d) == b"t/empty dir\n"
    assert len(run("find", "t", "-perm", "444", "-type", "f", cwd=d).splitlines()) == 2
    assert run("find", "t", "-newermt", "2021-01-01", "-type", "f", cwd=d) == b""
    run("find", "t", "-type", "f", "-delete", cwd=d)
    assert run("find", "t", "-type", "f", cwd=d) == b""
    run("rm", "-rf", "t", cwd=d)
    assert os.listdir(d) == []


def test_rm_rf_of_a_wide_tree(d):
    """rm -rf of 40 directories with 25 files each leaves nothing."""
    for i in range(40):
        os.mkdir(os.path.join(d, str(i)))
        for k in range(25):
            put(os.path.join(d, str(i), str(k)), b"x")
    run("rm", "-rf", *(str(i) for i in range(40)), cwd=d)
    assert os.listdir(d) == []


def test_md5sum_loops(d):
    """md5sum -c again and again, from several processes at once: always OK."""
    sums = ""
    for i in range(20):
        data = pattern(i, 50000 * (i + 1))
        put(os.path.join(d, f"f{i}"), data)
        sums += f"{hashlib.md5(data).hexdigest()}  f{i}\n"
    put(os.path.join(d, "SUMS"), sums.encode())
    loop = ["sh", "-c", "for i in 1 2 3 4 5; do md5sum --quiet -c SUMS || exit 1; done"]
    checkers = [subprocess.Popen(loop, cwd=d, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [p.wait() for p in checkers] == [0, 0, 0]


def test_mv(tree, d, tmp_path):
    """mv into the mount, within it, over a file, and out again."""
    shutil.copytree(tree, tmp_path / "moving", symlinks=True)
    run("mv", str(tmp_path / "moving"), d)
    _same(tree, os.path.join(d, "moving"))
    run("mv", "moving", "moved", cwd=d)
    put(os.path.join(d, "a"), b"a")
    put(os.path.join(d, "b"), b"b")
    run("mv", "-f", "a", "b", cwd=d)
    assert get(os.path.join(d, "b")) == b"a"
    run("mv", os.path.join(d, "moved"), str(tmp_path / "back"))
    _same(tree, str(tmp_path / "back"))
    assert os.listdir(d) == ["b"]


def test_install_and_sed(d):
    """install sets the mode; sed -i replaces by rename and keeps it."""
    put(os.path.join(d, "src"), b"one\ntwo\n")
    run("install", "-m", "750", "src", "dst", cwd=d)
    run("sed", "-i", "s/two/2/", "dst", cwd=d)
    run("sed", "-i.bak", "s/one/1/", "dst", cwd=d)
    assert get(os.path.join(d, "dst")) == b"1\n2\n"
    assert get(os.path.join(d, "dst.bak")) == b"one\n2\n"
    assert os.stat(os.path.join(d, "dst")).st_mode & 0o777 == 0o750
    assert sorted(os.listdir(d)) == ["dst", "dst.bak", "src"]


def test_text_tools(d):
    """sort -o on its own input, tee -a, split and cat, head -c, gzip."""
    lines = b"".join(b"%06d\n" % ((i * 7919) % 20000) for i in range(20000))
    put(os.path.join(d, "f"), lines)
    run("split", "-b", "10000", "f", "part.", cwd=d)
    assert run("sh", "-c", "cat part.*", cwd=d) == lines
    run("sort", "-o", "f", "f", cwd=d)
    assert get(os.path.join(d, "f")) == b"".join(b"%06d\n" % i for i in range(20000))
    run("tee", "-a", "f", cwd=d, input=b"end\n")
    assert run("tail", "-c", "4", "f", cwd=d) == b"end\n"
    run("gzip", "f", cwd=d)
    run("gunzip", "-k", "f.gz", cwd=d)
    assert get(os.path.join(d, "f")).endswith(b"019999\nend\n")


def test_git_repository(d):
    """git init, add, commit, fsck, gc and clone."""
    env.require_tool("git")
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@e", "-c", "init.defaultBranch=main"]
    repo = os.path.join(d, "repo")
    run(*git, "init", "-q", repo)
    for i in range(10):
        put(os.path.join(repo, f"f{i}"), pattern(i, 10000))
    for command in (["add", "."], ["commit", "-qm", "one"], ["mv", "f0", "g0"], ["commit", "-qm", "two"],
                    ["fsck", "--strict"], ["gc", "-q"], ["status", "--porcelain"]):
        out = run(*git, *command, cwd=repo)
    assert out == b""
    run(*git, "clone", "-q", "--no-hardlinks", repo, os.path.join(d, "clone"))
    assert get(os.path.join(d, "clone", "g0")) == pattern(0, 10000)


# ---- fio ----

@pytest.mark.parametrize("engine, direct", [("libaio", 1), ("io_uring", 1), ("mmap", 0), ("psync", 0),
                                            ("pvsync2", 1), ("posixaio", 0)])
@pytest.mark.parametrize("rw", ["write", "randwrite"])
def test_fio_verify(d, engine, direct, rw):
    """fio writes with checksums and verifies them, by every engine."""
    env.require_tool("fio")
    if engine not in run("fio", "--enghelp").decode().split():
        pytest.skip(f"fio has no engine {engine}")
    p = run("fio", "--name=v", f"--directory={d}", f"--rw={rw}", f"--ioengine={engine}",
            f"--direct={direct}", "--size=4m", "--bs=64k", "--iodepth=8", "--verify=crc32c",
            "--do_verify=1", "--verify_fatal=1", "--randrepeat=1", "--fallocate=none", cwd=d, ok=False)
    if p.returncode != 0 and b"Operation not permitted" in p.stderr and engine == "io_uring":
        pytest.skip("io_uring is not permitted here")
    assert p.returncode == 0, (p.stdout + p.stderr).decode()[-1500:]
    assert b"err= 0" in p.stdout


# ---- Python ----

def test_python_shutil(tree, d):
    """shutil: copytree, copy2, move, disk_usage, make_archive, rmtree."""
    dst = os.path.join(d, "t")
    shutil.copytree(tree, dst, symlinks=True)
    _same(tree, dst)
    shutil.copy2(os.path.join(tree, "file 9.bin"), os.path.join(d, "copy"))
    assert os.stat(os.path.join(d, "copy")).st_mtime_ns == os.stat(os.path.join(tree, "file 9.bin")).st_mtime_ns
    shutil.move(os.path.join(d, "copy"), os.path.join(d, "moved"))
    assert get(os.path.join(d, "moved")) == pattern(9, 3 * MIB + 17)
    shutil.make_archive(os.path.join(d, "archive"), "zip", tree)
    shutil.unpack_archive(os.path.join(d, "archive.zip"), os.path.join(d, "unpacked"))
    assert get(os.path.join(d, "unpacked", "file 9.bin")) == pattern(9, 3 * MIB + 17)
    shutil.rmtree(dst)
    assert sorted(os.listdir(d)) == ["archive.zip", "moved", "unpacked"]


def test_python_mmap_write_and_read(d):
    """mmap.mmap of a new file for writing, resized, and of the finished one for reading."""
    path = os.path.join(d, "f")
    with open(path, "w+b") as f:
        f.truncate(MIB)
        with mmap.mmap(f.fileno(), 0) as m:
            m[:5] = b"hello"
            m.seek(MIB - 5)
            m.write(b"there")
            m.flush()
            m.resize(2 * MIB)
            m[2 * MIB - 1] = 33
    with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as m:
        assert m.size() == 2 * MIB
        assert m.find(b"there") == MIB - 5
        assert m[:] == b"hello" + bytes(MIB - 10) + b"there" + bytes(MIB - 1) + b"!"


def test_python_numpy(d):
    """ndarray.tofile, fromfile, np.save, np.load with mmap_mode, and memmap in w+ mode."""
    if importlib.util.find_spec("numpy") is None:
        pytest.skip("needs numpy")
    import numpy as np
    a = np.arange(300000, dtype=np.float32).reshape(300, 1000)
    path = os.path.join(d, "a.bin")
    a.tofile(path)
    assert (np.fromfile(path, dtype=np.float32).reshape(a.shape) == a).all()
    np.save(os.path.join(d, "a.npy"), a)
    assert (np.load(os.path.join(d, "a.npy"), mmap_mode="r") == a).all()
    m = np.memmap(os.path.join(d, "m"), dtype=np.float32, mode="w+", shape=a.shape)
    m[:] = a
    m.flush()
    del m
    assert (np.fromfile(os.path.join(d, "m"), dtype=np.float32).reshape(a.shape) == a).all()


def test_python_buffered_and_text(d):
    """Buffered, unbuffered, text, append and r+ modes of open()."""
    path = os.path.join(d, "f")
    with open(path, "w", encoding="utf-8") as f:
        for i in range(10000):
            f.write(f"line {i}\n")
    with open(path, "a", encoding="utf-8") as f:
        f.write("tail\n")
    with open(path, "r+", encoding="utf-8") as f:
        f.write("LINE")
    with open(path, encoding="utf-8") as f:
        lines = f.read().splitlines()
    assert lines == ["LINE 0"] + [f"line {i}" for i in range(1, 10000)] + ["tail"]
    with open(path, "x+b" if not os.path.exists(path) else "wb", buffering=0) as f:
        assert f.write(b"abc") == 3
    assert get(path) == b"abc"
