# SPDX-License-Identifier: Apache-2.0
"""Rule 1: a create makes a private draft, which others do not see until it publishes."""
import os
import signal
import stat

import pytest

from harness.content import exists, get, pattern, put, wait_for

pytestmark = pytest.mark.mooncake

CREATE = os.O_RDWR | os.O_CREAT
HALF = pattern("half", 10000)  # a close publishes it even while a duplicate is open
REST = b"the rest"


@pytest.fixture
def draft(d, client_a):
    """(path, fd in client_a) of a new file that client_a has half written."""
    path = os.path.join(d, "f")
    fd = client_a.os.open(path, CREATE, 0o640)
    client_a.os.write(fd, HALF)
    return path, fd


# ---- invisible to others ----

def test_rule01_draft_is_absent_for_other_processes(draft):
    """stat, open, access and readdir of another process do not find a name before it is closed."""
    path, _ = draft
    with pytest.raises(FileNotFoundError):
        os.stat(path)
    with pytest.raises(FileNotFoundError):
        os.open(path, os.O_RDONLY)
    assert not os.access(path, os.F_OK)
    assert os.listdir(os.path.dirname(path)) == []


def test_rule01_others_cannot_unlink_or_rename_a_draft(draft):
    """unlink, rename and chmod by another process are ENOENT; the draft publishes all the same."""
    path, _ = draft
    for call in (lambda: os.unlink(path), lambda: os.rename(path, path + "2"),
                 lambda: os.chmod(path, 0o600)):
        with pytest.raises(FileNotFoundError):
            call()


def test_rule01_negative_lookup_is_not_remembered(d, client_a):
    """A process that just got ENOENT for a name finds it right after another one's close."""
    for i in range(50):
        path = os.path.join(d, f"n{i}")
        fd = client_a.os.open(path, CREATE, 0o644)
        client_a.os.write(fd, b"x")
        assert not exists(path)
        client_a.os.close(fd)
        assert exists(path)


def test_rule01_subprocess_does_not_find_an_unclosed_temporary_file(draft, client_a):
    """A subprocess of the writer that opens the name by path before close gets ENOENT (documented)."""
    path, _ = draft
    code = client_a.exec("""
import subprocess
result = subprocess.run(["cat", path], stderr=subprocess.DEVNULL).returncode
""", path=path)
    assert code == 1


def test_rule01_forked_child_shares_the_draft_by_descriptor(d, client_a):
    """A forked child reads and writes its parent's draft through the inherited descriptor."""
    path = os.path.join(d, "f")
    assert client_a.exec("""
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
os.write(fd, b"parent ")
pid = os.fork()
if pid == 0:
    ok = os.pread(fd, 100, 0) == b"parent "
    os.pwrite(fd, b"child", 7)
    os._exit(0 if ok else 1)
result = os.waitpid(pid, 0)[1], os.pread(fd, 100, 0)
os.close(fd)
""", path=path) == (0, b"parent child")
    assert get(path) == b"parent child"


# ---- visible to the creating process ----

def test_rule01_creator_stats_its_draft(draft, client_a):
    """stat by path shows the creator its draft as fstat does: inode, size, mode, type."""
    path, fd = draft
    by_path, by_fd = client_a.stat(path), client_a.fstat(fd)
    assert stat.S_ISREG(by_path.st_mode) and by_path.st_mode & 0o7777 == 0o640
    assert by_path.st_size == len(HALF) == by_fd.st_size
    assert by_path.st_ino == by_fd.st_ino
    client_a.os.write(fd, REST)
    assert client_a.stat(path).st_size == len(HALF + REST)


def test_rule01_creator_lists_its_draft(draft, client_a):
    """readdir shows a draft to its creator, once."""
    path, _ = draft
    assert client_a.os.listdir(os.path.dirname(path)) == ["f"]


def test_rule01_creator_reopens_its_draft(draft, client_a):
    """The creator opens its draft again by path and reads what it has written so far."""
    path, fd = draft
    again = client_a.os.open(path, os.O_RDONLY)
    assert client_a.os.pread(again, 20000, 0) == HALF
    client_a.os.write(fd, REST)
    assert client_a.os.pread(again, 20000, 0) == HALF + REST
    client_a.os.close(again)
    assert not exists(path)


def test_rule01_creator_renames_its_draft(draft, client_a):
    """The creator renames its open draft; the new name publishes at close, the old one never."""
    path, fd = draft
    client_a.os.rename(path, path + ".new")
    assert client_a.os.listdir(os.path.dirname(path)) == ["f.new"]
    assert os.listdir(os.path.dirname(path)) == []
    client_a.os.write(fd, REST)
    client_a.os.close(fd)
    assert os.listdir(os.path.dirname(path)) == ["f.new"]
    assert get(path + ".new") == HALF + REST


def test_rule01_creator_changes_mode_and_times_of_its_draft(draft, client_a):
    """chmod and utimens on a draft hold for the object that it becomes."""
    path, fd = draft
    client_a.os.chmod(path, 0o604)
    client_a.os.utime(path, (1000, 2000))
    client_a.os.close(fd)
    st = os.stat(path)
    assert st.st_mode & 0o7777 == 0o604
    assert st.st_mtime == 2000


def test_rule01_creator_unlinks_its_draft(draft, client_a):
    """The creator's unlink of its open draft: gone for it too, and close publishes nothing."""
    path, fd = draft
    client_a.os.unlink(path)
    assert client_a.os.listdir(os.path.dirname(path)) == []
    client_a.os.write(fd, REST)
    assert client_a.os.pread(fd, 20000, 0) == HALF + REST
    client_a.os.close(fd)
    assert not exists(path)


def test_rule01_other_threads_of_the_creator_see_the_draft(draft, client_a):
    """The rule is about the thread group: another thread stats, lists, reads and closes the draft."""
    path, fd = draft
    assert client_a.exec("""
seen = []
def look():
    seen.append(os.stat(path).st_size)
    seen.append(os.listdir(os.path.dirname(path)))
    with open(path, "rb") as f:
        seen.append(f.read())
    os.close(fd)
t = threading.Thread(target=look)
t.start()
t.join()
result = seen
""", path=path, fd=fd) == [len(HALF), ["f"], HALF]
    assert get(path) == HALF


# ---- several drafts of one name ----

def test_rule01_two_writers_of_a_name_hold_two_drafts(d, client_a, client_b):
    """Two processes write one name at once: each sees its own bytes, the last close wins whole."""
    path = os.path.join(d, "tmp")
    a, b = pattern(1, 70000), pattern(2, 30000)
    fa = client_a.os.open(path, CREATE | os.O_TRUNC, 0o644)
    fb = client_b.os.open(path, CREATE | os.O_TRUNC, 0o644)
    client_a.os.write(fa, a[:50000])
    client_b.os.write(fb, b[:10000])
    assert client_a.stat(path).st_size == 50000
    assert client_b.stat(path).st_size == 10000
    client_a.os.write(fa, a[50000:])
    client_b.os.write(fb, b[10000:])
    client_a.os.close(fa)
    assert get(path) == a
    client_b.os.close(fb)
    assert get(path) == b


def test_rule01_a_draft_of_a_published_name_hides_it_only_from_its_writer(d, client_a, client_b):
    """While one process overwrites a name, it sees the draft, all others the published object, in turns."""
    path = os.path.join(d, "f")
    put(path, b"0123456789")
    fd = client_a.os.open(path, os.O_WRONLY | os.O_TRUNC)
    for n in range(1, 20):
        client_a.os.write(fd, b"x")
        assert client_a.stat(path).st_size == n
        assert client_b.stat(path).st_size == 10
        assert client_b.get(path) == b"0123456789"
    client_a.os.close(fd)
    assert client_a.stat(path).st_size == client_b.stat(path).st_size == 19


# ---- O_EXCL ----

def test_rule01_excl_conflicts_with_an_excl_draft(d, client_a, client_b):
    """O_EXCL is EEXIST while another process holds an O_EXCL draft of the name, and after it published."""
    path = os.path.join(d, "lock")
    fd = client_a.os.open(path, CREATE | os.O_EXCL, 0o644)
    with pytest.raises(FileExistsError):
        client_b.os.open(path, CREATE | os.O_EXCL, 0o644)
    client_a.os.close(fd)
    with pytest.raises(FileExistsError):
        client_b.os.open(path, CREATE | os.O_EXCL, 0o644)
    client_a.os.unlink(path)
    client_b.os.close(client_b.os.open(path, CREATE | os.O_EXCL, 0o644))


def test_rule01_excl_conflicts_within_the_process(d, client_a):
    """O_EXCL by the creator itself is EEXIST, for it sees its draft."""
    path = os.path.join(d, "lock")
    client_a.os.open(path, CREATE | os.O_EXCL, 0o644)
    with pytest.raises(FileExistsError):
        client_a.os.open(path, CREATE | os.O_EXCL, 0o644)


def test_rule01_excl_name_is_free_when_its_holder_unlinks_it(d, client_a, client_b):
    """A lock file that is unlinked before it is closed can be taken by another process at once."""
    path = os.path.join(d, "lock")
    fd = client_a.os.open(path, CREATE | os.O_EXCL, 0o644)
    client_a.os.unlink(path)
    fb = client_b.os.open(path, CREATE | os.O_EXCL, 0o644)
    client_a.os.close(fd)
    client_b.os.write(fb, b"b")
    client_b.os.close(fb)
    assert get(path) == b"b"


def test_rule01_excl_name_is_free_when_its_holder_is_killed(d, client_a, client_b):
    """A lock file of a killed process can be taken by another process at once."""
    path = os.path.join(d, "lock")
    fd = client_a.os.open(path, CREATE | os.O_EXCL, 0o644)
    client_a.os.write(fd, b"pid")
    client_a.kill(signal.SIGKILL)
    client_b.os.open(path, CREATE | os.O_EXCL, 0o644)


def test_rule01_excl_does_not_conflict_with_a_plain_draft(draft, client_b):
    """O_EXCL succeeds while another process holds a draft made without O_EXCL: the name is not there."""
    path, _ = draft
    client_b.os.open(path, CREATE | os.O_EXCL, 0o644)


# ---- identity ----

def test_rule01_inode_number_survives_publishing(draft, client_a):
    """st_ino of the published object is the draft's, by stat and by readdir."""
    path, fd = draft
    ino = client_a.fstat(fd).st_ino
    client_a.os.close(fd)
    assert os.stat(path).st_ino == ino
    with os.scandir(os.path.dirname(path)) as entries:
        assert [e.inode() for e in entries] == [ino]


def test_rule01_fstat_matches_stat_while_the_draft_stays_open(draft, client_a):
    """A published draft that its writer still holds open: the name resolves to the draft for it."""
    path, fd = draft
    dup = client_a.os.dup(fd)
    client_a.os.close(dup)
    assert get(path) == HALF
    client_a.os.write(fd, REST)
    for look in (client_a.stat(path), client_a.fstat(fd)):
        assert look.st_size == len(HALF + REST)
    assert client_a.stat(path).st_ino == client_a.fstat(fd).st_ino == os.stat(path).st_ino
    assert client_a.get(path) == HALF + REST
    assert get(path) == HALF
    client_a.os.close(fd)
    assert get(path) == HALF + REST


def test_rule01_writer_maps_its_draft_while_others_read_the_object(draft, client_a):
    """A mapping of the draft and passthrough reads of the published object go on side by side."""
    path, fd = draft
    client_a.os.close(client_a.os.dup(fd))
    reader = os.open(path, os.O_RDONLY)
    client_a.exec("m = mmap.mmap(fd, 5); m[:] = b'HALF!'; m.flush()", fd=fd)
    assert os.pread(reader, 20000, 0) == HALF
    assert get(path) == HALF
    client_a.exec("m.close(); os.close(fd)", fd=fd)
    assert get(path) == b"HALF!" + HALF[5:]
    assert os.pread(reader, 20000, 0) == HALF
    os.close(reader)


def test_rule01_drafts_are_counted(fs, d, client_a):
    """status.json tells how many drafts are open, and none is left after the writer's close."""
    before = fs.status()["drafts"]["open"]
    fds = [client_a.os.open(os.path.join(d, f"f{i}"), CREATE, 0o644) for i in range(5)]
    assert fs.status()["drafts"]["open"] == before + 5
    for fd in fds:
        client_a.os.close(fd)
    wait_for(lambda: fs.status()["drafts"]["open"] == before, 2, "drafts are closed")


# ---- flock, which rule 1 keys by directory and name ----

def test_rule01_flock_holds_between_two_drafts_of_a_name(d, client_a, client_b):
    """Two processes that create one lock file lock each other out, though they hold two drafts."""
    path = os.path.join(d, "x.lock")
    fa = client_a.os.open(path, CREATE, 0o644)
    client_a.exec("fcntl.flock(fd, fcntl.LOCK_EX)", fd=fa)
    fb = client_b.os.open(path, CREATE, 0o644)
    with pytest.raises(BlockingIOError):
        client_b.exec("fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)", fd=fb)
    client_a.exec("fcntl.flock(fd, fcntl.LOCK_UN)")
    client_b.exec("fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)", fd=fb)


def test_rule01_flock_survives_a_new_version(d, client_a, client_b):
    """A lock on a name holds when the file is replaced under it: it belongs to directory and name."""
    path = os.path.join(d, "x.lock")
    put(path, b"1")
    fa = client_a.os.open(path, os.O_RDONLY)
    client_a.exec("fcntl.flock(fd, fcntl.LOCK_EX)", fd=fa)
    put(path, b"2")
    fb = client_b.os.open(path, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        client_b.exec("fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)", fd=fb)


def test_rule01_flock_of_equal_names_in_two_directories_is_apart(d, client_a, client_b):
    """Locks of one name in two directories have nothing to do with each other."""
    for sub in ("1", "2"):
        os.mkdir(os.path.join(d, sub))
        put(os.path.join(d, sub, "x.lock"), b"")
    for client, sub in ((client_a, "1"), (client_b, "2")):
        fd = client.os.open(os.path.join(d, sub, "x.lock"), os.O_RDWR)
        client.exec("fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)", fd=fd)


def test_rule01_python_tempfile_is_private_until_closed(d, client_a):
    """tempfile.NamedTemporaryFile: absent for others while open, gone after the context."""
    name = client_a.exec("""
import tempfile
t = tempfile.NamedTemporaryFile(dir=d)
t.write(b"secret")
t.flush()
result = t.name
""", d=d)
    assert not exists(name)
    client_a.exec("t.close()")
    assert os.listdir(d) == []
