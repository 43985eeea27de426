// The npm package `ioredis` against servers at 127.0.0.1: AUTH_PORT PORT...
'use strict';

const assert = require('assert');
const Redis = require('ioredis');
const { BYTES, end, forEachPort, relay, runChecks, untilItWorks } = require('./redis_checks');

const [authPort, ...ports] = process.argv.slice(2);

const open = (port, protocol, options = {}) => {
  const client = new Redis({ port, protocol, retryStrategy: () => 10, ...options });
  return client.on('error', () => {}); // connections that end; commands fail on their own
};

const bytes = async (client) => {
  const key = BYTES.subarray(0, 250);
  assert.strictEqual(await client.set(key, BYTES), 'OK');
  assert.deepStrictEqual(await client.getBuffer(key), BYTES);
};

const pipeline = async (client) => {
  const replies = await client.pipeline()
    .set('word', 'word').incr('word').get('word').exec();
  assert.deepStrictEqual(replies[0], [null, 'OK']);
  assert.strictEqual(replies[1][0].name, 'ReplyError');
  assert.deepStrictEqual(replies[2], [null, 'word']);
};

const transactions = async (client) => {
  await client.set('balance', '10');
  const replies = await client.multi().incr('balance').get('balance').exec();
  assert.deepStrictEqual(replies, [[null, 11], [null, '11']]);
  await client.watch('balance');
  await client.set('balance', '20');
  assert.strictEqual(await client.multi().set('balance', '30').exec(), null);
  assert.strictEqual(await client.get('balance'), '20');
};

const reconnects = async (port, protocol) => {
  const { port: relayed, cut, close } = await relay(port);
  const client = open(relayed, protocol);
  await client.set('kept', 'v');
  cut();
  assert.strictEqual(await untilItWorks(() => client.get('kept')), 'v');
  client.disconnect();
  close();
};

const authentication = async (protocol) => {
  const named = open(authPort, protocol, { username: 'ann', password: 'secret' });
  assert.strictEqual(await named.set('k', 'v'), 'OK');
  const byDefault = open(authPort, protocol, { password: 'pass' });
  assert.strictEqual(await byDefault.get('k'), 'v');
  const wrong = { username: 'ann', password: 'wrong', retryStrategy: null };
  await assert.rejects(open(authPort, protocol, wrong).get('k'));
};

const main = async () => {
  for (const protocol of [2, 3]) {
    await forEachPort(ports, async (port) => {
      const client = open(port, protocol);
      const call = (...words) => client.call(...words);
      const isErrorOfServer = (error) => error.name === 'ReplyError';
      await runChecks(`${port} RESP${protocol}`, call, isErrorOfServer);
      await bytes(client);
      await pipeline(client);
      await transactions(client);
      await client.flushall();
      await reconnects(port, protocol);
      await client.quit();
    });
    await authentication(protocol);
  }
};

end(main());
