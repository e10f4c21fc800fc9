# SPDX-License-Identifier: Apache-2.0
"""The ABI of include/mooncakefs.h: layouts, numbers, and the one place that calls ioctl."""
import errno
import fcntl
import struct

VERSION = 1

LOOKUP, READ, WRITE, PREFETCH = 1, 2, 3, 4
ASYNC, GROUP = 1, 2
TEXT, BINARY = 0, 1

TIERS = ("none", "dram", "ssd", "remote")
MISS, READY, IN_FLIGHT, REMOTE = 0, 1, 2, 3

HANDLE = struct.Struct("<QQII")
HELLO = struct.Struct("<IIIIIIQQ24x")
REGISTER = struct.Struct("<QQQII96x")
UNREGISTER = struct.Struct("<II")
#                       op flags buffer n_items | items deadline user_data | directory names
#                       names_bytes kind bytes | suffix suffix_bytes | n_ok ready_prefix ticket
SUBMIT = struct.Struct("<IIIIQQQQQIHHQI4x16xIIQ")
STATE = struct.Struct("<BBHIQ")
#                     object name name_bytes kind mode | file_offset base stride | buffer
#                     segment_bytes segment_count reserved | status tier bytes size version
ITEM = struct.Struct("<QQHHIQQQIIIIiB3xQQQ")
ITEM_OUTCOME = struct.Struct("<64xiB3xQQQ")
COMPLETION = struct.Struct("<QQiIII")
CANCEL = struct.Struct("<Q")

SUFFIX_MAX = 64
NAME_MAX = 255
HASH_MAX = 64

assert (HANDLE.size, HELLO.size, REGISTER.size, SUBMIT.size) == (24, 64, 128, 112)
assert (STATE.size, ITEM.size, ITEM_OUTCOME.size, COMPLETION.size) == (16, 96, 96, 32)

_WRITE, _READ = 1, 2


def _ioc(direction, number, size):
    return direction << 30 | size << 16 | 0xc4 << 8 | number


IOC_HANDLE = _ioc(_READ, 1, HANDLE.size)
IOC_HELLO = _ioc(_READ | _WRITE, 2, HELLO.size)
IOC_REGISTER = _ioc(_READ | _WRITE, 3, REGISTER.size)
IOC_UNREGISTER = _ioc(_WRITE, 4, UNREGISTER.size)
IOC_SUBMIT = _ioc(_READ | _WRITE, 5, SUBMIT.size)
IOC_CANCEL = _ioc(_WRITE, 6, CANCEL.size)

GONE = (errno.ENOTCONN, errno.ECONNABORTED)


class DaemonGone(ConnectionError):
    """The daemon of the mount was stopped or restarted: what belonged to its sessions is void.

    Session.reconnect opens the session anew. errno is ENOTCONN.
    """


def translate(error):
    """The exception to raise for an OSError of a call on the mount."""
    if error.errno in GONE and not isinstance(error, DaemonGone):
        return DaemonGone(errno.ENOTCONN, "the daemon of the mount is gone", error.filename)
    return error


def ioctl(fd, request, argument):
    """ioctl(2) with a struct in a bytearray, which is changed in place. The GIL is free meanwhile."""
    try:
        fcntl.ioctl(fd, request, argument, True)
    except OSError as e:
        raise translate(e) from None


def handle_of(fd):
    """(handle, size in bytes) of an open file, directory or buffer of a mount."""
    answer = bytearray(HANDLE.size)
    ioctl(fd, IOC_HANDLE, answer)
    return HANDLE.unpack(answer)[:2]
