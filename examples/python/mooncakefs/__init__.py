# SPDX-License-Identifier: Apache-2.0
"""Batches of objects in one system call on a mooncakefs mount.

    import mooncakefs

    with mooncakefs.Session("/mnt/mooncake") as session:
        buffer = session.buffer(256 << 20)          # shared with the daemon
        prefix = session.directory("kv/llama")
        ready = prefix.lookup(names).ready          # longest prefix that is there
        batch = session.batch("read")
        for i, name in enumerate(names[:ready]):
            batch.add(prefix, name, buffer[i * SIZE:(i + 1) * SIZE])
        batch.run().check()                         # one ioctl
        array = buffer[0:ready * SIZE].numpy("float16", (ready, -1))   # no copy

Pure Python: fcntl.ioctl, mmap and struct over the ABI of include/mooncakefs.h. Sizes and offsets are
bytes, times are seconds. What fails raises OSError with its errno; DaemonGone when the daemon of the
mount was stopped or restarted (Session.reconnect).
"""
from .abi import DaemonGone
from .batch import Batch, Outcome, Ticket
from .directory import Directory, map_object
from .lookup import Hashes, Lookup, State
from .memory import Buffer, Region
from .session import Session

__all__ = ["Batch", "Buffer", "DaemonGone", "Directory", "Hashes", "Lookup", "Outcome", "Region",
           "Session", "State", "Ticket", "map_object"]
__version__ = "0.1.0"
