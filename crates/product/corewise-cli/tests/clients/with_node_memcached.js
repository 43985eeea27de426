// The npm package `memcached` against the server at 127.0.0.1:PORT.
'use strict';

const assert = require('assert');
const { promisify } = require('util');
const Memcached = require('memcached');

const client = new Memcached(`127.0.0.1:${process.argv[2]}`, {
  timeout: 20000,
  retries: 0,
  failures: 0,
  maxValue: 4 * 1024 * 1024,
});

const call = (name) => promisify(client[name]).bind(client);
const [set, get, gets, getMulti, add, replace] = ['set', 'get', 'gets', 'getMulti', 'add', 'replace'].map(call);
const [append, prepend, cas, incr, decr, del] = ['append', 'prepend', 'cas', 'incr', 'decr', 'del'].map(call);
const [touch, flush, version, stats] = ['touch', 'flush', 'version', 'stats'].map(call);

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// A store whose condition does not hold is an error here.
const refused = async (promise) => {
  try {
    return (await promise) === false;
  } catch (error) {
    return /not stored/i.test(error.message);
  }
};

const checks = {
  async valuesOfEverySize() {
    for (const size of [0, 1, 100, 4096, 65536, 1000000]) {
      const value = 'x'.repeat(size);
      assert.strictEqual(await set(`size${size}`, value, 100), true);
      assert.strictEqual(await get(`size${size}`), value);
    }
  },

  async valuesOfAnyBytes() {
    const value = Buffer.from([...Array(256).keys(), 13, 10, 69, 78, 68, 13, 10]);
    assert.strictEqual(await set('bytes', value, 0), true);
    assert.deepStrictEqual(await get('bytes'), value);
  },

  async typesInFlags() {
    for (const value of [7, true, { a: [1, null] }, 'é']) {
      await set('typed', value, 0);
      assert.deepStrictEqual(await get('typed'), value);
    }
  },

  async conditionalStores() {
    assert(await refused(replace('cond', 'x', 0)));
    assert.strictEqual(await add('cond', 'm', 0), true);
    assert(await refused(add('cond', 'n', 0)));
    assert.strictEqual(await append('cond', 'z'), true);
    assert.strictEqual(await prepend('cond', 'a'), true);
    assert.strictEqual(await get('cond'), 'amz');
    assert.strictEqual(await replace('cond', 'r', 0), true);
    assert.strictEqual(await get('cond'), 'r');
  },

  async manyAtOnce() {
    const keys = Array.from({ length: 500 }, (_, n) => `many${n}`);
    await Promise.all(keys.map((key) => set(key, key, 0)));
    const found = await getMulti([...keys, 'nothing']);
    assert.strictEqual(Object.keys(found).length, 500);
    keys.forEach((key) => assert.strictEqual(found[key], key));
  },

  async compareAndSet() {
    await set('cas', 'x', 0);
    const seen = await gets('cas');
    assert.strictEqual(seen.cas, seen.cas.replace(/\D/g, ''));
    assert.strictEqual(await cas('cas', 'y', seen.cas, 0), true);
    assert.strictEqual(await cas('cas', 'z', seen.cas, 0), false);
    assert.strictEqual(await get('cas'), 'y');
  },

  async counters() {
    assert.strictEqual(await incr('nothing', 1), false);
    await set('n', '9', 0);
    assert.strictEqual(await incr('n', 1), 10);
    assert.strictEqual(await decr('n', 4), 6);
    assert.strictEqual(await decr('n', 100), 0);
  },

  async deletion() {
    await set('del', 'x', 0);
    assert.strictEqual(await del('del'), true);
    assert.strictEqual(await del('del'), false);
    assert.strictEqual(await get('del'), undefined);
  },

  async expiry() {
    await set('soon', 'x', 1);
    await set('touched', 'x', 1);
    assert.strictEqual(await touch('touched', 1000), true);
    assert.strictEqual(await touch('nothing', 1), false);
    await pause(2100);
    assert.strictEqual(await get('soon'), undefined);
    assert.strictEqual(await get('touched'), 'x');
  },

  async administration() {
    const [{ version: name }] = await version();
    assert(name.length > 0);
    const [{ curr_items: items }] = await stats();
    assert(items > 0);
    await flush();
    assert.strictEqual(await get('touched'), undefined);
  },
};

(async () => {
  for (const [name, check] of Object.entries(checks)) {
    console.log(name);
    await check();
  }
  client.end();
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
