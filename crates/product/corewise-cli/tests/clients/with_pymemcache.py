"""pymemcache, alone and pooled, against the server at 127.0.0.1:PORT."""

import sys
import threading
import time

from pymemcache.client.base import Client, PooledClient
from pymemcache.exceptions import MemcacheClientError, MemcacheServerError
from pymemcache.serde import pickle_serde

ADDRESS = ("127.0.0.1", int(sys.argv[1]))
SIZES = (0, 1, 2, 100, 4_095, 4_096, 65_536, 1_000_000)
AWKWARD = (b"\r\nEND\r\n", b"\0\xff" * 50, b"STORED\r\n", bytes(range(256)))


def values_of_every_size(client):
    for size in SIZES:
        value = (bytes(range(256)) * (size // 256 + 1))[:size]
        assert client.set(f"size{size}", value, noreply=False)
        assert client.get(f"size{size}") == value, size


def values_of_any_bytes(client):
    for n, value in enumerate(AWKWARD):
        assert client.set(f"awkward{n}", value, noreply=False)
        assert client.get(f"awkward{n}") == value


def conditional_stores(client):
    assert client.replace("cond", "x", noreply=False) is False
    assert client.add("cond", "x", noreply=False) is True
    assert client.add("cond", "y", noreply=False) is False
    assert client.replace("cond", "m", noreply=False) is True
    assert client.append("cond", "z", noreply=False) is True
    assert client.prepend("cond", "a", noreply=False) is True
    assert client.append("nothing", "z", noreply=False) is False
    assert client.get("cond") == b"amz"


def many_at_once(client):
    values = {f"many{n}": str(n).encode() for n in range(1_000)}
    assert client.set_many(values, noreply=False) == []
    assert client.get_many([*values, "nothing"]) == values
    assert len(client.gets_many(list(values))) == 1_000
    assert client.delete_many(list(values), noreply=False)
    assert client.get_many(list(values)) == {}


def compare_and_set(client):
    assert client.cas("cas", "x", "1", noreply=False) is None
    client.set("cas", "x", noreply=False)
    value, seen = client.gets("cas")
    assert value == b"x"
    assert client.cas("cas", "y", seen, noreply=False) is True
    assert client.cas("cas", "z", seen, noreply=False) is False
    assert client.get("cas") == b"y"


def counters(client):
    assert client.incr("n", 1) is None
    client.set("n", "9", noreply=False)
    assert client.incr("n", 1) == 10
    assert client.decr("n", 4) == 6
    assert client.decr("n", 100) == 0
    client.set("n", str(2**64 - 1), noreply=False)
    assert client.incr("n", 2) == 1
    client.set("n", "word", noreply=False)
    try:
        client.incr("n", 1)
    except MemcacheClientError as error:
        assert "non-numeric" in str(error)
    else:
        raise AssertionError("a word was counted")


def deletion(client):
    client.set("del", "x", noreply=False)
    assert client.delete("del", noreply=False) is True
    assert client.delete("del", noreply=False) is False
    assert client.get("del") is None


def expiry(client):
    client.set("soon", "x", expire=1, noreply=False)
    client.set("touched", "x", expire=1, noreply=False)
    client.set("later", "x", expire=1_000, noreply=False)
    assert client.touch("touched", 1_000, noreply=False) is True
    assert client.touch("nothing", 1, noreply=False) is False
    assert raw(client, "gat 1000 later", b"END\r\n").endswith(b"1\r\nx\r\n")
    assert client.get("soon") == b"x"
    time.sleep(2.1)
    assert client.get("soon") is None
    assert client.get("touched") == b"x"
    assert client.get("later") == b"x"
    client.set("never", "x", expire=-1, noreply=False)
    assert client.get("never") is None


def flags_carry_types():
    client = Client(ADDRESS, serde=pickle_serde)
    for value in (7, "é", b"\0", [1, {"a": None}], 2.5):
        client.set("typed", value, noreply=False)
        assert client.get("typed") == value
    assert client.set("flagged", b"x", flags=2**32 - 1, noreply=False)
    assert b"VALUE flagged 4294967295 1" in raw(client, "get flagged", b"END\r\n")
    client.close()


def raw(client, command, end):
    return client.raw_command(command, end_tokens=end)


def meta_commands(client):
    assert raw(client, "mn", b"\r\n") == b"MN"
    assert raw(client, "ms meta 2 T100 F7\r\nhi", b"\r\n") == b"HD"
    assert raw(client, "mg meta s t f v", b"hi\r\n") == b"VA 2 s2 t100 f7\r\n"
    # Several in one write.
    pipeline = "mg meta k q\r\nmg nothing k q\r\nmd meta q\r\nma count N0 J5 v\r\nmn"
    assert raw(client, pipeline, b"MN\r\n") == b"HD kmeta\r\nVA 1\r\n5\r\n"


def too_large(client):
    try:
        client.set("large", b"x" * 2_000_000, noreply=False)
    except MemcacheServerError as error:
        assert "too large" in str(error)
    else:
        raise AssertionError("two megabytes were stored")
    assert client.get("large") is None


def administration(client):
    assert client.version()
    stats = client.stats()
    assert stats[b"curr_items"] > 0 and stats[b"threads"] == 2
    assert client.stats("settings")[b"maxconns"] == 1_024
    assert client.cache_memlimit(64)
    client.set("gone", "x", noreply=False)
    assert client.flush_all(noreply=False)
    assert client.get("gone") is None


def silence(client):
    """Everything with noreply: nothing must be left on the wire."""
    client.set("q", "1", noreply=True)
    client.add("q", "2", noreply=True)
    client.append("q", "3", noreply=True)
    client.incr("q", 1, noreply=True)
    client.touch("q", 100, noreply=True)
    client.delete("nothing", noreply=True)
    assert client.get("q") == b"14"


def pooled_clients_in_threads():
    pool = PooledClient(ADDRESS, max_pool_size=4)
    failures = []

    def work(name):
        try:
            for n in range(200):
                pool.set(f"{name}{n}", str(n), noreply=False)
                assert pool.get(f"{name}{n}") == str(n).encode()
        except Exception as error:  # shown by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f"t{n}-",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    pool.close()


def main():
    client = Client(ADDRESS, timeout=20, connect_timeout=20)
    for check in (
        values_of_every_size,
        values_of_any_bytes,
        conditional_stores,
        many_at_once,
        compare_and_set,
        counters,
        deletion,
        expiry,
        meta_commands,
        too_large,
        silence,
        administration,
    ):
        print(check.__name__, flush=True)
        check(client)
    client.close()
    for check in (flags_carry_types, pooled_clients_in_threads):
        print(check.__name__, flush=True)
        check()


main()
