# SPDX-License-Identifier: Apache-2.0
"""What tests of clusters with faults share: reads whose outcome and duration are told and bounded.

The bounds are generous: a deadline (2 s per 64 MiB), a lease (5 s), and the machine's mood. What they rule out is a
hang.
"""
import errno

from . import env
from .content import exists, get, peek, put
from .cluster import seconds_until, timed

NEXT_HOLDER, NO_HOLDER, BACK = 6, 12, 15
GONE = (errno.ENOENT, errno.EIO, errno.ESTALE)


def spread_to(cluster, name, data, *nodes):
    """Writes name on the first of these nodes and has the others read it; all see it."""
    put(nodes[0].at(name), data)
    for n in cluster:
        seconds_until(lambda n=n: exists(n.at(name)), 5, f"{name} on {n.name}")
    for n in nodes[1:]:
        assert get(n.at(name)) == data


def read_right(what, node, name, data, seconds):
    """The first read gives the right bytes, within so many seconds. Prints how long it took."""
    took, got = timed(get, node.at(name))
    print(f"{what}: {took * 1000:.1f} ms")
    assert got == data, got if isinstance(got, OSError) else "wrong bytes"
    assert took < env.scaled(seconds)


def read_fails(what, node, name, seconds):
    """The first read fails cleanly within so many seconds. Prints how long it took."""
    took, got = timed(get, node.at(name))
    print(f"{what}: {took * 1000:.1f} ms, {got if isinstance(got, OSError) else 'bytes'}")
    assert isinstance(got, OSError) and got.errno in GONE
    assert took < env.scaled(seconds)


def until_right(what, node, name, data, seconds=BACK):
    """Reads until the bytes are right; meanwhile a read may fail, but never give others."""
    def is_right():
        try:
            got = peek(node.at(name))
        except OSError as e:
            assert e.errno in GONE, e
            return False
        assert got in (None, data), "wrong bytes"
        return got is not None

    print(f"{what}: right after {seconds_until(is_right, seconds, what) * 1000:.1f} ms")
