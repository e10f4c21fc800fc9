# SPDX-License-Identifier: Apache-2.0
"""SGLang HiCache storage backend: KV pages are objects of a mooncakefs mount, a batch per call.

    python -m sglang.launch_server ... --enable-hierarchical-cache \\
        --hicache-storage-backend dynamic --hicache-mem-layout page_first \\
        --hicache-storage-backend-extra-config '{"backend_name": "mooncakefs",
            "module_path": "mooncakefs.sglang_hicache", "class_name": "MooncakeFSHiCache",
            "interface_v1": 1, "mount": "/mnt/mooncake"}'

Follows HiCacheStorage of SGLang main as of late 2025 (python/sglang/srt/mem_cache/hicache_storage.py: get,
set, exists, the batch_ forms, batch_get_v1 and batch_set_v1, clear; the "dynamic" backend is made with
(storage_config, kwargs)). Versions before and after differ in fields of the config that are not used here.

extra_config    "mount": the mount point (else $MOONCAKE_MOUNT, else /mnt/mooncake)
                "directory": where pages go, below it (default kv/sglang/<model>)

A page is one file, `<key><suffix>`, whose suffix tells the rank, as in SGLang's own file backend. Its bytes
are those of the host pool's flat page. Pages that are there are not written again. A daemon that is away
costs hits, nothing else: every call then answers as if nothing were stored, and looks for it again.

Pools whose kv_buffer was made by HostAllocator lie in memory shared with the daemon: their pages are read
and written in place (page_first layouts); other pools cost one more copy.
"""
import functools
import logging
import os
import threading

from . import abi
from .abi import DaemonGone
from .session import Session

try:
    from sglang.srt.mem_cache.hicache_storage import HiCacheStorage
except ImportError:  # tried out without SGLang
    class HiCacheStorage:
        """Stands for SGLang's base class."""

        def register_mem_pool_host(self, mem_pool_host):
            self.mem_pool_host = mem_pool_host

logger = logging.getLogger(__name__)

_IN_PLACE_LAYOUTS = ("page_first", "page_first_direct")


def _address(array):
    """Where the bytes of a numpy array or CPU tensor begin."""
    return array.data_ptr() if hasattr(array, "data_ptr") else array.__array_interface__["data"][0]


def _size(array):
    """Its bytes."""
    return array.numel() * array.element_size() if hasattr(array, "numel") else array.nbytes


def _like(region, array):
    """The bytes of a region as an array of the same kind and element type, flat."""
    if hasattr(array, "data_ptr"):
        return region.torch(array.dtype)
    return region.numpy(array.dtype)


def _or(nothing):
    """The method answers nothing(arguments) when the mount does not serve."""
    def decorate(method):
        @functools.wraps(method)
        def wrapper(self, *args, **kwargs):
            for attempt in range(2):
                try:
                    return method(self, *args, **kwargs)
                except DaemonGone:
                    if attempt or not self._reconnect():
                        break
                except OSError as e:
                    logger.error("mooncakefs: %s: %s", method.__name__, e)
                    break
            return nothing(*args, **kwargs)
        return wrapper
    return decorate


class MooncakeFSHiCache(HiCacheStorage):
    """The backend; may be used by several threads. OSError when the mount cannot serve at the start."""

    def __init__(self, storage_config, kwargs=None):
        extra = dict(getattr(storage_config, "extra_config", None) or {})
        mount = extra.get("mount") or os.environ.get("MOONCAKE_MOUNT") or "/mnt/mooncake"
        model = (getattr(storage_config, "model_name", None) or "default").replace("/", "-")
        self.suffix = self._suffix(storage_config)
        self.mem_pool_host = None
        self._pool_region = None
        self._local = threading.local()
        self._session = Session(mount)
        path = os.path.join(mount, extra.get("directory") or os.path.join("kv", "sglang", model))
        os.makedirs(path, exist_ok=True)
        self._directory = self._session.directory(path)
        self._directory.lookup(["now"])  # what does not work fails here

    @staticmethod
    def _suffix(config):
        suffix = ""
        if not getattr(config, "is_mla_model", False):
            suffix += f"_{getattr(config, 'tp_rank', 0)}_{getattr(config, 'tp_size', 1)}"
        if getattr(config, "pp_size", 1) > 1:
            suffix += f"_{config.pp_size}_{config.pp_rank}"
        if getattr(config, "attn_cp_size", 1) > 1:
            suffix += f"_cp{config.attn_cp_rank}_{config.attn_cp_size}"
        return suffix

    def close(self):
        self._session.close()

    # ---- one or many values, each in memory of its own ----

    def get(self, key, target_location=None, target_sizes=None):
        """Reads key into target_location, a contiguous tensor of the page's size. Returns it, or None."""
        return self.batch_get([key], [target_location], target_sizes)[0]

    @_or(lambda keys, *_, **__: [None] * len(keys))
    def batch_get(self, keys, target_locations=None, target_sizes=None):
        """get of each key, with one call. Returns a list of target_locations[i] or None."""
        if not target_locations or any(t is None for t in target_locations):
            raise ValueError("mooncakefs reads into tensors that are given")
        batch = self._batch("read")
        for key, target in zip(keys, target_locations):
            batch.add(self._directory, self._name(key), target)
        return [target if not item.status and item.bytes == item.size == _size(target) else None
                for item, target in zip(batch.run(), target_locations)]

    def set(self, key, value=None, target_location=None, target_sizes=None):
        """Stores the tensor value (or target_location). True: it is there."""
        return self.batch_set([key], [value if value is not None else target_location])

    @_or(lambda *_, **__: False)
    def batch_set(self, keys, values=None, target_locations=None, target_sizes=None):
        """set of each key, with one call. True: all are there."""
        values = values if values is not None else target_locations
        batch = self._batch("write")
        for i in self._missing(keys):
            batch.add(self._directory, self._name(keys[i]), values[i])
        outcome = batch.run()
        return outcome.n_ok == len(outcome)

    def exists(self, key):
        return self.batch_exists([key]) == 1

    @_or(lambda *_, **__: 0)
    def batch_exists(self, keys, extra_info=None):
        """How many keys from the first are there without a gap."""
        return self._directory.lookup([self._name(k) for k in keys]).ready

    def clear(self):
        """Removes all pages of the directory, also those of other ranks. False: some are left."""
        try:
            with os.scandir(self._directory.path) as entries:
                for entry in entries:
                    if entry.is_file(follow_symlinks=False):
                        os.unlink(entry.path)
            return True
        except OSError as e:
            logger.error("mooncakefs: clear: %s", e)
            return False

    def get_stats(self):
        return None

    # ---- pages of the host pool ----

    def register_mem_pool_host(self, mem_pool_host):
        super().register_mem_pool_host(mem_pool_host)
        buffer = getattr(mem_pool_host, "kv_buffer", None)
        self._pool_region = None
        if getattr(mem_pool_host, "layout", None) in _IN_PLACE_LAYOUTS and hasattr(buffer, "dtype"):
            self._pool_region = self._session.region_of(buffer)

    @_or(lambda keys, *_, **__: [False] * len(keys))
    def batch_get_v1(self, keys, host_indices, extra_info=None):
        """Reads page i into the pool at host_indices[i * page_size]. Returns a bool for each key."""
        pages = self._pages_in_place(keys, host_indices)
        batch = self._batch("read")
        if pages is None:
            return self._get_flat(batch, keys, host_indices)
        for key, (region, shape, size) in zip(keys, pages):
            batch.add(self._directory, self._name(key), region, **shape)
        return [not item.status and item.bytes == item.size == size
                for item, (_, _, size) in zip(batch.run(), pages)]

    @_or(lambda keys, *_, **__: [False] * len(keys))
    def batch_set_v1(self, keys, host_indices, extra_info=None):
        """Stores page i of the pool, at host_indices[i * page_size]. Returns a bool for each key."""
        pages = self._pages_in_place(keys, host_indices)
        pool, stored, missing = self.mem_pool_host, [True] * len(keys), self._missing(keys)
        batch = self._batch("write")
        for i in missing:
            if pages is None:
                page = pool.get_data_page(int(host_indices[i * pool.page_size]), flat=True)
                batch.add(self._directory, self._name(keys[i]), page)
            else:
                region, shape, _ = pages[i]
                batch.add(self._directory, self._name(keys[i]), region, **shape)
        for i, item in zip(missing, batch.run()):
            stored[i] = not item.status
        return stored

    def _get_flat(self, batch, keys, host_indices):
        pool = self.mem_pool_host
        page = pool.get_dummy_flat_data_page()
        regions = [batch.scratch(_size(page)) for _ in keys]
        for key, region in zip(keys, regions):
            batch.add(self._directory, self._name(key), region)
        found = [not item.status and item.bytes == item.size == _size(page) for item in batch.run()]
        for i, region in enumerate(regions):
            if found[i]:
                pool.set_from_flat_data_page(int(host_indices[i * pool.page_size]), _like(region, page))
        return found

    def _pages_in_place(self, keys, host_indices):
        """(region, segments of it, bytes) of each page, or None: the pool is not in shared memory."""
        if self._pool_region is None or not len(keys):
            return None
        pointers, sizes = self.mem_pool_host.get_page_buffer_meta(host_indices)
        base, n = _address(self.mem_pool_host.kv_buffer), len(pointers) // len(keys)
        pages = []
        for i in range(0, len(pointers), n):
            at, size = pointers[i] - base, sizes[i]
            stride = pointers[i + 1] - pointers[i] if n > 1 else size
            if any(sizes[i + k] != size or pointers[i + k] != pointers[i] + k * stride for k in range(n)):
                return None
            shape = {"segments": n, "segment_bytes": size, "stride": stride}
            pages.append((self._pool_region[at:at + (n - 1) * stride + size], shape, n * size))
        return pages

    # ---- inside ----

    def _name(self, key):
        return key.replace("/", "-") + self.suffix

    def _batch(self, op):
        """This thread's batch for op, empty."""
        batch = getattr(self._local, op, None)
        if batch is None:
            batch = self._session.batch(op)
            setattr(self._local, op, batch)
        batch.reset()
        return batch

    def _missing(self, keys):
        kinds = self._directory.lookup([self._name(k) for k in keys]).kinds()
        return [i for i, kind in enumerate(kinds) if kind != abi.READY]

    def _reconnect(self):
        try:
            self._session.reconnect(0)
        except OSError as e:
            logger.warning("mooncakefs: %s: no daemon: %s", self._session.mount, e)
            return False
        # Arrays made before lie in memory that the new daemon does not see.
        self._pool_region = None
        return True


class HostAllocator:
    """Allocates host pools in memory shared with the daemon, for the pool's `allocator`.

        pool = MHATokenToKVPoolHost(..., allocator=HostAllocator(backend))
    """

    def __init__(self, backend):
        self._session = backend._session

    def allocate(self, dims, dtype, device="cpu"):
        """A torch tensor of that shape in a session buffer of its own, zeroed."""
        import torch
        if str(device) != "cpu":
            raise ValueError("a host pool lies in host memory")
        size = torch.empty((), dtype=dtype).element_size()
        for n in dims:
            size *= n
        return self._session.buffer(size)[:size].torch(dtype, tuple(dims))
