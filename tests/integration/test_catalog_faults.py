# SPDX-License-Identifier: Apache-2.0
"""Damage to the catalog's files behind the daemon's back.

Each is a miss and a counter, or a refusal at start that names the file and the repair; never wrong bytes.
After the repair everything is there that some file still had.
"""
import fcntl
import glob
import json
import os

import pytest

from harness.content import flip, n_intact, pattern, peek, put
from harness.ctl import ctl

pytestmark = [pytest.mark.mooncake, pytest.mark.one_mode]

N_CACHE, N_KEEP = 300, 40


# ---- helpers ----

def fill(m):
    """Files of class cache, and of class keep, which are on the ssd as well. Returns path -> bytes."""
    kept = os.path.join(m.path, "weights")
    os.mkdir(kept)
    files = {os.path.join(m.path, f"f{i}"): pattern(i, 500 + i) for i in range(N_CACHE)}
    files.update({os.path.join(kept, f"w{i}"): pattern(-i - 1, 9000 + i) for i in range(N_KEEP)})
    for path, data in files.items():
        put(path, data)
    return files


def catalog_files(m, part):
    found = sorted(p for p in glob.glob(m.state + "/catalog/*") if part in os.path.basename(p))
    assert found, f"no {part} in {os.listdir(m.state + '/catalog')}"
    return found


def tables(m, family):
    """The table files of one of the catalog's families, which each file's properties name."""
    found = []
    for path in catalog_files(m, ".sst"):
        with open(path, "rb") as f:
            tail = f.read()[-4096:]
        if family.encode() in tail and os.path.getsize(path) > 8192:
            found.append(path)
    assert found, f"no table file of {family}"
    return found


def refused(m, *words):
    """The daemon does not start, and its words are in what it says, with the way out."""
    m.expect_errors(r"catalog|cannot start")
    code, said = m.refuse()
    assert code == 1, said
    for word in (*words, f"mooncakectl fsck --repair {m.state}"):
        assert word in said, f"{word!r} is not in: {said}"


def repaired(m):
    """fsck finds it, repairs it, and finds nothing any more."""
    assert ctl("fsck", m.state).returncode == 1
    done = ctl("fsck", "--repair", m.state)
    assert done.returncode == 0, done.stdout + done.stderr
    after = ctl("fsck", "--data", m.state)
    assert after.returncode == 0, after.stdout + after.stderr


# ---- files that are missing or rubbish ----

@pytest.mark.parametrize("part", ["MANIFEST-", "CURRENT"])
@pytest.mark.parametrize("how", ["missing", "rubbish"])
def test_what_holds_the_database_together(mount, part, how):
    """MANIFEST or CURRENT is missing or rubbish: a refusal; after the repair every file is there."""
    files = fill(mount)
    mount.terminate()
    path = catalog_files(mount, part)[-1]
    if how == "missing":
        os.unlink(path)
    else:
        with open(path, "wb") as f:
            f.write(b"this is not what was here\n")
    refused(mount, part.rstrip("-"))
    repaired(mount)
    mount.start()
    assert n_intact(files) == len(files)


@pytest.mark.parametrize("part", ["MANIFEST-", "CURRENT"])
def test_it_is_missing_after_a_crash(mount, part):
    """The same when the names are in the log alone."""
    files = fill(mount)
    mount.kill9()
    mount.umount_lazy()
    os.unlink(catalog_files(mount, part)[-1])
    refused(mount, part.rstrip("-"))
    repaired(mount)
    mount.start()
    assert n_intact(files) == len(files)


@pytest.mark.parametrize("family", ["names", "objects"])
def test_a_table_file_is_missing(mount, family):
    """A refusal that names the file; after the repair what is shown is right, and the rest is gone."""
    files = fill(mount)
    mount.terminate()
    path = tables(mount, family)[0]
    os.unlink(path)
    refused(mount, os.path.basename(path))
    repaired(mount)
    mount.start()
    n_intact(files)
    put(os.path.join(mount.path, "new"), b"takes new files")


def test_bytes_without_a_name_are_found_again(mount):
    """The names are lost with their table file, the objects are not: they are in lost+found, whole."""
    files = fill(mount)
    mount.terminate()
    os.unlink(tables(mount, "names")[0])
    mount.expect_errors("catalog")
    done = json.loads(ctl("fsck", "--repair", "--json", mount.state).stdout)
    assert done["clean"] and done["copy"]
    mount.start()
    found = os.path.join(mount.path, "lost+found")
    contents = {peek(os.path.join(found, n)) for n in os.listdir(found)}
    assert contents == set(files.values())


# ---- single bytes ----

def test_a_damaged_block_of_objects(mount):
    """A start that cannot read every object refuses, with the file's name."""
    files = fill(mount)
    mount.terminate()
    path = tables(mount, "objects")[0]
    flip(path, os.path.getsize(path) // 3)
    refused(mount, os.path.basename(path))
    repaired(mount)
    mount.start()
    n_intact(files)


def test_a_damaged_block_of_names(mount):
    """Some names are misses, counted; others are served; a miss may be written anew."""
    files = fill(mount)
    mount.terminate()
    path = tables(mount, "names")[0]
    flip(path, os.path.getsize(path) // 3)
    mount.expect_errors("catalog")
    mount.start()
    n = n_intact(files)
    assert 0 < n < len(files)
    assert mount.counter("catalog_errors") > 0
    for path in files:
        if os.path.dirname(path) == mount.path and peek(path) is None:
            put(path, b"written anew")
            assert peek(path) == b"written anew"
            break


# ---- the log ----

def crashed(m):
    files = fill(m)
    m.kill9()
    m.umount_lazy()
    return files, max(catalog_files(m, ".log"), key=os.path.getsize)


def log_end(path):
    """Behind the last byte that is not zero: the file may be preallocated."""
    with open(path, "rb") as f:
        return len(f.read().rstrip(b"\0"))


@pytest.mark.parametrize("how", ["cut", "flip", "rubbish behind"])
def test_the_tail_of_the_log_is_torn(mount, how):
    """The start tells of it and leaves out what is behind; every other name is there, whole."""
    files, path = crashed(mount)
    end = log_end(path)
    if how == "cut":
        os.truncate(path, end - 20)
    elif how == "flip":
        flip(path, end - 20)
    else:
        with open(path, "r+b") as f:
            f.seek(end)
            f.write(os.urandom(200))
    mount.start()
    n = n_intact(files)
    assert n >= len(files) - 2
    if how != "rubbish behind":
        assert n < len(files)


def test_the_middle_of_the_log_is_damaged(mount):
    """What was written before the damage is there, what came after is a miss; it is said and counted."""
    files, path = crashed(mount)
    flip(path, log_end(path) // 2)
    mount.start()
    assert 0 < n_intact(files) < len(files)
    assert "the end of its log is damaged" in mount.said
    assert mount.counter("catalog_errors") > 0


# ---- others ----

def test_the_lock_of_the_database_is_held(mount):
    """Another process has the catalog: a refusal that says so, and nothing is harmed."""
    files = fill(mount)
    mount.terminate()
    with open(mount.state + "/catalog/LOCK", "r+b") as f:
        fcntl.lockf(f, fcntl.LOCK_EX)
        mount.expect_errors(r"catalog|cannot start")
        code, said = mount.refuse()
        assert code == 1 and "LOCK" in said and "open in another process" in said, said
        assert ctl("fsck", "--repair", mount.state).returncode == 1
    mount.start()
    assert n_intact(files) == len(files)
