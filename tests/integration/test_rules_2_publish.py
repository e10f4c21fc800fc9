# SPDX-License-Identifier: Apache-2.0
"""Rule 2: what makes a draft the object of its name, and what does not."""
import os
import subprocess
import threading
import time

import pytest

from harness.content import exists, get, pattern, peek, put, version, wait_for
from harness.progs import check_prog, prog

pytestmark = pytest.mark.mooncake

CREATE = os.O_RDWR | os.O_CREAT


def stored(seed, n, header=0):
    """What progs/mapstore leaves in a file."""
    return b"h" * header + bytes((seed + i + i // 4096) & 255 for i in range(header, n))


class Watch:
    """Collects every content a file shows to this process while something else happens."""

    def __init__(self, path):
        self.path = path
        self.seen = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while not self._stop.is_set():
            self.seen.add(peek(self.path))
            time.sleep(0.002)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._stop.set()
        self._thread.join()
        self.seen.add(peek(self.path))


# ---- close ----

def test_rule02_close_publishes(d, client_a):
    """When close returns, other processes see the file whole."""
    path, data = os.path.join(d, "f"), pattern(1, 300000)
    fd = client_a.os.open(path, CREATE, 0o644)
    client_a.os.write(fd, data)
    assert peek(path) is None
    client_a.os.close(fd)
    assert get(path) == data


def test_rule02_created_and_never_written_file_appears_empty(d, client_a):
    """open(O_CREAT) and close without a write makes an empty file."""
    path = os.path.join(d, "empty")
    client_a.os.close(client_a.os.open(path, os.O_WRONLY | os.O_CREAT, 0o644))
    assert get(path) == b""
    assert os.stat(path).st_size == 0


def test_rule02_read_only_created_file_appears_empty(d, client_a):
    """open(O_CREAT | O_RDONLY), as flock(1) does it, makes an empty file too."""
    path = os.path.join(d, "empty")
    client_a.os.close(client_a.os.open(path, os.O_RDONLY | os.O_CREAT, 0o644))
    wait_for(lambda: exists(path), 1, "the file is there")
    assert get(path) == b""


def test_rule02_close_of_a_read_only_handle_publishes_nothing(d, client_a):
    """A second, read-only handle of a draft can be closed without publishing what is half written."""
    path = os.path.join(d, "f")
    fd = client_a.os.open(path, CREATE, 0o644)
    client_a.os.write(fd, b"half ")
    client_a.os.close(client_a.os.open(path, os.O_RDONLY))
    assert peek(path) is None
    client_a.os.write(fd, b"rest")
    client_a.os.close(fd)
    assert get(path) == b"half rest"


def test_rule02_second_close_publishes_again(d, client_a):
    """Writing on through a duplicate after a close, and closing that, publishes a newer version."""
    path = os.path.join(d, "f")
    fd = client_a.os.open(path, CREATE, 0o644)
    dup = client_a.os.dup(fd)
    client_a.os.write(fd, b"one " * 3000)
    client_a.os.close(fd)
    assert get(path) == b"one " * 3000
    first = version(path)
    client_a.os.write(dup, b"two")
    client_a.os.close(dup)
    assert get(path) == b"one " * 3000 + b"two"
    assert version(path) > first


def test_rule02_close_without_change_makes_no_version(d, client_a):
    """Another close with nothing written in between publishes nothing."""
    path = os.path.join(d, "f")
    fd = client_a.os.open(path, CREATE, 0o644)
    client_a.os.write(fd, b"one " * 3000)
    client_a.os.close(client_a.os.dup(fd))
    first = version(path)
    client_a.os.close(client_a.os.dup(fd))
    client_a.os.close(fd)
    assert version(path) == first


def test_rule02_published_bytes_stay_when_the_writer_goes_on(d, client_a):
    """The published frame is not written to any more: a reader of it keeps the first version."""
    path, data = os.path.join(d, "f"), pattern(1, 200000)
    fd = client_a.os.open(path, CREATE, 0o644)
    client_a.os.write(fd, data)
    client_a.os.close(client_a.os.dup(fd))
    reader = os.open(path, os.O_RDONLY)
    for off in range(0, 200000, 50000):
        client_a.os.pwrite(fd, b"Z" * 5000, off)
    client_a.os.ftruncate(fd, 150000)
    assert os.pread(reader, 300000, 0) == data
    assert get(path) == data
    client_a.os.close(fd)
    assert os.pread(reader, 300000, 0) == data
    assert len(get(path)) == 150000 and get(path)[:5000] == b"Z" * 5000
    os.close(reader)


# ---- other processes' closes ----

@pytest.mark.parametrize("command, expected", [
    ("echo a > f", b"a\n"),
    ("printf abc > f; printf def >> f", b"abcdef"),
    ("(echo a; echo b) > f", b"a\nb\n"),
    ("(/bin/echo a; sleep 0.1; /bin/echo b) > f", b"a\nb\n"),
    ("{ echo a; /bin/echo b; sleep 0.1; echo c; } > f", b"a\nb\nc\n"),
    ("exec > f; echo a; sleep 0.1; /bin/echo b", b"a\nb\n"),
    ("exec 3> f; echo a >&3; sleep 0.1; /bin/echo b >&3; exec 3>&-", b"a\nb\n"),
    ("(echo a; sleep 0.1; ls /none; true) > f 2> /dev/null", b"a\n"),
    ("(echo a; sleep 0.1; echo b >&2) > f 2>&1", b"a\nb\n"),
    ("(echo a; sleep 0.1; echo b) | cat > f", b"a\nb\n"),
    ("(echo a; sleep 0.1; echo b) | tee f > /dev/null", b"a\nb\n"),
    ("(echo a; sleep 0.1; echo b) | dd of=f status=none", b"a\nb\n"),
    ("for i in 1 2 3; do /bin/echo $i; sleep 0.03; done > f", b"1\n2\n3\n"),
    ("(/bin/echo a & sleep 0.1; /bin/echo b; wait) > f", b"a\nb\n"),
    (": > f", b""),
    ("> f", b""),
], ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_rule02_redirection_publishes_whole(d, shell, command, expected):
    """A shell's redirection shows the file once and whole, never what is written so far."""
    path = os.path.join(d, "f")
    appends = ">>" in command
    with Watch(path) as watch:
        subprocess.run([shell, "-c", command], cwd=d, check=True)
    assert get(path) == expected
    assert watch.seen <= {None, expected, expected[:3] if appends else None}


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_rule02_append_redirection_keeps_the_old_object_until_closed(d, shell):
    """`>>` on a published name: the old content, then the longer one, nothing between."""
    path = os.path.join(d, "f")
    put(path, b"old\n")
    with Watch(path) as watch:
        subprocess.run([shell, "-c", "(echo a; sleep 0.1; /bin/echo b) >> f"], cwd=d, check=True)
    assert watch.seen == {b"old\n", b"old\na\nb\n"}


def test_rule02_subprocess_stdout_is_published_by_the_opener(d, client_a):
    """A child that got the file as stdout publishes nothing at its exit; its parent's close does."""
    path = os.path.join(d, "f")
    client_a.exec("""
import subprocess
f = open(path, "wb")
f.write(b"parent\\n"); f.flush()
subprocess.run(["echo", "child"], stdout=f, check=True)
""", path=path)
    assert peek(path) is None
    client_a.exec("f.seek(0, 2); f.write(b'again\\n'); f.close()")
    assert get(path) == b"parent\nchild\nagain\n"


def test_rule02_subprocess_stdout_closed_by_the_parent_first(d, client_a):
    """The parent closes at once and the child writes later: in the end all of the child's output is there."""
    path = os.path.join(d, "f")
    client_a.exec("""
import subprocess
f = open(path, "wb")
p = subprocess.Popen(["sh", "-c", "sleep 0.1; echo a; sleep 0.1; echo b"], stdout=f)
f.close()
p.wait()
""", path=path)
    assert get(path) == b"a\nb\n"


@pytest.mark.parametrize("scenario", ["child-exits", "child-closes", "child-killed", "child-writes"])
def test_rule02_end_of_a_forked_child_does_not_publish_half(d, scenario):
    """However a forked child ends, its parent's half-written file stays private until the parent closes."""
    path = os.path.join(d, "f")
    p = subprocess.Popen([prog("forkdraft"), path, scenario], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "child-gone\n"
    assert peek(path) is None
    p.stdin.write("\n")
    p.stdin.close()
    assert p.stdout.read() == "" and p.wait() == 0
    assert get(path) == b"first-second-"


def test_rule02_child_publishes_what_the_opener_has_closed(d):
    """After the opener's own close a child that still writes publishes at its end."""
    path = os.path.join(d, "f")
    p = subprocess.Popen([prog("forkdraft"), path, "parent-closes-first"], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "before-close\n"
    assert peek(path) in (None, b"")
    p.stdin.write("\n")
    p.stdin.close()
    assert p.wait() == 0
    assert get(path) == b"first-second-"


def test_rule02_parent_and_child_exit_one_after_another(d):
    """The parent exits normally half-way, the child writes the rest and exits: the whole file is there."""
    path = os.path.join(d, "f")
    p = subprocess.Popen([prog("forkdraft"), path, "parent-exits"], stdin=subprocess.DEVNULL,
                         stdout=subprocess.PIPE, text=True)
    assert p.wait() == 0
    assert p.stdout.read() == ""  # until the child is gone as well
    wait_for(lambda: peek(path) == b"first-second-", 2, "the child's part is published")


# ---- resized, not written ----

def test_rule02_ftruncate_alone_publishes(d):
    """`truncate -s` of a new name: the next process finds the file, all zeros."""
    path = os.path.join(d, "f")
    subprocess.run(["truncate", "-s", "100000", path], check=True)
    assert subprocess.run(["stat", "-c", "%s", path], capture_output=True).stdout == b"100000\n"
    assert get(path) == bytes(100000)


def test_rule02_fallocate_alone_publishes(d, client_a):
    """posix_fallocate of a new file without any write: the next process finds it, all zeros."""
    path = os.path.join(d, "f")
    fd = client_a.os.open(path, CREATE, 0o644)
    client_a.os.posix_fallocate(fd, 0, 70000)
    client_a.os.close(fd)
    assert get(path) == bytes(70000)


@pytest.mark.parametrize("options", [[], ["-k"], ["-s"], ["-s", "-k"]],
                         ids=["fd closed first", "fd kept", "msync", "msync, fd kept"])
@pytest.mark.parametrize("size", [5000, 300000, 2 << 20])
def test_rule02_mapped_stores_are_in_the_renamed_file(d, options, size):
    """ftruncate, mmap, close, store, munmap, rename: the new name has every store."""
    tmp, path = os.path.join(d, "tmp"), os.path.join(d, "f")
    check_prog("mapstore", *options, "-r", path, tmp, size, 7)
    assert get(path) == stored(7, size)
    assert os.listdir(d) == ["f"]


def test_rule02_mapped_stores_over_a_written_header(d):
    """LMCache's pattern: header by write, reopen, ftruncate, mmap, close, store, munmap, rename."""
    tmp, path = os.path.join(d, "tmp"), os.path.join(d, "f")
    check_prog("mapstore", "-h", 4096, "-r", path, tmp, 500000, 3)
    assert get(path) == stored(3, 500000, header=4096)


def test_rule02_mapped_stores_are_found_by_the_next_lookup(d):
    """Without a rename: the first lookup after the writer's munmap and exit finds every store."""
    for i in range(10):
        path = os.path.join(d, f"f{i}")
        check_prog("mapstore", path, 100000, i)
        assert get(path) == stored(i, 100000)


def test_rule02_mapped_stores_of_a_process_that_just_exits(d):
    """A mapping that only the process's end removes: its stores are in the file."""
    path = os.path.join(d, "f")
    check_prog("mapstore", "-x", path, 300000, 9)
    wait_for(lambda: peek(path) == stored(9, 300000), 2, "the stores are published")


# ---- rename ----

def test_rule02_renamed_open_draft_leaves_the_older_object_until_close(d, client_a):
    """Renaming an open draft over a published name: the old object stays visible until the close."""
    tmp, path = os.path.join(d, "tmp"), os.path.join(d, "f")
    put(path, b"old")
    fd = client_a.os.open(tmp, CREATE, 0o644)
    client_a.os.write(fd, b"new ")
    client_a.os.rename(tmp, path)
    assert get(path) == b"old" and not exists(tmp)
    assert client_a.get(path) == b"new "
    client_a.os.write(fd, b"and more")
    assert get(path) == b"old"
    client_a.os.close(fd)
    assert get(path) == b"new and more"
    assert os.listdir(d) == ["f"]


def test_rule02_rename_of_a_closed_name_is_whole_at_once(d, client_a):
    """write, close, rename: the final name appears with all bytes, the temporary one is gone."""
    for i in range(100):
        tmp, path = os.path.join(d, "tmp"), os.path.join(d, f"f{i}")
        client_a.put(tmp, b"%d" % i * 1000)
        client_a.os.rename(tmp, path)
        assert get(path) == b"%d" % i * 1000
        assert not exists(tmp)


def test_rule02_rename_of_an_open_draft_between_directories(d, client_a):
    """An open draft moved to another directory publishes there."""
    os.mkdir(os.path.join(d, "to"))
    fd = client_a.os.open(os.path.join(d, "f"), CREATE, 0o644)
    client_a.os.write(fd, b"moved")
    client_a.os.rename(os.path.join(d, "f"), os.path.join(d, "to", "g"))
    client_a.os.close(fd)
    assert os.listdir(d) == ["to"]
    assert get(os.path.join(d, "to", "g")) == b"moved"


def test_rule02_draft_in_a_renamed_directory_publishes_there(d, client_a):
    """A directory renamed by another process while a file in it is being written: it publishes inside."""
    os.mkdir(os.path.join(d, "a"))
    fd = client_a.os.open(os.path.join(d, "a", "f"), CREATE, 0o644)
    client_a.os.write(fd, b"data")
    os.rename(os.path.join(d, "a"), os.path.join(d, "b"))
    client_a.os.close(fd)
    assert get(os.path.join(d, "b", "f")) == b"data"
    assert not exists(os.path.join(d, "a"))


def test_rule02_draft_of_a_removed_directory_does_not_come_back(d, client_a):
    """rmdir while somebody writes a file in the directory: either it refuses, or close tells; no ghost."""
    sub = os.path.join(d, "sub")
    os.mkdir(sub)
    fd = client_a.os.open(os.path.join(sub, "f"), CREATE, 0o644)
    client_a.os.write(fd, b"data")
    try:
        os.rmdir(sub)
        removed = True
    except OSError:
        removed = False
    if removed:
        with pytest.raises(OSError):
            client_a.os.close(fd)
        assert os.listdir(d) == []
    else:
        client_a.os.close(fd)
        assert get(os.path.join(sub, "f")) == b"data"


def test_rule02_unlink_by_another_process_then_close(d, client_a):
    """A name unlinked by another process while it is overwritten: close publishes the new version."""
    path = os.path.join(d, "f")
    put(path, b"old")
    fd = client_a.os.open(path, os.O_WRONLY | os.O_TRUNC)
    client_a.os.write(fd, b"new")
    os.unlink(path)
    assert not exists(path)
    client_a.os.close(fd)
    assert get(path) == b"new"
