# SPDX-License-Identifier: Apache-2.0
"""The adapters of examples/python against harnesses that use them as SGLang and LMCache do.

SGLang: the cache controller's generic and v1 paths over a host pool. LMCache: what RemoteBackend awaits of
a connector, with objects of its allocator. Pools and objects are numpy arrays where torch is absent.
"""
import asyncio
import os
import sys
import threading
import types

import pytest

from harness import env

sys.path.insert(0, os.path.join(env.REPO, "examples", "python"))

numpy = pytest.importorskip("numpy")
try:
    import torch
except ImportError:
    torch = None

from mooncakefs import lmcache_connector, sglang_hicache  # noqa: E402

pytestmark = [pytest.mark.mooncake, pytest.mark.one_mode, pytest.mark.no_asan]

KINDS = ["numpy", pytest.param("torch", marks=pytest.mark.skipif(torch is None, reason="needs torch"))]


@pytest.fixture
def live(mount):
    """A mount with sessions."""
    if not mount.passthrough_live:
        pytest.skip("sessions need passthrough")
    return mount


# ---- SGLang HiCache ----


class HostPool:
    """An MHA pool of tokens as the controller and the backends see it: indices are tokens."""
    page_size, layers, heads, dim, pages = 8, 3, 2, 16, 32

    def __init__(self, kind, layout="page_first", kv_buffer=None):
        self.kind, self.layout = kind, layout
        tokens = self.page_size * self.pages
        shape = (2, tokens, self.layers, self.heads, self.dim)
        if layout == "layer_first":
            shape = (2, self.layers, tokens, self.heads, self.dim)
        if kv_buffer is None:
            kv_buffer = (torch.zeros(shape, dtype=torch.float16) if kind == "torch" else
                         numpy.zeros(shape, "float16"))
        self.kv_buffer = kv_buffer.reshape(shape)

    def fill(self, seed):
        """Every page different."""
        n = numpy.arange(self.kv_buffer.size if self.kind == "numpy" else self.kv_buffer.numel())
        values = ((n * (seed + 1)) % 997).astype("float16").reshape(tuple(self.kv_buffer.shape))
        self.kv_buffer[:] = torch.from_numpy(values) if self.kind == "torch" else values

    def _page(self, index):
        if self.layout == "layer_first":
            return self.kv_buffer[:, :, index:index + self.page_size]
        return self.kv_buffer[:, index:index + self.page_size]

    def get_data_page(self, index, flat=True):
        return self._page(index).reshape(-1)

    def get_dummy_flat_data_page(self):
        flat = self._page(0).reshape(-1)
        return torch.zeros_like(flat) if self.kind == "torch" else numpy.zeros_like(flat)

    def set_from_flat_data_page(self, index, page):
        self._page(index)[:] = page.reshape(self._page(index).shape)

    def get_page_buffer_meta(self, indices):
        assert self.layout == "page_first" and len(indices) % self.page_size == 0
        token = self.layers * self.heads * self.dim * 2
        base = sglang_hicache._address(self.kv_buffer)
        pointers = []
        for i in range(0, len(indices), self.page_size):
            pointers += [base + int(indices[i]) * token,
                         base + (int(indices[i]) + self.page_size * self.pages) * token]
        return pointers, [self.page_size * token] * len(pointers)

    def indices(self, *pages):
        flat = [p * self.page_size + i for p in pages for i in range(self.page_size)]
        return torch.tensor(flat) if self.kind == "torch" else numpy.array(flat)

    def same(self, other, pages):
        return all(bool((self.get_data_page(p * 8) == other.get_data_page(p * 8)).all()) for p in pages)


def config(mount, **fields):
    return types.SimpleNamespace(**{"tp_rank": 0, "tp_size": 1, "pp_rank": 0, "pp_size": 1, "is_mla_model": False,
                                    "model_name": "org/model", "extra_config": {"mount": mount.path}, **fields})


@pytest.fixture
def backend(live):
    made = []

    def make(**fields):
        made.append(sglang_hicache.MooncakeFSHiCache(config(live, **fields), {}))
        return made[-1]
    yield make
    while made:  # pools live in shared memory: as long as one is referenced, the mount is busy
        made.pop().close()


KEYS = [f"{i:064x}" for i in range(20)]


@pytest.mark.parametrize("kind", KINDS)
def test_hicache_generic_pages_come_back(backend, kind):
    """The controller's generic path: batch_set of flat pages, exists, batch_get into dummy pages."""
    b, pool = backend(), HostPool(kind)
    pool.fill(1)
    assert b.batch_exists(KEYS) == 0 and not b.exists(KEYS[0])
    assert b.batch_set(KEYS[:10], [pool.get_data_page(i * 8) for i in range(10)]) is True
    assert b.set(KEYS[11], pool.get_data_page(88)) is True
    assert b.batch_exists(KEYS) == 10 and b.exists(KEYS[11]) and not b.exists(KEYS[10])
    got = b.batch_get(KEYS[:12], [pool.get_dummy_flat_data_page() for _ in range(12)])
    assert [p is not None for p in got] == [True] * 10 + [False, True]
    copy = HostPool(kind)
    for i in (*range(10), 11):
        copy.set_from_flat_data_page(i * 8, got[i])
    assert copy.same(pool, [*range(10), 11])
    assert b.get("f" * 64, pool.get_dummy_flat_data_page()) is None
    assert b.get(KEYS[0], pool.get_dummy_flat_data_page()[:-1]) is None  # of another shape
    b.clear()
    assert b.batch_exists(KEYS) == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["page_first", "layer_first"])
@pytest.mark.parametrize("place", ["away", "shared"])
def test_hicache_v1_pages_come_back(backend, kind, layout, place):
    """batch_set_v1, then batch_get_v1 into other pages of another pool; both layouts, both kinds of memory."""
    b = backend()

    def pool_of():
        pool = HostPool(kind, layout)
        if place == "shared":
            size = sglang_hicache._size(pool.kv_buffer)
            pool = HostPool(kind, layout, sglang_hicache._like(b._session.buffer(size)[:size], pool.kv_buffer))
        return pool
    pool, target = pool_of(), pool_of()
    pool.fill(2)
    b.register_mem_pool_host(pool)
    assert (b._pool_region is not None) == (place == "shared" and layout == "page_first")
    assert b.batch_set_v1(KEYS[:5], pool.indices(0, 3, 7, 30, 31)) == [True] * 5
    assert b.batch_exists(KEYS) == 5
    b.register_mem_pool_host(target)
    got = b.batch_get_v1([*KEYS[:5], KEYS[9]], target.indices(0, 3, 7, 30, 31, 1))
    assert got == [True] * 5 + [False]
    assert target.same(pool, [0, 3, 7, 30, 31])
    assert not target.get_data_page(8).any()
    assert b.batch_set_v1(KEYS[:5], pool.indices(1, 1, 1, 1, 1)) == [True] * 5  # there: not written again
    assert b.batch_get_v1(KEYS[:1], target.indices(9)) == [True]
    assert bool((target.get_data_page(72) == pool.get_data_page(0)).all())


def test_hicache_bytes_do_not_depend_on_the_path(backend):
    """What v1 wrote in place, the generic path reads, and the other way round."""
    b, away = backend(), HostPool("numpy")
    size = away.kv_buffer.nbytes
    shared = HostPool("numpy", kv_buffer=b._session.buffer(size)[:size].numpy("float16"))
    shared.fill(3)
    b.register_mem_pool_host(shared)
    assert b.batch_set_v1(KEYS[:2], shared.indices(4, 5)) == [True] * 2
    page = b.get(KEYS[1], away.get_dummy_flat_data_page())
    assert (page == shared.get_data_page(40)).all()
    assert b.set(KEYS[2], shared.get_data_page(48))
    assert b.batch_get_v1(KEYS[2:3], shared.indices(0)) == [True]
    assert (shared.get_data_page(0) == shared.get_data_page(48)).all()


def test_hicache_ranks_do_not_meet(backend):
    """Two tensor-parallel ranks have pages of their own; of an MLA model they share them."""
    ranks = [backend(tp_rank=r, tp_size=2) for r in range(2)]
    page = numpy.ones(100, "uint8")
    assert ranks[0].set(KEYS[0], page)
    assert ranks[0].exists(KEYS[0]) and not ranks[1].exists(KEYS[0])
    mla = [backend(tp_rank=r, tp_size=2, is_mla_model=True) for r in range(2)]
    assert mla[0].set(KEYS[1], page) and mla[1].exists(KEYS[1])


def test_hicache_threads_of_the_controller(backend):
    """Prefetch and backup threads at once."""
    b, pool = backend(), HostPool("numpy")
    pool.fill(4)
    b.register_mem_pool_host(pool)
    bad = []

    def backup(k):
        for n in range(20):
            keys = [f"{k}-{n}-{i}" for i in range(4)]
            bad.extend(x for x in b.batch_set_v1(keys, pool.indices(0, 1, 2, 3)) if not x)
            if b.batch_exists(keys) != 4 or b.batch_get_v1(keys, pool.indices(8, 9, 10, 11)) != [True] * 4:
                bad.append(keys)
    threads = [threading.Thread(target=backup, args=(k,)) for k in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not bad


def test_hicache_a_daemon_away_is_a_miss(live, backend):
    """Killed: every call answers as if nothing were there. Started again: all is back."""
    live.expect_errors(".")
    b, pool = backend(), HostPool("numpy")
    pool.fill(5)
    b.register_mem_pool_host(pool)
    assert b.batch_set_v1(KEYS[:2], pool.indices(0, 1)) == [True] * 2
    live.kill9()
    assert b.batch_exists(KEYS[:2]) == 0 and not b.exists(KEYS[0])
    assert b.batch_get_v1(KEYS[:2], pool.indices(2, 3)) == [False] * 2
    assert b.batch_set_v1(KEYS[:2], pool.indices(2, 3)) == [False] * 2
    assert b.batch_get(KEYS[:1], [pool.get_dummy_flat_data_page()]) == [None]
    assert b.set(KEYS[0], pool.get_data_page(0)) is False
    live.start()
    assert b.batch_exists(KEYS[:2]) == 2
    assert b.batch_get_v1(KEYS[:2], pool.indices(2, 3)) == [True] * 2
    assert (pool.get_data_page(16) == pool.get_data_page(0)).all()


@pytest.mark.skipif(torch is None, reason="needs torch")
def test_hicache_allocator_gives_shared_memory(backend):
    b = backend()
    tensor = sglang_hicache.HostAllocator(b).allocate((2, 256, 3, 2, 16), torch.float16)
    pool = HostPool("torch", kv_buffer=tensor)
    b.register_mem_pool_host(pool)
    assert b._pool_region is not None and tuple(tensor.shape) == (2, 256, 3, 2, 16)


# ---- LMCache ----


class MemoryObj:
    """What LMCache's allocator gives out."""

    def __init__(self, shape, dtype, form):
        self.shape, self.dtype, self.form = tuple(shape), dtype, form
        item = numpy.dtype(str(dtype).replace("torch.", "")).itemsize
        self.byte_array = memoryview(bytearray(int(numpy.prod(self.shape)) * item))

    def get_shape(self):
        return self.shape

    def get_dtype(self):
        return self.dtype

    def get_memory_format(self):
        return self.form


class CPUBackend:
    """Its allocator, which may have no room."""

    def __init__(self):
        self.room = 10 ** 6

    def allocate(self, shape, dtype, form):
        self.room -= 1
        return MemoryObj(shape, dtype, form) if self.room >= 0 else None


class Key:
    def __init__(self, i):
        self.i = i

    def to_string(self):
        return f"vllm@org/model@1@0@{self.i:x}@half"


def chunk(i, tokens=16):
    m = MemoryObj((2, 4, tokens, 64), "float16" if torch is None else torch.float16, 3)
    m.byte_array[:] = os.urandom(len(m.byte_array))
    return m


@pytest.fixture
def lmcache(live):
    """Runs a coroutine function with a connector made as LMCache makes it."""
    def run(use, cpu=None):
        async def main():
            adapter = lmcache_connector.MooncakeFSConnectorAdapter()
            url = f"mooncakefs://{live.path}/kv/lmcache"
            assert adapter.can_parse(url) and not adapter.can_parse("redis://x")
            connector = adapter.create_connector(types.SimpleNamespace(
                url=url, loop=asyncio.get_running_loop(), local_cpu_backend=cpu or CPUBackend(), config=None))
            try:
                return await use(connector)
            finally:
                await connector.close()
        return asyncio.run(asyncio.wait_for(main(), env.scaled(30)))
    return run


def test_lmcache_put_and_get(lmcache):
    """put, exists, get: shape, type, format and bytes; a missing key is None; list and remove."""
    async def use(c):
        key, value = Key(1), chunk(1)
        assert not await c.exists(key) and not c.exists_sync(key)
        assert await c.get(key) is None
        await c.put(key, value)
        assert await c.exists(key) and c.exists_sync(key)
        got = await c.get(key)
        assert (got.shape, got.form, str(got.dtype)) == (value.shape, 3, str(value.dtype))
        assert got.byte_array == value.byte_array
        assert await c.list() == [key.to_string().replace("/", "-")]
        assert await c.ping() == 0
        assert c.remove_sync(key) and not c.remove_sync(key)
        assert not await c.exists(key)
    lmcache(use)


def test_lmcache_batches(lmcache):
    """The batched forms agree with the single ones; a last chunk of fewer tokens keeps its shape."""
    async def use(c):
        keys = [Key(i) for i in range(30)]
        values = [chunk(i) for i in range(19)] + [chunk(19, tokens=5)]
        await c.batched_put(keys[:20], values)
        assert await c.batched_async_contains("id", keys) == 20
        assert c.batched_contains(keys) == [True] * 20 + [False] * 10
        c.remove_sync(keys[4])
        assert await c.batched_async_contains("id", keys) == 4
        assert c.batched_contains(keys[:6]) == [True] * 4 + [False] * 2
        assert c.batched_contains(keys[:6], False) == [True] * 4 + [False, True]
        got = await c.batched_get(keys)
        assert [m is not None for m in got] == [i < 20 and i != 4 for i in range(30)]
        assert all(got[i].byte_array == values[i].byte_array for i in range(20) if i != 4)
        assert got[19].shape == (2, 4, 5, 64)
        assert len(await c.batched_get_non_blocking("id", keys)) == 19
    lmcache(use)


def test_lmcache_many_at_once(lmcache):
    """A hundred coroutines of one loop."""
    async def use(c):
        values = [chunk(i) for i in range(50)]
        await asyncio.gather(*(c.put(Key(i), v) for i, v in enumerate(values)))
        got = await asyncio.gather(*(c.get(Key(i % 50)) for i in range(100)))
        assert all(m.byte_array == values[i % 50].byte_array for i, m in enumerate(got))
    lmcache(use)


def test_lmcache_no_room_and_no_chunk(live, lmcache):
    """An allocator without room, and a file that is no chunk, are misses."""
    cpu = CPUBackend()

    async def use(c):
        await c.put(Key(1), chunk(1))
        cpu.room = 0
        assert await c.get(Key(1)) is None
        cpu.room = 10
        for data in (b"x" * 500, b"", b"MCFSLMC1" + bytes(200)):
            with open(os.path.join(live.path, "kv/lmcache", c._name(Key(2))), "wb") as f:
                f.write(data)
            assert await c.get(Key(2)) is None
    lmcache(use, cpu)


def test_lmcache_a_daemon_away_is_a_miss(live, lmcache):
    live.expect_errors(".")

    async def use(c):
        value = chunk(1)
        await c.put(Key(1), value)
        live.kill9()
        assert not await c.exists(Key(1)) and await c.get(Key(1)) is None
        assert c.batched_contains([Key(1)]) == [False] and await c.ping() != 0
        with pytest.raises(OSError):
            await c.put(Key(2), value)
        live.start()
        assert await c.exists(Key(1))
        assert (await c.get(Key(1))).byte_array == value.byte_array
    lmcache(use)
