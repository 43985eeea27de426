#!/usr/bin/env python3
"""Prints what a redis-server with RedisBloom answers to random calls: `record-redisbloom.py HOST PORT`."""

import random
import socket
import sys


class Client:
    def __init__(self, host, port):
        self.socket = socket.create_connection((host, port))
        self.replies = self.socket.makefile("rb")

    def __call__(self, *words):
        words = [str(word).encode() for word in words]
        request = b"*%d\r\n" % len(words)
        self.socket.sendall(request + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))
        return self.read()

    def read(self):
        line = self.replies.readline()[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return "-" + rest.decode()
        if kind == b":" or int(rest) < 0:
            return int(rest) if kind == b":" else None
        if kind == b"$":
            return self.replies.read(int(rest) + 2)[:-2]
        return [self.read() for _ in range(int(rest))]


call = Client(sys.argv[1], int(sys.argv[2]))
KEY = "record-redisbloom"


def reply(value):
    if isinstance(value, int):
        return value
    known = {"full": "full", "expansions": "max", "ot found": 0}
    return next(word for text, word in known.items() if text in value)


line = ""


def say(*words):
    """Prints an answer, on the line of the one before if there is room."""
    global line
    text = " ".join(map(str, words))
    is_long = words[0] in ("reserve", "info", "dump")
    if line and (is_long or len(line) + 2 + len(text) > 100):
        print(line)
        line = ""
    if is_long:
        print(text)
    else:
        line += f"; {text}" if line else text


def dump():
    info = call("CF.INFO", KEY)
    say("info", *info[1::2])
    iterator, header = call("CF.SCANDUMP", KEY, 0)
    slots = b""
    while iterator:
        iterator, chunk = call("CF.SCANDUMP", KEY, iterator)
        slots += chunk or b""
    say("dump", header.hex() if header else "-", slots.hex() or "-")


def sequence(seed, settings, calls, items, phases, every):
    choose = random.Random(seed)
    call("DEL", KEY)
    capacity, size, iterations, expansion = settings
    options = ("BUCKETSIZE", size, "MAXITERATIONS", iterations, "EXPANSION", expansion)
    assert call("CF.RESERVE", KEY, capacity, *options) == "OK"
    say("reserve", *settings)
    names = ["add", "addnx", "del", "count", "exists", "compact"]
    for done in range(calls):
        weights = phases[done * len(phases) // calls]
        name, item = choose.choices(names, weights)[0], choose.randrange(items)
        if name == "compact":
            assert call("CF.COMPACT", KEY) == "OK"
            say(name)
        else:
            say(name, item, reply(call("CF." + name, KEY, str(item) * (item % 4 + 1))))
        if done % every == every - 1:
            dump()
    dump()


GROW, SHRINK = [10, 2, 2, 1, 1, 0], [2, 0, 10, 1, 1, 0.1]
sequence(1, (64, 2, 20, 1), 1200, 400, [GROW, SHRINK, GROW, SHRINK], 200)
sequence(2, (16, 1, 5, 2), 1200, 500, [GROW, SHRINK, GROW, SHRINK], 200)
sequence(3, (32, 4, 50, 0), 500, 300, [GROW, SHRINK], 100)
sequence(4, (50, 3, 20, 4), 1000, 700, [GROW, SHRINK, GROW], 250)
sequence(5, (4, 2, 1, 1), 700, 200, [GROW, GROW, SHRINK, GROW], 100)
sequence(6, (510, 255, 20, 1), 900, 4000, [GROW, GROW, SHRINK], 300)
sequence(7, (8, 2, 500, 1), 600, 150, [GROW, SHRINK], 100)
