# SPDX-License-Identifier: Apache-2.0
"""What docs/containers.md promises of a daemon in a container, tried with namespaces and cgroups."""
import ctypes
import os
import re
import signal
import struct
import subprocess

import pytest

from harness import env
from harness.content import exists, get, pattern, put, wait_for
from harness.mount import mounts_below, umount
from harness.space import Container, MemGroup, share

pytestmark = pytest.mark.mooncake
MIB = env.MIB


@pytest.fixture
def m(new_mount):
    """A mount, not started, below a folder whose mounts propagate."""
    m = new_mount(allow_other=True)
    share(m.base)
    return m


@pytest.fixture
def contain(m):
    """contain(**options): the daemon of m in a container, with its mount at hand on the host."""
    made = []

    def start(host_pid=False, **options):
        with open(m.stderr, "ab") as out:
            made.append(Container(m.base, env.DAEMON, "-f", "-o", m.option_text(**options), m.path,
                                  host_pid=host_pid, output=out))
        wait_for(lambda: made[-1].proc.poll() is not None or _answers(m), env.scaled(20), "the daemon is up")
        assert made[-1].proc.poll() is None, "the daemon ended: " + open(m.stderr).read()[-2000:]
        return made[-1]

    yield start
    for c in made:
        c.destroy()


def _answers(m):
    try:
        return m.status()["mountpoint"] == m.path
    except (OSError, ValueError):
        return False


def _killed_writer(path):
    subprocess.run(["sh", "-c", f"exec 3>{path}; echo half >&3; kill -9 $$"], stderr=subprocess.DEVNULL)


# ---- a daemon in a container ----

def test_mount_comes_out_of_the_container(m, contain):
    """A daemon in mount and PID namespaces of its own: the host has the mount, and the tmpfs of the frames."""
    c = contain()
    put(os.path.join(m.path, "f"), b"x")
    assert get(os.path.join(m.path, "f")) == b"x"
    assert m.status()["pid"] == 1 or m.status()["pid"] < c.pid
    assert len(m.dram_mounts()) == 1
    assert c.stop() == 0
    assert not os.path.ismount(m.path)


def test_next_container_adopts_the_cache(m, contain):
    """Stopped or killed, the container leaves the frames on the host; the next one has the objects again."""
    data = pattern(1, 3 * MIB)
    c = contain()
    put(os.path.join(m.path, "f"), data)
    assert c.stop(signal.SIGTERM) == 0
    assert len(m.dram_mounts()) == 1
    for _ in range(2):
        c = contain()
        assert get(os.path.join(m.path, "f")) == data
        assert len([w for w, _ in mounts_below(m.path) if w == m.path]) == 1
        c.stop(signal.SIGKILL)
        with pytest.raises(OSError) as e:
            get(os.path.join(m.path, "f"))
        assert e.value.strerror == "Transport endpoint is not connected"
    c = contain()
    assert len(m.dram_mounts()) == 1
    assert umount(m.path) == ""
    assert c.proc.wait(env.scaled(15)) == 0
    wait_for(lambda: m.dram_mounts() == [], env.scaled(5), "the frames are freed on the host too")


@pytest.mark.one_mode
def test_passthrough_from_a_container(m, contain):
    """A privileged container has passthrough like the host."""
    contain()
    assert m.passthrough_live, m.status()["passthrough"]["reason"]


def test_callers_outside_of_the_daemons_pid_namespace(m, contain, new_client):
    """Without the host's PID namespace: all works, killed writers publish, drafts are the user's, and it is counted."""
    contain()
    d = m.path
    subprocess.run("echo a >f; mv f g; cat g; echo b >>g; cp g h", shell=True, cwd=d, check=True,
                   stdout=subprocess.DEVNULL)
    assert get(os.path.join(d, "h")) == b"a\nb\n"
    _killed_writer(os.path.join(d, "half"))
    assert get(os.path.join(d, "half")) == b"half\n"
    writer = new_client()
    fd = writer.os.open(os.path.join(d, "draft"), os.O_WRONLY | os.O_CREAT)
    assert exists(os.path.join(d, "draft")), "another process of the same user sees the draft"
    writer.os.close(fd)
    writer.exit()
    assert m.counter("pid0_calls") > 0


def test_host_pid_namespace_is_the_cure(m, contain, new_client):
    """With the host's PID namespace the daemon in a container knows its callers as on the host."""
    contain(host_pid=True)
    _killed_writer(os.path.join(m.path, "half"))
    assert not exists(os.path.join(m.path, "half"))
    writer = new_client()
    fd = writer.os.open(os.path.join(m.path, "draft"), os.O_WRONLY | os.O_CREAT)
    assert not exists(os.path.join(m.path, "draft"))
    writer.os.close(fd)
    writer.exit()
    assert exists(os.path.join(m.path, "draft"))
    assert m.counter("pid0_calls") == 0


def test_one_state_directory_two_containers(m, new_mount, contain):
    """A state directory that a daemon in another container uses is refused by its path; the first goes on."""
    contain()
    put(os.path.join(m.path, "f"), b"x")
    other = new_mount()
    code, said = other.refuse(state=m.state)
    assert code == 1 and m.state in said and "in use" in said
    assert get(os.path.join(m.path, "f")) == b"x"


def test_read_only_root_with_state_on_a_volume(m):
    """Nothing is written but the volume: a container with a read-only root runs the daemon."""
    script = f"""
        for at in $(findmnt -rno TARGET -t ext4,xfs,btrfs,overlay,tmpfs | grep -v '^{m.base}'); do
            mount -o remount,ro,bind "$at" || :
        done
        ! touch /var/tmp/mcfs-probe 2>/dev/null
        exec {env.DAEMON} -f -o {m.option_text()} {m.path}"""
    with open(m.stderr, "ab") as out:
        c = Container(m.base, "sh", "-ec", script, output=out)
    try:
        wait_for(lambda: c.proc.poll() is not None or _answers(m), env.scaled(20), "the daemon is up")
        os.mkdir(os.path.join(m.path, "weights"))
        put(os.path.join(m.path, "weights", "w"), pattern(1, MIB))
        assert get(os.path.join(m.path, "weights", "w")) == pattern(1, MIB)
        assert c.stop() == 0
    finally:
        c.destroy()


# ---- rights ----

def _launch_with(m, *setpriv):
    env.require_tool("setpriv")
    return m.launch(["setpriv", *setpriv, env.DAEMON, "-o", m.option_text(), m.path])


def test_without_cap_sys_admin(new_mount):
    """Root without CAP_SYS_ADMIN: status 1, the capability named, nothing mounted."""
    m = new_mount()
    m.expect_errors("Operation not permitted")
    code, said = _launch_with(m, "--bounding-set=-sys_admin")
    assert code == 1
    assert "CAP_SYS_ADMIN is missing" in said and "Operation not permitted" in said
    assert mounts_below(m.base) == []


def test_without_cap_sys_ptrace(new_mount):
    """Without CAP_SYS_PTRACE it runs, and warns; a killed writer of another user publishes."""
    m = new_mount(allow_other=True)
    code, said = _launch_with(m, "--bounding-set=-sys_ptrace")
    assert code == 0, said
    m.attach()
    assert "CAP_SYS_PTRACE is missing" in said
    os.chmod(m.path, 0o1777)
    path = os.path.join(m.path, "half")
    subprocess.run(["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups",
                    "sh", "-c", f"exec 3>{path}; echo half >&3; kill -9 $$"])
    assert exists(path)


def test_few_capabilities_are_enough(new_mount):
    """The capabilities that the guide names are enough for passthrough, other users' files and killed writers."""
    m = new_mount(allow_other=True)
    with open(os.path.join(env.REPO, "docs", "containers.md")) as f:
        names = re.findall(r"`CAP_([A-Z_]+)`:", f.read())
    assert {"SYS_ADMIN", "SYS_PTRACE"} <= set(names)
    wanted = ",".join("+" + name.lower() for name in names)
    code, said = _launch_with(m, f"--bounding-set=-all,{wanted}")
    assert code == 0 and "missing" not in said, said
    m.attach()
    os.chmod(m.path, 0o1777)
    subprocess.run(["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "sh", "-ec", """
        umask 077; echo x >f; mkdir d; mv f d/f; sync d/f; cat d/f; chmod 400 d/f
        sh -c 'exec 3>half; echo half >&3; kill -9 $$' || :"""], cwd=m.path, check=True, capture_output=True)
    assert os.stat(os.path.join(m.path, "d/f")).st_uid == 1000
    assert sorted(os.listdir(m.path)) == ["d"]
    assert env.PASSTHROUGH == "off" or m.passthrough_live


def test_root_of_a_user_namespace_only(new_mount):
    """Rootless: it mounts for its own namespaces, reads by direct_io, and says so."""
    m = new_mount()
    script = f"""
        {env.DAEMON} -o {m.option_text()} {m.path}
        echo data >{m.path}/f; cat {m.path}/f; cat {m.path}/.mooncake/status.json; umount {m.path}"""
    done = subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child",
                           "sh", "-ec", script], capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd="/",
                          timeout=env.scaled(30))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("data\n")
    assert '"live": false' in done.stdout
    assert mounts_below(m.base) == []


def test_without_the_device(new_mount):
    """Without /dev/fuse: status 1, and the device named."""
    m = new_mount()
    m.expect_errors("cannot mount at")
    script = 'mount --bind "$0/empty" /dev; exec "$@"'
    os.mkdir(m.base + "/empty")
    code, said = m.launch(["unshare", "--mount", "sh", "-ec", script, m.base,
                           env.DAEMON, "-o", m.option_text(), m.path])
    assert code == 1 and "/dev/fuse" in said


# ---- memory ----

@pytest.mark.parametrize("limit", [64 * MIB, 250 * MIB])
def test_cgroup_limit_below_the_budget(new_mount, limit):
    """A memory limit smaller than the budget is refused, with both numbers and the cgroup."""
    m = new_mount(dram="256M")
    m.expect_errors("option dram=|cannot start on")
    with MemGroup(limit) as group:
        done = group.run(env.DAEMON, "-o", m.option_text(), m.path)
        said = done.stderr
        assert done.returncode == 1
        assert str(256 * MIB) in said and str(limit) in said and os.path.basename(group.path) in said
    assert not os.path.ismount(m.path)


def test_default_budget_follows_the_cgroup(new_mount):
    """Without dram= a daemon in a limited container takes a quarter of what the limit leaves."""
    m = new_mount(dram=None)
    with MemGroup(256 * MIB) as group:
        done = group.run(env.DAEMON, "-o", m.option_text(), m.path)
        assert done.returncode == 0, done.stderr
        m.attach()
        assert 32 * MIB <= m.tier()["budget_bytes"] <= 64 * MIB
        m.stop()


def test_budget_within_the_limit_is_safe_to_fill(new_mount):
    """dram= of 64 MiB in a container of 160 MiB: written over and over, evicted, never killed."""
    m = new_mount(dram="64M")
    with MemGroup(160 * MIB) as group:
        done = group.run(env.DAEMON, "-o", m.option_text(), m.path)
        assert done.returncode == 0, done.stderr
        m.attach()
        for i in range(40):
            put(os.path.join(m.path, f"f{i}"), bytes(8 * MIB))
        assert m.is_up and m.status()["pid"] == m.pid
        m.stop()


# ---- seccomp ----

def _deny_io_uring():
    """In a child: io_uring_setup is EPERM from here on, as under the default profiles of Docker and containerd."""
    load_nr, jump_eq, answer = 0x20, 0x15, 0x06
    code = [(load_nr, 0, 0, 0), (jump_eq, 0, 1, 425), (answer, 0, 0, 0x00050000 | 1), (answer, 0, 0, 0x7FFF0000)]
    program = b"".join(struct.pack("=HBBI", *c) for c in code)
    buffer = ctypes.create_string_buffer(program)
    fprog = struct.pack("@HP", len(code), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, ctypes.create_string_buffer(fprog), 0, 0):
        os._exit(99)


def test_seccomp_without_io_uring(new_mount):
    """Where seccomp denies io_uring the daemon works all the same: durable copies, and reads after a reboot."""
    m = new_mount()
    done = subprocess.run([env.DAEMON, "-o", m.option_text(), m.path], preexec_fn=_deny_io_uring,
                          capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=env.scaled(30))
    assert done.returncode == 0, done.stderr
    m.attach()
    os.mkdir(os.path.join(m.path, "weights"))
    path, data = os.path.join(m.path, "weights", "w"), pattern(1, 5 * MIB + 17)
    put(path, data)
    m.stop()
    done = subprocess.run([env.DAEMON, "-o", m.option_text(), m.path], preexec_fn=_deny_io_uring,
                          capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=env.scaled(30))
    assert done.returncode == 0, done.stderr
    m.attach()
    assert get(path) == data
