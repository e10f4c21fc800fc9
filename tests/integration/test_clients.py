# SPDX-License-Identifier: Apache-2.0
"""What real LLM clients do, system call by system call, read back by another process."""
import array
import fcntl
import json
import mmap
import os
import random
import struct
import subprocess
import sys
import tempfile
import threading

from harness import env
from harness.content import exists, get, pattern, put
from harness.progs import check_prog

MIB = env.MIB
BLOCK = 2 * MIB
DATA = pattern("block", BLOCK)


def aligned(data):
    """data in page-aligned memory, as O_DIRECT wants it."""
    m = mmap.mmap(-1, len(data))
    m[:] = data
    return m


# ---- vLLM, file-system tier ----

def vllm_store(path, data):
    tmp = f"{path}_{threading.get_ident()}.tmp"
    os.makedirs(os.path.dirname(tmp), exist_ok=True)
    fd = os.open(tmp, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_TRUNC | os.O_DIRECT, 0o644)
    try:
        n = os.write(fd, aligned(data))
    finally:
        os.close(fd)
    assert n == len(data)
    os.replace(tmp, path)


def vllm_load(path, n):
    buf = mmap.mmap(-1, n)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        assert os.readv(fd, [buf]) == n
    finally:
        os.close(fd)
    return buf[:]


def test_vllm_fs_tier(d, client_a):
    """O_EXCL|O_DIRECT temporary file, one write, replace; O_DIRECT readv of the whole block."""
    path = os.path.join(d, "model", "bc_g0", "h1.bin")
    vllm_store(path, DATA)
    assert vllm_load(path, BLOCK) == DATA
    assert client_a.get(path) == DATA
    assert os.listdir(os.path.dirname(path)) == ["h1.bin"]


def test_vllm_fs_tier_many_threads(d):
    """Eight threads store and load 200 blocks, several of them the same ones."""
    wrong = []

    def work(k):
        rng = random.Random(k)
        for _ in range(25):
            i = rng.randrange(40)
            path, data = os.path.join(d, "kv", f"{i:064x}.bin"), pattern(i, 65536)
            if not os.path.exists(path):
                vllm_store(path, data)
            if vllm_load(path, 65536) != data:
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []
    assert [n for n in os.listdir(os.path.join(d, "kv")) if n.endswith(".tmp")] == []


# ---- llm-d ----

def test_llmd_renames_before_close(d, client_a):
    """writev, rename, then close: after the close the final name has all of it."""
    tmp, path = os.path.join(d, "b.tmp"), os.path.join(d, "b.bin")
    fd = client_a.os.open(tmp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    client_a.os.writev(fd, [b"", DATA[:BLOCK // 2], DATA[BLOCK // 2:]])
    client_a.os.rename(tmp, path)
    client_a.os.close(fd)
    assert get(path) == DATA
    assert os.listdir(d) == ["b.bin"]


# ---- LMCache ----

def test_lmcache_local_disk(d, client_a):
    """open('wb') over the final name while a reader has the old one open: old or new, never a mixture."""
    path = os.path.join(d, "vllm@a@1@0@ff.pt")
    for round_no in range(5):
        data = pattern(round_no, 500000)
        old = os.open(path, os.O_RDONLY) if exists(path) else None
        client_a.exec("with open(path, 'wb') as f: f.write(data)", path=path, data=data)
        if old is not None:
            seen = os.pread(old, 500001, 0)
            assert seen == (data if env.PLAIN_DIR else pattern(round_no - 1, 500000))
            os.close(old)
        assert get(path) == data


def test_lmcache_gds(d, client_a):
    """Metadata header, close, reopen r+, pwrite behind it, close, rename."""
    tmp, path = os.path.join(d, "g.tmp"), os.path.join(d, "g.kvcache.safetensors")
    client_a.exec("""
with open(tmp, "wb") as f:
    f.write(b"m" * 4096)
fd = os.open(tmp, os.O_RDWR)
os.pwrite(fd, data, 4096)
os.close(fd)
os.rename(tmp, path)
""", tmp=tmp, path=path, data=DATA)
    assert os.stat(path).st_size == 4096 + BLOCK
    assert get(path) == b"m" * 4096 + DATA


def test_lmcache_gds_without_cufile(d):
    """The same with ftruncate and stores through a mapping whose descriptor is closed first."""
    tmp, path = os.path.join(d, "s.tmp"), os.path.join(d, "s.st")
    check_prog("mapstore", "-h", 4096, "-r", path, tmp, 4096 + BLOCK, 11)
    assert get(path) == b"h" * 4096 + bytes((11 + i + i // 4096) & 255 for i in range(4096, 4096 + BLOCK))


# ---- safetensors, torch.save, huggingface ----

def test_safetensors_save_and_load(d, client_a):
    """mkstemp, set_len, sequential writes, rename; loaded by MAP_PRIVATE with the file closed, and written to."""
    path = os.path.join(d, "model.safetensors")
    header = json.dumps({"t": {"dtype": "U8", "shape": [BLOCK], "data_offsets": [0, BLOCK]}}).encode()
    head = struct.pack("<Q", len(header)) + header
    client_a.exec("""
import tempfile
fd, tmp = tempfile.mkstemp(prefix=".tmp", dir=d)
os.ftruncate(fd, len(head) + len(data))
os.write(fd, head)
for off in range(0, len(data), 100000):
    os.write(fd, data[off:off + 100000])
os.close(fd)
os.rename(tmp, path)
""", d=d, head=head, data=DATA, path=path)
    assert os.listdir(d) == ["model.safetensors"]
    assert os.stat(path).st_mode & 0o777 == 0o600
    with open(path, "rb") as f:
        m = mmap.mmap(f.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    n = struct.unpack("<Q", m[:8])[0]
    assert json.loads(m[8:8 + n])["t"]["shape"] == [BLOCK]
    assert m[8 + n:] == DATA
    m[8 + n] = DATA[0] ^ 1
    m.close()
    assert get(path) == head + DATA


def test_torch_save_zip(d):
    """torch.save's zip: seeks back to patch headers, on the final name; read through the central directory."""
    import zipfile
    path = os.path.join(d, "model.pt")
    with zipfile.ZipFile(path, "w") as z:
        for i in range(10):
            with z.open(f"archive/data/{i}", "w") as f:
                f.write(pattern(i, 100000))
    with zipfile.ZipFile(path) as z:
        assert z.testzip() is None
        assert z.read("archive/data/7") == pattern(7, 100000)


def test_huggingface_cache(d):
    """blobs, snapshots as relative symlinks, a lock file with flock, refs."""
    for name in ("blobs", "snapshots/abc", "refs"):
        os.makedirs(os.path.join(d, name))
    lock = os.open(os.path.join(d, "blobs", "x.lock"), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    incomplete = os.path.join(d, "blobs", "x.incomplete")
    for part in (DATA[:MIB], DATA[MIB:]):
        with open(incomplete, "ab") as f:
            f.write(part)
    os.replace(incomplete, os.path.join(d, "blobs", "x"))
    os.symlink("../../blobs/x", os.path.join(d, "snapshots/abc/model.bin"))
    put(os.path.join(d, "refs", "main"), b"abc")
    fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)
    os.unlink(os.path.join(d, "blobs", "x.lock"))
    assert get(os.path.join(d, "snapshots/abc/model.bin")) == DATA
    assert os.listdir(os.path.join(d, "blobs")) == ["x"]


# ---- SGLang HiCacheFile ----

def test_sglang_hicache_file(d, client_a):
    """tofile to the final name if it does not exist; readinto a preallocated buffer; clear by remove."""
    path = os.path.join(d, "hash_model_0_1.bin")
    client_a.exec("""
import array
if not os.path.exists(path):
    with open(path, "wb") as f:
        array.array("B", data).tofile(f)
""", path=path, data=DATA)
    target = array.array("B", bytes(BLOCK))
    with open(path, "rb", buffering=0) as f:
        assert f.readinto(target) == BLOCK
    assert target.tobytes() == DATA
    for name in os.listdir(d):
        os.remove(os.path.join(d, name))
    assert not client_a.os.access(path, os.F_OK)


# ---- NIXL ----

def test_nixl_parallel_out_of_order_writes(d, client_a):
    """O_RDWR|O_CREAT on the final name, threads pwrite its quarters in odd order, close; O_RDWR open to read."""
    path = os.path.join(d, "n.bin")
    client_a.exec("""
fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
q = len(data) // 8
threads = [threading.Thread(target=os.pwrite, args=(fd, data[i * q:(i + 1) * q], i * q))
           for i in (3, 1, 7, 0, 5, 2, 6, 4)]
for t in threads: t.start()
for t in threads: t.join()
os.close(fd)
""", path=path, data=DATA)
    assert get(path) == DATA
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    parts = {}
    threads = [threading.Thread(target=lambda i=i: parts.update({i: os.pread(fd, MIB, i * MIB)}))
               for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    os.close(fd)
    assert parts[0] + parts[1] == DATA


# ---- kvbm ----

def test_kvbm_disk_pool(d):
    """mkstemp, F_SETFL O_DIRECT, fallocate, unlink, random block writes and reads."""
    fd, path = tempfile.mkstemp(dir=d)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_DIRECT)
    os.posix_fallocate(fd, 0, 16 * 262144)
    os.unlink(path)
    rng = random.Random(1)
    model = {}
    buf = mmap.mmap(-1, 262144)
    for n in range(60):
        i = rng.randrange(16)
        if rng.random() < 0.6 or i not in model:
            model[i] = pattern(n, 262144)
            buf[:] = model[i]
            assert os.pwrite(fd, buf, i * 262144) == 262144
        else:
            assert os.preadv(fd, [buf], i * 262144) == 262144
            assert buf[:] == model[i]
    os.close(fd)
    assert os.listdir(d) == []


# ---- everything at once ----

def test_probe_script(d):
    """The probe of these patterns, where a copy lies beside the project."""
    probe = os.path.join(env.SHARED, "probe", "kvfs_probe.py")
    env.require_file(probe)
    p = subprocess.run([sys.executable, probe, d], capture_output=True, text=True, timeout=env.scaled(50))
    failed = [line for line in p.stdout.splitlines() if "FAIL" in line]
    assert failed == [] and p.returncode == 0, p.stderr
    assert "final name exists=False" in p.stdout or env.PLAIN_DIR
