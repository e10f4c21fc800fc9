# SPDX-License-Identifier: Apache-2.0
"""The power fails at random moments of a mixed load: what was synced is there, the rest is whole or absent.

State directory and SSD are on disks with a volatile cache. At a moment under load all disks are copied as
a power failure would leave them: what was flushed, and any part of what was not. A new daemon, with an
empty DRAM, starts on the copies and is compared with the ledger of what was promised before that moment.
"""
import os
import signal
import time

import pytest

from harness import crash
from harness.content import peek, put, write_all
from harness.faultdisk import FaultDisks, sync

pytestmark = [pytest.mark.mooncake, pytest.mark.one_mode]
EACH = 7
ROUNDS = crash.rounds(14)
# What a start or the first read finds and clears: copies whose bytes never reached the medium.
UNSYNCED = {"names_without_bytes", "wrong_frame_sizes", "missing_frames"}


def _set_folders(m, state, ssd):
    m.state = m.options["state"] = state
    m.options["ssd"] = f"{ssd}:100M"


def _check_survivors(m, load, folders, ledger, before):
    """A daemon on what is left: returns what was found there."""
    ssd = os.path.join(folders[-1], "ssd")
    _set_folders(m, os.path.join(folders[0], "state"), ssd)
    m.expect_errors("frame|lost")
    serious = crash.fsck(m.state, "--ssd", ssd)[1]
    assert set(serious) <= UNSYNCED, serious
    m.start()
    found = load.check_power(m.path, ledger, before)
    n_torn = m.said.count("the end of its log is damaged and left out")
    assert m.counter("catalog_errors") <= n_torn, m.log_tail()
    crash.wait_for_accounts(m, [ssd])
    m.signal(signal.SIGTERM)
    m.wait_end()
    serious = crash.fsck(m.state, "--data", "--ssd", ssd)[1]
    assert not serious, f"fsck after the stop: {serious}"
    return found


def _recover(new_mount, *args):
    m = new_mount(dram="32M")
    try:
        found = _check_survivors(m, *args)
    finally:
        problems = crash.end(m)
    assert not problems, problems
    return found


def _one_failure(new_mount, load, disks, chance, k):
    time.sleep(chance.choice((0.05, 0.2, 0.6)) * (0.5 + chance.random()))
    if chance.random() < 0.5:
        sync(chance.choice(disks.paths))  # one disk may be ahead of the other
        time.sleep(chance.choice((0, 0.02)))
    before = load.copy_ledger("before")
    keep = chance.choice(("none", "all", "prefix", "some", "some"))
    cut = disks.cut(keep, chance.randrange(1 << 32))
    load.pause()
    ledger = load.copy_ledger("after")
    with disks.survivors(cut) as folders:
        print(f"round {k}, {keep}:", _recover(new_mount, load, folders, ledger, before))
    load.go_on()


@pytest.mark.limit(60 + 8 * EACH)
@pytest.mark.parametrize("seed, n_rounds", crash.series(ROUNDS, EACH))
def test_power_fails_under_load(new_mount, seed, n_rounds):
    """What was fsynced, of class keep and closed, or renamed after fsync is there bit for bit; a replaced version
    does not come back once its successor was synced; a rename leaves its file under one of the two names; frames
    whose bytes did not reach the medium are misses. A single disk or two; caches lost, kept or torn."""
    with crash.replayable("power", seed, n_rounds) as chance, FaultDisks(1 + seed % 2, 192) as disks:
        m = new_mount(dram="32M", writeback=chance.choice(("evict", "always")))
        _set_folders(m, os.path.join(disks.paths[0], "state"), os.path.join(disks.paths[-1], "ssd"))
        load = crash.Load(m.base, m.start().path)
        try:
            load.start(chance.randrange(1 << 32), 600)
            for k in range(n_rounds):
                _one_failure(new_mount, load, disks, chance, k)
            assert m.counter("evicted_names") == 0
        finally:
            load.kill()
            problems = crash.end(m)
        assert not problems, problems


# ---- one by one ----

def _put_synced(path, data):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    write_all(fd, data)
    os.fsync(fd)
    os.close(fd)


@pytest.mark.limit(90)
@pytest.mark.parametrize("folder, save", [("c", _put_synced), ("weights", put)], ids=("fsync", "keep"))
def test_a_durable_file_replaced_by_rename_is_never_missing(new_mount, folder, save):
    """A durable file renamed over another, no fsync of the directory, and the power fails when the SSD has
    forgotten the old frame: the name shows one of the two."""
    with FaultDisks(2, 96) as disks:
        m = new_mount(dram="32M")
        _set_folders(m, os.path.join(disks.paths[0], "state"), os.path.join(disks.paths[1], "ssd"))
        try:
            path = os.path.join(m.start().path, folder, "f")
            os.mkdir(os.path.dirname(path))
            save(path, b"old" * 1000)
            save(path + ".tmp", b"new" * 2000)
            os.rename(path + ".tmp", path)
            time.sleep(2.5)  # a replaced version can be opened for 2 s
            sync(disks.paths[1])
            cut = disks.cut("none", 0)
        finally:
            crash.end(m)
        with disks.survivors(cut) as folders:
            m = new_mount(dram="32M")
            _set_folders(m, os.path.join(folders[0], "state"), os.path.join(folders[1], "ssd"))
            try:
                found = peek(os.path.join(m.start().path, folder, "f"))
            finally:
                crash.end(m)
    assert found in (b"old" * 1000, b"new" * 2000)
