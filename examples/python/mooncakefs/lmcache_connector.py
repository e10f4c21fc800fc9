# SPDX-License-Identifier: Apache-2.0
"""LMCache remote connector: chunks are objects of a mooncakefs mount, a batch per call.

    # LMCache configuration
    remote_url: "mooncakefs:///mnt/mooncake/kv/lmcache"
    remote_storage_plugins: ["mooncakefs"]
    extra_config:
      remote_storage_plugin.mooncakefs.module_path: mooncakefs.lmcache_connector
      remote_storage_plugin.mooncakefs.class_name: MooncakeFSConnectorAdapter

Follows RemoteConnector of LMCache v1 as of late 2025 (lmcache/v1/storage_backend/connector/
base_connector.py: exists, exists_sync, get, put, list, close, remove_sync and the batched_ forms; adapters
of connector/__init__.py). An older release that loads connectors by `external://` gives the same
constructor what it needs when $MOONCAKE_LMCACHE_DIR names the directory.

A chunk is one file, `<key>.data`: a header that tells shape, element type and memory format, then the
bytes. It is published whole. A daemon that is away costs hits, nothing else.
"""
import asyncio
import logging
import os
import struct
from urllib.parse import urlparse

from .abi import READY, DaemonGone
from .session import Session

try:
    from lmcache.v1.storage_backend.connector import ConnectorAdapter
    from lmcache.v1.storage_backend.connector.base_connector import RemoteConnector
except ImportError:  # tried out without LMCache
    class RemoteConnector:
        """Stands for LMCache's base class."""

    class ConnectorAdapter:
        """The same."""

        def __init__(self, schema=""):
            self.schema = schema

        def can_parse(self, url):
            return self.schema != "" and url.startswith(self.schema)

logger = logging.getLogger(__name__)

SCHEMA = "mooncakefs://"
_SUFFIX = ".data"
_MAGIC = b"MCFSLMC1"
_MAX_DIMENSIONS = 8
# magic, bytes of the chunk, memory format, number of dimensions, dimensions, element type
_HEADER = struct.Struct(f"<8sQiI{_MAX_DIMENSIONS}q24s")


def _pack_header(memory_obj, length):
    shape = tuple(memory_obj.get_shape())
    form = memory_obj.get_memory_format()
    padded = shape + (0,) * (_MAX_DIMENSIONS - len(shape))
    dtype = str(memory_obj.get_dtype()).replace("torch.", "").encode()
    return _HEADER.pack(_MAGIC, length, int(getattr(form, "value", form)), len(shape), *padded, dtype)


def _unpack_header(packed):
    """(bytes, shape, element type, memory format) or ValueError."""
    magic, length, form, n, *dimensions, dtype = _HEADER.unpack_from(packed)
    if magic != _MAGIC or n > _MAX_DIMENSIONS:
        raise ValueError("not a chunk of this connector")
    return length, tuple(dimensions[:n]), dtype.rstrip(b"\0").decode(), form


def _torch_types(shape, dtype, form):
    """As LMCache has them; as they are where it is not installed."""
    try:
        import torch
        shape, dtype = torch.Size(shape), getattr(torch, dtype)
    except ImportError:
        pass
    try:
        from lmcache.v1.memory_management import MemoryFormat
        form = MemoryFormat(form)
    except ImportError:
        pass
    return shape, dtype, form


def _view(memory_obj):
    return memoryview(memory_obj.byte_array).cast("B")


class MooncakeFSConnector(RemoteConnector):
    """The connector; coroutines run in `loop`, the _sync methods in any thread.

    loop                asyncio event loop of LMCache
    local_cpu_backend   allocates MemoryObjs: allocate(shape, dtype, fmt) -> MemoryObj or None
    path                directory below a mooncakefs mount; made if it is not there
    """

    def __init__(self, loop, local_cpu_backend, config=None, path=None):
        path = path or os.environ.get("MOONCAKE_LMCACHE_DIR") or "/mnt/mooncake/kv/lmcache"
        self.loop, self.local_cpu_backend = loop, local_cpu_backend
        os.makedirs(path, exist_ok=True)
        self._session = Session(_mount_of(path))
        self._directory = self._session.directory(os.path.abspath(path))
        self._directory.lookup(["now"])  # what does not work fails here

    # ---- what is there ----

    async def exists(self, key):
        return await self.batched_async_contains("", [key]) == 1

    def exists_sync(self, key):
        return self.batched_contains([key])[0]

    def support_batched_contains(self):
        return True

    def batched_contains(self, keys, stop_after_first_not_exits=True):
        """A bool for each key; with stop_after_first_not_exits False from the first gap on."""
        try:
            found = self._directory.lookup(self._names(keys))
        except OSError as e:
            self._away(e)
            return [False] * len(keys)
        if stop_after_first_not_exits:
            return [i < found.ready for i in range(len(keys))]
        return [kind == READY for kind in found.kinds()]

    def support_batched_async_contains(self):
        return True

    async def batched_async_contains(self, lookup_id, keys, pin=False):
        """How many keys from the first are there without a gap."""
        found = await self._lookup(keys)
        return found.ready if found else 0

    async def list(self):
        """All keys, as strings."""
        names = await asyncio.get_running_loop().run_in_executor(None, os.listdir, self._directory.path)
        return [n[:-len(_SUFFIX)] for n in names if n.endswith(_SUFFIX)]

    # ---- reading ----

    async def get(self, key):
        """The MemoryObj of the key, or None."""
        return (await self.batched_get([key]))[0]

    def support_batched_get(self):
        return True

    async def batched_get(self, keys):
        """The MemoryObj of each key or None, read with one call."""
        out = [None] * len(keys)
        found = await self._lookup(keys)
        there = [i for i in range(len(keys)) if found and found[i].kind == READY and
                 found[i].size >= _HEADER.size]
        if not there:
            return out
        batch = self._session.batch("read")
        try:
            regions = [batch.scratch(found[i].size) for i in there]
            for i, region in zip(there, regions):
                batch.add(self._directory, self._name(keys[i]), region)
            for i, region, item in zip(there, regions, await batch.run_async()):
                if not item.status and item.bytes == region.size:
                    out[i] = self._memory_obj(region, keys[i])
        except OSError as e:
            self._away(e)
        finally:
            self._free(batch)
        return out

    def support_batched_get_non_blocking(self):
        return True

    async def batched_get_non_blocking(self, lookup_id, keys):
        """The MemoryObjs of the keys that are there."""
        return [m for m in await self.batched_get(keys) if m is not None]

    def _memory_obj(self, region, key):
        try:
            length, shape, dtype, form = _unpack_header(region.memory)
        except (ValueError, struct.error) as e:
            logger.error("mooncakefs: %s: %s", self._name(key), str(e))
            return None
        data = region.memory[_HEADER.size:]
        if len(data) != length:
            logger.error("mooncakefs: %s: %d bytes, expected %d", self._name(key), len(data), length)
            return None
        memory_obj = self.local_cpu_backend.allocate(*_torch_types(shape, dtype, form))
        if memory_obj is not None:
            _view(memory_obj)[:length] = data
        return memory_obj

    # ---- writing ----

    async def put(self, key, memory_obj):
        """Stores it; OSError when that failed."""
        await self.batched_put([key], [memory_obj])

    def support_batched_put(self):
        return True

    async def batched_put(self, keys, memory_objs):
        """Stores all with one call; OSError of the first that failed."""
        batch = self._session.batch("write")
        try:
            for key, memory_obj in zip(keys, memory_objs):
                view = _view(memory_obj)
                region = batch.scratch(_HEADER.size + len(view))
                region.memory[:_HEADER.size] = _pack_header(memory_obj, len(view))
                region.memory[_HEADER.size:] = view
                batch.add(self._directory, self._name(key), region)
            (await batch.run_async()).check()
        except DaemonGone as e:
            self._away(e)
            raise
        finally:
            self._free(batch)

    def remove_sync(self, key):
        try:
            os.unlink(os.path.join(self._directory.path, self._name(key)))
            return True
        except OSError as e:
            logger.error("mooncakefs: %s: cannot remove it: %s", self._name(key), e)
            return False

    # ---- life ----

    def support_ping(self):
        return True

    async def ping(self):
        """0: the daemon answers; else an errno."""
        try:
            await self._directory.lookup_async(["ping"])
            return 0
        except OSError as e:
            self._away(e)
            return e.errno

    async def close(self):
        self._session.close()

    # ---- inside ----

    @staticmethod
    def _name(key):
        text = key if isinstance(key, str) else key.to_string()
        return text.replace("/", "-") + _SUFFIX

    def _names(self, keys):
        return [self._name(k) for k in keys]

    async def _lookup(self, keys):
        """A Lookup, or None when the mount does not serve."""
        for _ in range(2):
            try:
                return await self._directory.lookup_async(self._names(keys))
            except OSError as e:
                if not self._away(e):
                    break
        return None

    def _away(self, error):
        """True: it was the daemon, and there is a new one."""
        if not isinstance(error, DaemonGone):
            logger.error("mooncakefs: %s: %s", self._directory.path, error)
            return False
        try:
            self._session.reconnect(0)
            return True
        except OSError as e:
            logger.warning("mooncakefs: %s: no daemon: %s", self._session.mount, e)
            return False

    @staticmethod
    def _free(batch):
        try:
            batch.clear()
        except OSError as e:
            logger.error("mooncakefs: memory of a batch: %s", e)


class MooncakeFSConnectorAdapter(ConnectorAdapter):
    """Makes connectors for mooncakefs:///DIRECTORY."""

    def __init__(self):
        super().__init__(SCHEMA)

    def create_connector(self, context):
        return MooncakeFSConnector(context.loop, context.local_cpu_backend, context.config,
                                   urlparse(context.url).path)


def _mount_of(path):
    """The mount point above path that has sessions."""
    at = os.path.realpath(path)
    while not os.path.exists(os.path.join(at, ".mooncake", "session")):
        if at == os.path.dirname(at):
            raise FileNotFoundError(2, "not below a mooncakefs mount with sessions", path)
        at = os.path.dirname(at)
    return at
