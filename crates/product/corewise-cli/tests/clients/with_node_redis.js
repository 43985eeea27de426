// The npm package `redis` against servers at 127.0.0.1: AUTH_PORT PORT...
'use strict';

const assert = require('assert');
const { createClient, ErrorReply, RESP_TYPES, WatchError } = require('redis');
const { BYTES, end, forEachPort, relay, runChecks, untilItWorks } = require('./redis_checks');

const [authPort, ...ports] = process.argv.slice(2);

const open = async (port, RESP, options = {}) => {
  const socket = { port: Number(port), host: '127.0.0.1', reconnectStrategy: 10 };
  const client = createClient({ socket, RESP, ...options });
  client.on('error', () => {}); // connections that end; commands fail on their own
  return client.connect();
};

const bytes = async (client) => {
  const binary = client.withTypeMapping({ [RESP_TYPES.BLOB_STRING]: Buffer });
  const key = BYTES.subarray(0, 250);
  assert.strictEqual(await client.set(key, BYTES), 'OK');
  assert.deepStrictEqual(await binary.get(key), BYTES);
  assert.strictEqual(await client.del(key), 1);
};

const typed = async (client) => {
  await client.set('typed', '1', { expiration: { type: 'EX', value: 100 } });
  assert.strictEqual(await client.incrBy('typed', 2), 3);
  assert.deepStrictEqual(await client.mGet(['typed', 'nothing']), ['3', null]);
  assert.strictEqual(await client.expire('typed', 1000, 'GT'), 1);
  const config = await client.configGet('maxmemory');
  assert(Number(config.maxmemory) > 0);
  const keys = [];
  for await (const found of client.scanIterator({ MATCH: 'type*' })) keys.push(...found);
  assert.deepStrictEqual(keys, ['typed']);
};

const transactions = async (client) => {
  await client.set('balance', '10');
  assert.deepStrictEqual(await client.multi().incr('balance').get('balance').exec(), [11, '11']);
  await client.watch('balance');
  await client.set('balance', '20');
  await assert.rejects(client.multi().set('balance', '30').exec(), WatchError);
  assert.strictEqual(await client.get('balance'), '20');
};

const reconnects = async (port, RESP) => {
  const { port: relayed, cut, close } = await relay(port);
  const client = await open(relayed, RESP);
  await client.set('kept', 'v');
  cut();
  assert.strictEqual(await untilItWorks(() => client.get('kept')), 'v');
  client.destroy();
  close();
};

const authentication = async (RESP) => {
  const named = await open(authPort, RESP, { username: 'ann', password: 'secret' });
  assert.strictEqual(await named.set('k', 'v'), 'OK');
  const byDefault = await open(authPort, RESP, { password: 'pass' });
  assert.strictEqual(await byDefault.get('k'), 'v');
  const wrong = { username: 'ann', password: 'wrong' };
  const socket = { port: Number(authPort), host: '127.0.0.1', reconnectStrategy: false };
  const refused = createClient({ socket, RESP, ...wrong }).on('error', () => {});
  await assert.rejects(refused.connect(), /WRONGPASS/);
};

const main = async () => {
  for (const RESP of [2, 3]) {
    await forEachPort(ports, async (port) => {
      const client = await open(port, RESP);
      const call = (...words) => client.sendCommand(words);
      await runChecks(`${port} RESP${RESP}`, call, (error) => error instanceof ErrorReply);
      await bytes(client);
      await typed(client);
      await transactions(client);
      await client.flushAll();
      await reconnects(port, RESP);
      await client.close();
    });
    await authentication(RESP);
  }
};

end(main());
