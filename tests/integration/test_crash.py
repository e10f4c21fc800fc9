# SPDX-License-Identifier: Apache-2.0
"""The daemon is killed at random moments of a mixed load: nothing that was acknowledged is missing."""
import os
import signal
import time

import pytest

from harness import crash

pytestmark = pytest.mark.mooncake
EACH = 10
ROUNDS = crash.rounds(20)


def _mount(new_mount, writeback, n_disks, is_small):
    """DRAM too small for the files; with is_small the SSD as well."""
    m = new_mount(dram="32M", space_wait=2, writeback=writeback)
    disks = [os.path.join(m.base, f"disk{k}") for k in range(n_disks)]
    size = "32M" if is_small else "512M"
    m.options["ssd"] = ",ssd=".join(f"{disk}:{size}" for disk in disks)
    return m.start(), disks


def _empty(m, disks):
    """Removes everything; a clean stop then leaves nothing."""
    crash.remove_all(m)
    free = os.statvfs(m.path)
    assert free.f_bfree == free.f_blocks
    m.signal(signal.SIGTERM)
    m.wait_end()
    assert crash.frame_files(*disks) == []
    crash.fsck_after_stop(m.state)


@pytest.mark.limit(60 + 6 * EACH)
@pytest.mark.parametrize("seed, n_rounds", crash.series(ROUNDS, EACH))
def test_killed_under_load(new_mount, seed, n_rounds):
    """kill -9, again and again, under writers with and without fsync, keep, renames, killed writers and readers,
    with files moving between the tiers: after each start every file is the last one whose call returned, or one
    that was under way; none is torn; fsck finds leftovers alone; the accounts are those of what lies there. A
    third of the series run on tiers so small that names are evicted, and writeback=second evicts what was read
    less than twice: what class keep promises holds there too."""
    with crash.replayable("crash", seed, n_rounds) as chance:
        writeback = chance.choice(("evict", "evict", "second", "always"))
        is_small = seed % 3 == 0
        evicts = is_small or writeback == "second"
        m, disks = _mount(new_mount, writeback, 1 + seed % 2, is_small)
        load = crash.Load(m.base, m.path, evicts)
        for k in range(n_rounds):
            load.start(chance.randrange(1 << 32), 30)
            time.sleep(chance.choice((0.02, 0.1, 0.2, 0.4)) * (0.5 + chance.random()))
            m.kill9()
            print(f"round {k}:", load.finish().strip())
            m.umount_lazy()
            crash.fsck_after_crash(m.state)
            m.remount()
            print(f"round {k}:", load.check())
            crash.wait_for_accounts(m, disks)
        if not evicts:
            assert m.counter("evicted_names") == 0
        _empty(m, disks)
