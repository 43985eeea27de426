// What the clients of Redis for Node.js check alike.
'use strict';

const assert = require('assert');
const net = require('net');

const BYTES = Buffer.from([...Array(256).keys(), 13, 10, 36, 45, 49, 13, 10]);

// A relay to a port; `cut` closes the connections through it.
const relay = async (port) => {
  const sockets = new Set();
  const server = net.createServer((near) => {
    const far = net.connect(port, '127.0.0.1');
    for (const [from, to] of [[near, far], [far, near]]) {
      sockets.add(from);
      from.on('error', () => to.destroy());
      from.on('close', () => to.destroy());
      from.pipe(to);
    }
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const cut = () => {
    sockets.forEach((socket) => socket.destroy());
    sockets.clear();
  };
  return { port: server.address().port, cut, close: () => (cut(), server.close()) };
};

// `call(word, ...)` sends a request; its reply has strings.
const checks = {
  async values(call) {
    for (const size of [0, 1, 16384, 1000000]) {
      const value = 'x'.repeat(size);
      assert.strictEqual(await call('SET', 'size', value), 'OK');
      assert.strictEqual(await call('GET', 'size'), value);
    }
    assert.strictEqual(await call('GET', 'nothing'), null);
    assert.strictEqual(await call('APPEND', 'é', 'ü'), 2);
    assert.strictEqual(await call('GET', 'é'), 'ü');
  },

  async counters(call) {
    assert.strictEqual(await call('INCR', 'n'), 1);
    assert.strictEqual(await call('DECRBY', 'n', '43'), -42);
    assert.strictEqual(await call('GET', 'n'), '-42');
  },

  async expiry(call) {
    assert.strictEqual(await call('SET', 'e', 'x', 'PX', '100000'), 'OK');
    assert((await call('PTTL', 'e')) > 90000);
    assert.strictEqual(await call('PERSIST', 'e'), 1);
    assert.strictEqual(await call('TTL', 'e'), -1);
    assert.strictEqual(await call('EXPIRE', 'e', '-1'), 1);
    assert.strictEqual(await call('EXISTS', 'e'), 0);
  },

  // Everything that is sent at once leaves as one pipeline.
  async pipelines(call) {
    const replies = await Promise.all([...Array(500).keys()].flatMap((n) => [
      call('SET', `p${n}`, `${n}`),
      call('INCR', `p${n}`),
      call('MGET', `p${n}`, 'nothing'),
    ]));
    const expected = [...Array(500).keys()].flatMap((n) => ['OK', n + 1, [`${n + 1}`, null]]);
    assert.deepStrictEqual(replies, expected);
  },

  async scripts(call) {
    const script = "return {redis.call('INCR', KEYS[1]), ARGV[1], #ARGV}";
    assert.strictEqual(await call('SET', 'n', '6'), 'OK');
    assert.deepStrictEqual(await call('EVAL', script, '1', 'n', 'a', 'b'), [7, 'a', 2]);
    const digest = await call('SCRIPT', 'LOAD', script);
    assert.deepStrictEqual(await call('EVALSHA', digest, '1', 'n', 'ü'), [8, 'ü', 1]);
  },

  async errors(call, isErrorOfServer) {
    const fails = (text, ...words) => assert.rejects(call(...words), (error) => {
      assert(isErrorOfServer(error), error);
      assert(error.message.includes(text), error.message);
      return true;
    });
    await call('SET', 'word', 'word');
    await Promise.all([
      fails('not an integer', 'INCR', 'word'),
      fails("unknown command 'NOSUCH'", 'NOSUCH', 'a'),
      fails('wrong number of arguments', 'GET'),
      fails('syntax error', 'SET', 'k', 'v', 'FOO'),
    ]);
    assert.strictEqual(await call('GET', 'word'), 'word');
  },
};

// Runs `run(port)` for each port, one after the other. Fails if one fails.
const forEachPort = async (ports, run) => {
  for (const port of ports) {
    await run(Number(port));
  }
};

const runChecks = async (name, call, isErrorOfServer) => {
  for (const [check, run] of Object.entries(checks)) {
    console.log(name, check);
    await run(call, isErrorOfServer);
  }
};

// Tries until a call succeeds; requests that were under way may fail with the connection.
const untilItWorks = async (call) => {
  for (let left = 200; ; left -= 1) {
    try {
      return await call();
    } catch (error) {
      if (left === 0) throw error;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }
};

const end = (promise) => promise.then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});

module.exports = { BYTES, end, forEachPort, relay, runChecks, untilItWorks };
