# SPDX-License-Identifier: Apache-2.0
"""What docs/containers.md promises to clients in containers, tried with namespaces and cgroups."""
import mmap
import os
import re
import signal
import subprocess

import pytest

from harness import env
from harness.content import exists, get, pattern, put, wait_for
from harness.mount import umount
from harness.progs import prog
from harness.space import MemGroup, Space, share

pytestmark = pytest.mark.mooncake
MIB = env.MIB
NOBODY = 65534


@pytest.fixture
def m(new_mount):
    """A mount, not started, below a folder whose mounts propagate."""
    m = new_mount(allow_other=True)
    share(m.base)
    return m


def _killed_writer(path):
    """A shell command: a writer that dies by SIGKILL in the middle of its file."""
    return f"sh -c 'exec 3>{path}; echo half >&3; kill -9 $$' || :"


# ---- mount propagation ----

def test_mount_appears_in_a_container_that_was_there_first(m):
    """A container that has the folder above the mount point as rslave sees the mount, and the one after a crash."""
    with Space(m.base, "--mount", "--propagation=slave") as c:
        assert c.sh(f"ls -A {m.path}") == ""
        m.start()
        put(os.path.join(m.path, "f"), b"one")
        assert c.check("cat", f"{m.path}/f") == "one"
        m.kill9()
        assert "Transport endpoint is not connected" in c.run("cat", f"{m.path}/f").stderr
        m.start()
        assert c.check("cat", f"{m.path}/f") == "one"
        c.sh(f"echo two >{m.path}/g")
        assert get(os.path.join(m.path, "g")) == b"two\n"
        m.stop()
        assert c.sh(f"ls -A {m.path}") == ""


def test_private_propagation_keeps_the_old_mount(m):
    """Without propagation a container keeps what was mounted when it began: after a restart, a dead mount."""
    with Space(m.base, "--mount", "--propagation=private") as early:
        m.start()
        assert early.sh(f"ls -A {m.path}") == ""
        with Space(m.base, "--mount", "--propagation=private") as late:
            put(os.path.join(m.path, "f"), b"one")
            assert late.check("cat", f"{m.path}/f") == "one"
            m.kill9()
            m.start()
            assert get(os.path.join(m.path, "f")) == b"one"
            assert "Transport endpoint is not connected" in late.run("cat", f"{m.path}/f").stderr


@pytest.mark.parametrize("propagation, stays", [("slave", False), ("private", True)])
def test_state_directory_bound_into_a_container(m, propagation, stays):
    """It brings the frames along, for root to see; umount takes them from an rslave bind, not from others."""
    m.start()
    put(os.path.join(m.path, "f"), pattern(1, MIB))
    with Space(m.base, "--mount", f"--propagation={propagation}", prepare=_bind_state(m)) as c:
        find = f"find {m.base}/bound/dram -type f 2>/dev/null || :"
        assert c.sh(find) != "" and c.check("stat", "-c", "%a", f"{m.base}/bound/dram").strip() == "700"
        m.signal(signal.SIGTERM)
        m.wait_end()
        assert umount(m.state + "/dram") == ""
        assert (c.sh(find) != "") == stays


def _bind_state(m):
    target = os.path.join(m.base, "bound")
    os.mkdir(target)
    return f"mount --rbind {m.state} {target}"


def test_private_copy_keeps_a_mount_alive_after_umount(m):
    """umount on the host does not end a daemon whose mount a container without propagation has; its end does."""
    m.start()
    put(os.path.join(m.path, "f"), b"one")
    with Space(m.base, "--mount", "--propagation=private") as c:
        assert umount(m.path) == ""
        assert not os.path.ismount(m.path)
        assert c.check("cat", f"{m.path}/f") == "one"
    m.wait_end()
    assert m.problems == []


# ---- restart of the daemon under running clients ----

def test_upgrade_under_running_containers(m, new_client):
    """SIGTERM and a new start: what passthrough has open or mapped reads on, else ENOTCONN; new opens work."""
    m.start()
    live = m.passthrough_live
    path, data = os.path.join(m.path, "f"), pattern(1, MIB)
    put(path, data)
    fd = os.open(path, os.O_RDONLY)
    mapping = mmap.mmap(fd, MIB, mmap.MAP_PRIVATE, mmap.PROT_READ)
    assert mapping[0] == data[0]
    with Space(m.base, "--mount", "--propagation=slave") as c:
        m.signal(signal.SIGTERM)
        m.wait_end()
        m.start()
        if live:
            assert os.pread(fd, MIB, 0) == data
            assert mapping[:] == data
        else:
            with pytest.raises(OSError) as e:
                os.pread(fd, MIB, 0)
            assert e.value.strerror == "Transport endpoint is not connected"
        assert c.check("cksum", path).split()[1] == str(MIB)
        assert get(path) == data
    mapping.close()
    os.close(fd)


# ---- process ids ----

def test_killed_writer_in_a_container(m):
    """The daemon on the host knows a container's processes: a killed writer there publishes nothing."""
    m.start()
    with Space(m.base, "--mount", "--pid", "--mount-proc") as c:
        c.sh(f"cd {m.path}; echo a >f; mv f g; cat g; {_killed_writer('half')}; echo b >g; ! ls half")
        assert c.check("ps", "-o", "pid=").split()[0] == "1"
    assert get(os.path.join(m.path, "g")) == b"b\n"
    assert not exists(os.path.join(m.path, "half"))
    assert m.counter("pid0_calls") == 0
    assert m.counter("drafts_poisoned") == 1


def test_container_killed_as_a_whole(m):
    """When the first process of a container is killed, what its writers had not closed is gone."""
    m.start()
    path = os.path.join(m.path, "f")
    with Space(m.base, "--mount", "--pid", "--mount-proc") as c:
        writer = subprocess.Popen(["nsenter", "-t", str(c.pid), "--mount", "--pid", "--", "sh", "-c",
                                   f"exec 3>{path}; echo half >&3; echo ready; exec sleep 1000"],
                                  stdout=subprocess.PIPE)
        assert writer.stdout.readline() == b"ready\n"
        os.kill(c.pid, signal.SIGKILL)
        writer.communicate(timeout=env.scaled(10))
    assert not exists(path)
    wait_for(lambda: m.status()["drafts"]["open"] == 0, 3, "its draft is gone")


# ---- user ids ----

@pytest.fixture
def user_space(m):
    """A container whose root is user 100000 of the host, on a mount that is open to all."""
    m.start()
    os.chmod(m.path, 0o1777)
    with Space(m.base, "--user") as c:
        for kind in ("uid_map", "gid_map"):
            with open(f"/proc/{c.pid}/{kind}", "w") as f:
                f.write("0 100000 65536")
        yield c


def test_ids_of_a_user_namespace(m, user_space):
    """Files get the host's ids of a container's users, and show up inside with the container's."""
    user_space.sh(f"echo x >{m.path}/f; chmod 600 {m.path}/f", uid=0)
    user_space.sh(f"echo y >{m.path}/g", uid=1000)
    assert os.stat(os.path.join(m.path, "f")).st_uid == 100000
    assert os.stat(os.path.join(m.path, "g")).st_uid == 101000
    assert user_space.check("stat", "-c", "%u", f"{m.path}/f", f"{m.path}/g", uid=0).split() == ["0", "1000"]
    assert "Permission denied" in user_space.run("cat", f"{m.path}/f", uid=1000).stderr


def test_root_of_a_user_namespace_is_not_root(m, user_space):
    """A file of the host's root is nobody's inside, and closed to the container's root; killed writers are seen."""
    put(os.path.join(m.path, "root"), b"secret")
    os.chmod(os.path.join(m.path, "root"), 0o600)
    assert user_space.check("stat", "-c", "%u", f"{m.path}/root", uid=0).strip() == str(NOBODY)
    for command in (["cat", f"{m.path}/root"], ["rm", "-f", f"{m.path}/root"], ["chown", "0", f"{m.path}/root"]):
        assert user_space.run(*command, uid=0).returncode != 0, command
    user_space.sh(_killed_writer(f"{m.path}/half"), uid=0)
    assert not exists(os.path.join(m.path, "half"))
    assert m.counter("pid0_calls") == 0


def test_without_allow_other_only_the_mounter(new_mount):
    """Without allow_other a container's user is refused, by the kernel."""
    m = new_mount()
    m.start()
    os.chmod(m.path, 0o777)
    done = subprocess.run(["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "ls", m.path],
                          capture_output=True, text=True)
    assert done.returncode != 0 and "Permission denied" in done.stderr


# ---- memory of clients ----

@pytest.mark.parametrize("how", ["read", "map"])
def test_small_client_reads_a_big_object(m, how):
    """A client limited to 24 MiB reads and maps a 128 MiB object: its pages are the daemon's, not the client's."""
    m.start()
    path, size = os.path.join(m.path, "big"), 128 * MIB
    subprocess.run(["dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={size // MIB}", "status=none"], check=True)
    argv = ["dd", f"if={path}", "of=/dev/null", "bs=1M"] if how == "read" else [prog("mapread"), path, "private"]
    with MemGroup(24 * MIB) as group:
        done = subprocess.run(argv, preexec_fn=group.join, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              timeout=env.scaled(30))
        assert done.returncode == 0, done.stderr
        if m.passthrough_live:
            assert group.peak_bytes() < 16 * MIB


def test_writes_are_charged_to_the_daemon(m):
    """A client limited to 24 MiB writes a 128 MiB object: frames are charged to the daemon that fills them."""
    m.start()
    with MemGroup(24 * MIB) as group:
        done = group.run("dd", "if=/dev/zero", f"of={m.path}/big", "bs=1M", "count=128", "status=none")
        assert done.returncode == 0, done.stderr
        assert group.peak_bytes() < 16 * MIB
    assert os.stat(os.path.join(m.path, "big")).st_size == 128 * MIB


# ---- waiting for the mount ----

def test_wait_for_the_mount(m):
    """The line that the guide gives an init container returns when the mount is there, not before."""
    with open(os.path.join(env.REPO, "docs", "containers.md")) as f:
        line = re.search(r'"(until [^"]*)"', f.read()).group(1)
    script = line.replace("/mnt/mooncake", m.path)
    with Space(m.base, "--mount", "--propagation=slave") as c:
        waiter = subprocess.Popen(["nsenter", "-t", str(c.pid), "--mount", "--", "sh", "-c", script])
        with pytest.raises(subprocess.TimeoutExpired):
            waiter.wait(0.5)
        m.start()
        assert waiter.wait(env.scaled(10)) == 0
