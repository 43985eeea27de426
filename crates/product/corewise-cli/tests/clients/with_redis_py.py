"""redis-py against servers at 127.0.0.1. The one at AUTH_PORT asks for a password.

Usage: with_redis_py.py AUTH_PORT PORT...
"""

import sys
import threading

import redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,
    LockNotOwnedError,
    NoScriptError,
    ResponseError,
    WatchError,
)
from redis.retry import Retry

SIZES = (0, 1, 100, 16_384, 65_536, 1_000_000)
AWKWARD = (b"\r\n$-1\r\n", b"\0\xff" * 50, b"", bytes(range(256)), b"*3\r\n$3\r\nSET")


def connect(port, protocol, **options):
    retry = Retry(NoBackoff(), 1)
    return redis.Redis(port=port, protocol=protocol, retry=retry, socket_timeout=20, **options)


def fails(error, text, call, *args, **options):
    try:
        call(*args, **options)
    except error as raised:
        assert text in str(raised), raised
    else:
        raise AssertionError(f"no error that says {text!r}")


def values_of_every_size(client):
    for size in SIZES:
        value = (bytes(range(256)) * (size // 256 + 1))[:size]
        assert client.set(f"size{size}", value) is True
        assert client.get(f"size{size}") == value, size
        assert client.strlen(f"size{size}") == size


def keys_and_values_of_any_bytes(client):
    for awkward in AWKWARD:
        key = awkward[:250]
        assert client.set(key, awkward) is True
        assert client.get(key) == awkward
        assert key in client.scan_iter(count=1_000)
        assert client.delete(key) == 1


def conditional_stores(client):
    assert client.set("cond", "x", xx=True) is None
    assert client.set("cond", "x", nx=True) is True
    assert client.set("cond", "y", nx=True) is None
    assert client.set("cond", "y", get=True) == b"x"
    assert client.setnx("cond", "z") is False
    assert client.getset("cond", "z") == b"y"
    assert client.append("cond", "ab") == 3
    assert client.setrange("cond", 1, "Q") == 3
    assert client.getrange("cond", 0, -1) == b"zQb"
    assert client.getdel("cond") == b"zQb"
    assert client.exists("cond") == 0


def counters(client):
    assert client.incr("n") == 1
    assert client.incrby("n", 41) == 42
    assert client.decr("n", 50) == -8
    assert client.get("n") == b"-8"
    client.set("word", "word")
    fails(ResponseError, "not an integer", client.incr, "word")


def expiry(client):
    client.set("e", "x", px=100_000)
    assert 99 < client.pttl("e") <= 100_000
    assert client.expire("e", 1_000) is True
    assert client.expire("nothing", 1_000) is False
    assert 990 < client.ttl("e") <= 1_000
    assert client.persist("e") is True
    assert client.ttl("e") == -1 and client.ttl("nothing") == -2
    client.expireat("e", 4_102_444_800)
    assert client.expiretime("e") == 4_102_444_800
    assert client.getex("e", persist=True) == b"x"
    client.set("gone", "x", pxat=1)
    assert client.get("gone") is None
    client.expire("e", -1)
    assert client.get("e") is None


def pipelines(client):
    pipeline = client.pipeline(transaction=False)
    for n in range(500):
        pipeline.set(f"p{n}", n).get(f"p{n}").incr(f"p{n}").mget(f"p{n}", "nothing")
    replies = pipeline.execute()
    expected = [[True, b"%d" % n, n + 1, [b"%d" % (n + 1), None]] for n in range(500)]
    assert replies == sum(expected, [])
    assert client.delete(*[f"p{n}" for n in range(500)]) == 500


def errors_in_a_pipeline(client):
    client.set("word", "word")
    pipeline = client.pipeline(transaction=False)
    pipeline.incr("word").get("word").execute_command("NOSUCH", "a").set("word", "v")
    first, second, third, fourth = pipeline.execute(raise_on_error=False)
    assert isinstance(first, ResponseError) and "not an integer" in str(first)
    assert second == b"word"
    assert isinstance(third, ResponseError) and "unknown command" in str(third)
    assert fourth is True


def errors_are_exceptions(client):
    fails(ResponseError, "unknown command 'NOSUCH'", client.execute_command, "NOSUCH", "a")
    fails(ResponseError, "wrong number of arguments", client.execute_command, "GET")
    fails(ResponseError, "syntax error", client.execute_command, "SET", "k", "v", "FOO")
    fails(ResponseError, "invalid expire time", client.set, "k", "v", ex=0)
    fails(ResponseError, "maximum size of an item", client.set, "large", b"x" * 1_500_000)
    assert client.get("large") is None


def administration(client):
    assert client.ping() is True
    assert client.echo("hi") == b"hi"
    assert client.dbsize() > 0
    assert client.info()["redis_mode"] == "standalone"
    assert int(client.config_get("maxmemory")["maxmemory"]) > 0
    assert client.client_setname("tester") is True
    assert client.client_getname() in (b"tester", "tester")
    assert client.flushall() is True
    assert client.dbsize() == 0


def reconnects_after_the_server_has_closed(client):
    client.set("kept", "v")
    client.execute_command("QUIT")
    assert client.get("kept") == b"v"


def add_one(pipeline):
    pipeline.multi()  # before it, requests are executed at once
    pipeline.incr("balance")


def transactions(client):
    client.set("balance", 10)
    replies = client.pipeline().incr("balance").get("balance").execute()
    assert replies == [11, b"11"]
    with client.pipeline() as pipeline:
        pipeline.watch("balance")
        client.set("balance", 20)
        pipeline.multi()
        pipeline.set("balance", 30)
        fails(WatchError, "", pipeline.execute)
    assert client.get("balance") == b"20"
    assert client.transaction(add_one, "balance") == [21]


INCREMENT = """
local n = tonumber(redis.call('GET', KEYS[1]) or 0) + ARGV[1]
redis.call('SET', KEYS[1], n)
return {n, redis.status_reply('FINE'), cjson.encode({n = n}), false}
"""


def scripts(client):
    client.delete("n")
    assert client.eval(INCREMENT, 1, "n", 5) == [5, b"FINE", b'{"n":5}', None]
    increment = client.register_script(INCREMENT)
    assert client.script_exists(increment.sha) == [True]
    assert client.script_flush() is True
    fails(NoScriptError, "", client.evalsha, increment.sha, 1, "n", 5)
    # It is loaded when it is not there.
    assert increment(keys=["n"], args=[2])[0] == 7
    pipeline = client.pipeline()
    increment(keys=["n"], args=[1], client=pipeline)
    pipeline.get("n")
    assert pipeline.execute() == [[8, b"FINE", b'{"n":8}', None], b"8"]
    assert client.eval_ro("return redis.call('GET', KEYS[1])", 1, "n") == b"8"
    fails(ResponseError, "read-only", client.eval_ro, "return redis.call('DEL', KEYS[1])", 1, "n")
    fails(ResponseError, "BROKEN by hand", client.eval, "return {err = 'BROKEN by hand'}", 0)


def locks(client):
    lock = client.lock("lock", timeout=100)
    assert lock.acquire(blocking=False) is True
    other = client.lock("lock", timeout=100)
    assert other.acquire(blocking=False) is False
    assert lock.owned() and not other.owned() and lock.locked()
    assert 99_000 < client.pttl("lock") <= 100_000
    assert lock.extend(100) is True
    assert 190_000 < client.pttl("lock") <= 200_000
    assert lock.extend(50, replace_ttl=True) is True
    assert 40_000 < client.pttl("lock") <= 50_000
    assert lock.reacquire() is True
    assert 90_000 < client.pttl("lock") <= 100_000
    client.set("lock", "of another client")
    fails(LockNotOwnedError, "", lock.extend, 100)
    fails(LockNotOwnedError, "", lock.reacquire)
    client.set("lock", "of another client")
    fails(LockNotOwnedError, "", client.lock("lock").do_release, b"no token")
    assert client.get("lock") == b"of another client"
    client.delete("lock")
    assert other.acquire(blocking=False) is True
    other.release()
    assert client.exists("lock") == 0


def a_lock_excludes_other_threads(client):
    client.set("n", 0)

    def increment():
        for _ in range(20):
            with client.lock("lock", timeout=100, sleep=0.001):
                client.set("n", int(client.get("n")) + 1)

    threads = [threading.Thread(target=increment) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.get("n") == b"80"


def authentication(port, protocol):
    fails(AuthenticationError, "", connect(port, protocol).get, "k")
    wrong = connect(port, protocol, username="ann", password="wrong")
    fails(AuthenticationError, "invalid username-password", wrong.get, "k")
    named = connect(port, protocol, username="ann", password="secret")
    assert named.set("k", "v") is True
    assert connect(port, protocol, password="pass").get("k") == b"v"


CHECKS = (
    values_of_every_size,
    keys_and_values_of_any_bytes,
    conditional_stores,
    counters,
    expiry,
    pipelines,
    errors_in_a_pipeline,
    errors_are_exceptions,
    reconnects_after_the_server_has_closed,
    transactions,
    scripts,
    locks,
    a_lock_excludes_other_threads,
    administration,
)


def main():
    auth_port, *ports = map(int, sys.argv[1:])
    for protocol in (2, 3):
        for port in ports:
            client = connect(port, protocol)
            for check in CHECKS:
                print(port, protocol, check.__name__, flush=True)
                check(client)
            client.close()
        print("authentication", protocol, flush=True)
        authentication(auth_port, protocol)
    fails(ConnectionError, "", connect(1, 3).ping)


main()
