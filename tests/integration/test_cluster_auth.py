# SPDX-License-Identifier: Apache-2.0
"""Who may join: keys, clusters, passwords, and options that say nonsense."""
import os
import socket

import pytest

from harness import env
from harness.cluster import HOST, seconds_until, timed, write_key
from harness.content import exists, get, pattern, peek, put
from harness.redis import RedisServer
from harness.relay import Relay

pytestmark = [pytest.mark.mooncake, pytest.mark.one_mode]


@pytest.fixture
def key(tmp_path):
    return write_key(str(tmp_path / "key"))


@pytest.fixture
def refusing(new_mount):
    """A function: starts a node with these options, which must refuse. Returns (exit status, what it said)."""
    def refuse(**options):
        m = new_mount(node="a", **options)
        m.expect_errors(".")
        took, (code, said) = timed(lambda: m.refuse())
        assert took < env.scaled(10) and not os.path.ismount(m.path)
        return code, said

    return refuse


def test_nodes_with_one_key(new_cluster, key):
    """They read from each other as without."""
    c = new_cluster(3, dram="64M", key=key).start()
    put(c[0].at("f"), pattern(1, 2 * env.MIB))
    c.wait_everywhere("f", pattern(1, 2 * env.MIB))


@pytest.mark.parametrize("with_key", ["another key", "no key"])
def test_a_node_with_another_key_gets_no_bytes(new_cluster, tmp_path, key, with_key):
    """Its reads of others' files fail in bounded time and status says why; the others go on as before."""
    c = new_cluster(2, dram="64M", key=key)
    other = c.add("other", key=write_key(str(tmp_path / "other")) if with_key == "another key" else None)
    c.start().expect_errors("key|peer|HELLO|hello|fetch")
    put(c[0].at("f"), pattern(1, 100000))
    put(other.at("g"), pattern(2, 100000))
    seconds_until(lambda: exists(other.at("f")), 5, "the name, which the directory tells")
    took, got = timed(get, other.at("f"))
    print(f"refused after {took * 1000:.1f} ms: {got}")
    assert isinstance(got, OSError) and took < env.scaled(10)
    took, got = timed(get, c[0].at("g"))
    assert isinstance(got, OSError) and took < env.scaled(10)
    reasons = [p["reason"] for p in other.cluster()["peers"] if p["state"] != "up"]
    print("reasons:", reasons)
    assert any("key" in r or "auth" in r.lower() for r in reasons)
    assert get(c[1].at("f")) == pattern(1, 100000)
    put(c[1].at("h"), b"h")
    seconds_until(lambda: peek(c[0].at("h")) == b"h", 5, "the others go on")


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0"])
def test_no_node_listens_to_the_world_without_a_key(refusing, listen):
    """It refuses to start, and names the option and the key."""
    code, said = refusing(listen=listen, directory="redis://127.0.0.1:1")
    print(code, said)
    assert code in (1, 2) and "key" in said and "listen" in said


def test_a_node_that_listens_to_the_world_with_a_key(new_cluster, key):
    """It starts, and others reach it where it says that it is."""
    c = new_cluster(2, dram="64M", key=key)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    c[0].options.update(listen=f"0.0.0.0:{port}", advertise=f"127.0.0.1:{port}")
    c.start()
    assert c[0].address == f"127.0.0.1:{port}"
    put(c[0].at("f"), pattern(1, 100000))
    c.wait_everywhere("f", pattern(1, 100000))


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_key_that_others_can_read(refusing, tmp_path, mode):
    """It is none: the path is named."""
    path = write_key(str(tmp_path / "key"), mode=mode)
    code, said = refusing(listen="127.0.0.1:0", directory="redis://127.0.0.1:1", key=path)
    assert code in (1, 2) and path in said


@pytest.mark.parametrize("digits", ["", "ab", "a" * 63, "a" * 65, "g" * 64, "a" * 32 + " " + "a" * 32, "\0" * 64],
                         ids=["empty", "short", "63", "65", "no hex", "in two", "zeros"])
def test_a_key_file_with_something_else(refusing, tmp_path, digits):
    """The path is named, its content is not told."""
    path = write_key(str(tmp_path / "key"), digits)
    code, said = refusing(listen="127.0.0.1:0", directory="redis://127.0.0.1:1", key=path)
    assert code in (1, 2) and path in said
    assert len(digits) < 60 or digits not in said


def test_a_key_file_that_is_not_there(refusing, tmp_path):
    code, said = refusing(listen="127.0.0.1:0", directory="redis://127.0.0.1:1", key=str(tmp_path / "none"))
    assert code in (1, 2) and str(tmp_path / "none") in said and "No such file" in said


@pytest.mark.parametrize("option, value", [
    ("listen", "127.0.0.1"), ("listen", "127.0.0.1:70000"), ("listen", ":"), ("listen", "::1:80"),
    ("advertise", "nonsense"), ("directory", "http://127.0.0.1:6379"), ("directory", "redis://"),
    ("directory", "redis://127.0.0.1:x"), ("transport", "pigeon"), ("cluster", "a b"), ("cluster", "c" * 64)])
def test_options_that_say_nonsense(refusing, option, value):
    """Exit status 2, and the option is named."""
    options = {"listen": "127.0.0.1:0", "directory": "redis://127.0.0.1:1", option: value}
    code, said = refusing(**options)
    print(code, said)
    assert code == 2 and f"option {option}=" in said


def test_a_port_that_is_taken(refusing):
    """The address is named, and why."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        address = f"127.0.0.1:{s.getsockname()[1]}"
        code, said = refusing(listen=address, directory="redis://127.0.0.1:1")
    assert code == 1 and address in said and "in use" in said


def test_two_clusters_on_one_server(new_cluster):
    """They share no name, no node and no byte."""
    server = RedisServer(HOST).start()
    try:
        one = new_cluster(2, server=server, cluster="one", dram="64M").start()
        two = new_cluster(2, server=server, names="xy", cluster="two", dram="64M").start()
        put(one[0].at("f"), b"one")
        put(two[0].at("g"), b"two")
        one.wait_everywhere("f", b"one")
        two.wait_everywhere("g", b"two")
        assert all(os.listdir(n.path) == ["f"] and peek(n.at("g")) is None for n in one)
        assert all(os.listdir(n.path) == ["g"] and peek(n.at("f")) is None for n in two)
        assert one[0].node_names() == ["a", "b"] and two[0].node_names() == ["x", "y"]
        assert not {p["name"] for p in one[1].cluster()["peers"]} & {"x", "y"}
        for c in (one, two):
            for n in c:
                n.stop()
    finally:
        server.destroy()


def test_the_directory_wants_a_password(new_cluster):
    """With it nodes find each other; with another one or none a node runs alone, says why, and tells it nobody."""
    c = new_cluster(2, server=RedisServer(HOST, password="secret"), dram="64M")
    c.owns_server = True
    c.start()
    put(c[0].at("f"), b"x")
    c.wait_everywhere("f", b"x")
    url = c.server.url
    for name, url in (("wrong", url.replace("secret", "s3cret")), ("none", url.replace(":secret@", ""))):
        alone = c.add(name, directory=url)
        alone.expect_errors("directory")
        alone.start()
        put(alone.at("g"), b"y")
        assert get(alone.at("g")) == b"y" and peek(alone.at("f")) is None
        seconds_until(lambda: alone.cluster()["directory"]["reason"], 5, "the reason")
        directory = alone.cluster()["directory"]
        print("reason:", directory["reason"])
        assert not directory["up"]
        assert "s3cret" not in str(alone.status()) + alone.log_tail(1000)
    assert "secret" not in str(c[0].status()) + c[0].log_tail(1000)


def test_a_replayed_hello(new_cluster, key):
    """What a node once said to another opens no door: said again by a stranger, the connection ends, and nothing of
    a file comes over it."""
    relay = Relay(HOST)
    try:
        c = new_cluster(2, dram="64M", key=key)
        c[0].behind(relay)
        c.start()
        c.expect_errors("HELLO|hello|peer|key")
        put(c[0].at("f"), pattern(1, 100000))
        c.wait_everywhere("f", pattern(1, 100000))
        said = relay.first_bytes()
        assert said
        host, port = c[0].options["listen"].rsplit(":", 1)
        with socket.create_connection((host.strip("[]"), int(port)), timeout=env.scaled(15)) as s:
            took, got = timed(_hear_all, s, said)
        print(f"{len(said)} bytes replayed, {len(got)} bytes heard, closed after {took:.1f} s")
        assert len(got) < 4096
        put(c[0].at("g"), b"g")
        seconds_until(lambda: peek(c[1].at("g")) == b"g", 5, "peers go on")
    finally:
        relay.destroy()


def _hear_all(s, text):
    """Says text, then hears until the other end closes."""
    heard = b""
    try:
        s.sendall(text)
        while True:
            data = s.recv(65536)
            if not data:
                break
            heard += data
    except (ConnectionResetError, BrokenPipeError):
        pass
    return heard
