"""pylibmc (libmemcached) against the server at 127.0.0.1:PORT: text, or binary if argument 2 says so."""

import sys
import time

import pylibmc

ADDRESS = f"127.0.0.1:{sys.argv[1]}"
BINARY = sys.argv[2:] == ["binary"]
SIZES = (0, 1, 2, 100, 8_191, 8_192, 65_536, 1_000_000)


def connect(**behaviors):
    return pylibmc.Client([ADDRESS], binary=BINARY, behaviors=behaviors)


def values_of_every_size(client):
    for size in SIZES:
        value = (bytes(range(256)) * (size // 256 + 1))[:size]
        assert client.set(f"size{size}", value)
        assert client.get(f"size{size}") == value, size


def values_of_any_bytes(client):
    for value in (b"\r\nEND\r\n", b"\0\xff" * 50, bytes(range(256))):
        assert client.set("awkward", value)
        assert client.get("awkward") == value


def types_in_flags(client):
    for value in (7, 2.5, True, "é", [1, {"a": None}]):
        assert client.set("typed", value)
        assert client.get("typed") == value


def compression(client):
    value = b"abc" * 50_000
    assert client.set("packed", value, min_compress_len=100)
    assert client.get("packed") == value


def conditional_stores(client):
    try:
        assert not client.replace("cond", b"x")
    except pylibmc.NotFound:
        assert BINARY
    assert client.add("cond", b"m")
    assert not client.add("cond", b"n")
    assert client.append("cond", b"z")
    assert client.prepend("cond", b"a")
    assert client.get("cond") == b"amz"
    assert client.replace("cond", b"r")
    assert client.get("cond") == b"r"


def many_at_once(client):
    values = {f"many{n}": n for n in range(1_000)}
    assert client.set_multi(values) == []
    assert client.get_multi([*values, "nothing"]) == values
    assert client.delete_multi(list(values))
    assert client.get_multi(list(values)) == {}


def compare_and_set(client):
    client.set("cas", b"x")
    value, seen = client.gets("cas")
    assert value == b"x"
    assert client.cas("cas", b"y", seen)
    assert not client.cas("cas", b"z", seen)
    assert client.get("cas") == b"y"


def counters(client):
    client.set("n", 9)
    assert client.incr("n") == 10
    assert client.incr("n", 5) == 15
    assert client.decr("n", 14) == 1
    assert client.decr("n", 14) == 0
    try:
        client.incr("nothing")
    except pylibmc.NotFound:
        pass
    else:
        raise AssertionError("nothing was counted")


def deletion(client):
    client.set("del", b"x")
    assert client.delete("del")
    assert not client.delete("del")
    assert client.get("del") is None


def expiry(client):
    client.set("touched", b"x", time=1)
    # In the binary protocol libmemcached waits for some seconds after a touch.
    assert client.touch("touched", 1_000)
    assert not client.touch("nothing", 1)
    client.set("soon", b"x", time=1)
    assert client.get("soon") == b"x"
    time.sleep(2.1)
    assert client.get("soon") is None
    assert client.get("touched") == b"x"


def too_large(client):
    try:
        stored = client.set("large", b"x" * 2_000_000)
    except pylibmc.Error:
        stored = False
    assert not stored
    assert client.get("large") is None


def stores_without_waiting():
    client = connect(no_block=True, tcp_nodelay=True)
    for n in range(1_000):
        client.set(f"b{n}", str(n))
    assert client.get("b999") == "999"
    client.disconnect_all()


def administration(client):
    ((_, stats),) = client.get_stats()
    assert int(stats["curr_items"] if "curr_items" in stats else stats[b"curr_items"]) > 0
    client.set("gone", b"x")
    assert client.flush_all()
    assert client.get("gone") is None


def main():
    client = connect(tcp_nodelay=True, cas=True)
    for check in (
        values_of_every_size,
        values_of_any_bytes,
        types_in_flags,
        compression,
        conditional_stores,
        many_at_once,
        compare_and_set,
        counters,
        deletion,
        expiry,
        too_large,
        administration,
    ):
        print(check.__name__, flush=True)
        check(client)
    print("stores_without_waiting", flush=True)
    stores_without_waiting()


main()
