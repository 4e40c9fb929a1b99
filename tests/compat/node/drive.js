// Drives a running server through tarantool-driver, which calls by CALL_16 only.
//
// Usage: node drive.js PORT [USER PASSWORD]. Prints one JSON object a step, {"step", "value"} or
// {"step", "error"}; what each value must be is the business of test_node.py.
'use strict';

const TarantoolConnection = require('tarantool-driver');

const [port, username, password] = process.argv.slice(2);

function connect() {
  const options = { host: '127.0.0.1', port: Number(port), lazyConnect: true };
  if (username) Object.assign(options, { username, password });
  options.retryStrategy = () => false;
  const connection = new TarantoolConnection(options);
  connection.on('error', () => {});
  return connection;
}

async function step(name, action) {
  let line;
  try {
    line = { step: name, value: await action() };
  } catch (error) {
    line = { step: name, error: String(error.message) };
  }
  console.log(JSON.stringify(line));
  return line.value;
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function tasks(first) {
  const tube = (method, ...args) => first.call(`queue.tube.node_tasks:${method}`, ...args);
  await step('create', async () => {
    await first.eval("queue.create_tube('node_tasks', 'fifottl', {if_not_exists = true})");
    return true;
  });
  await step('exists', () => first.eval("return queue.tube.node_tasks ~= nil"));
  await step('put', () => tube('put', 'data'));
  await step('put with options', () => tube('put', { a: [1, null] }, { pri: 9, ttl: 60.5 }));
  await step('peek', () => tube('peek', 0));
  await step('take', () => tube('take', 0));
  await step('touch', () => tube('touch', 0, 5));
  await step('touch nothing', () => tube('touch', 0));
  await step('release', () => tube('release', 0, { delay: 60 }));
  await step('take with wait', () => tube('take', 3));
  await step('bury', () => tube('bury', 0));
  await step('kick', () => tube('kick', 5));
  await step('take again', () => tube('take'));
  await step('ack', () => tube('ack', 0));
  await step('ack again', () => tube('ack', 0));
  await step('delete', () => tube('delete', 1));
  await step('peek missing', () => tube('peek', 1));
  await step('take nothing', () => tube('take', 0.01));
  await step('state', () => first.call('queue.state'));
  await step('statistics', async () => {
    const found = await first.call('queue.statistics', 'node_tasks');
    return [found[0][0].calls.put, found[0][0].tasks.done];
  });
  await step('alter', async () => {
    const found = await first.call('queue.alter_tube', 'node_tasks', { capacity: 7 });
    return found[0][0].opts.capacity;
  });
  await step('no such tube', () => first.call('queue.tube.node_nothing:put', 'x'));
  await step('drop', () => tube('drop'));
}

async function together(first, second) {
  await first.eval("queue.create_tube('node_pipe', 'fifo')");
  await step('waits for the other connection', async () => {
    const waiting = first.call('queue.tube.node_pipe:take', 5);
    await pause(20);
    await second.call('queue.tube.node_pipe:put', 'wanted');
    return waiting;
  });
  // Bytes that are not UTF-8 do not survive this connector, so only its own session is asked for.
  await step('identify on two connections', async () => {
    const ids = [await first.call('queue.identify'), await second.call('queue.identify')];
    return ids[0][0][0] !== ids[1][0][0];
  });
  await step('owner only', () => second.call('queue.tube.node_pipe:ack', 0));
  await step('pipelining', async () => {
    const numbers = [...Array(200).keys()];
    const puts = await Promise.all(
      numbers.map((n) => first.call('queue.tube.node_pipe:put', n)));
    const taken = await Promise.all(numbers.map(() => first.call('queue.tube.node_pipe:take', 1)));
    const acked = await Promise.all(
      taken.map(([task]) => first.call('queue.tube.node_pipe:ack', task[0])));
    return [puts.map(([task]) => task[2]).join() === numbers.join(),
      new Set(taken.map(([task]) => task[0])).size, acked.every(([task]) => task[1] === '-')];
  });
  await step('overtaking', async () => {
    const order = [];
    const waiting = first.call('queue.tube.node_pipe:take', 0.1).then(() => order.push('take'));
    await first.ping().then(() => order.push('ping'));
    await waiting;
    return order;
  });
  await step('select by name', () => first.select('_queue', 'tube', 1, 0, 'eq', ['node_pipe']));
}

async function main() {
  const first = connect();
  const second = connect();
  await step('connect', async () => { await first.connect(); return true; });
  if (username) {
    await step('ping', () => first.ping());
  } else {
    await second.connect();
    await tasks(first);
    await together(first, second);
  }
  first.destroy();
  second.destroy();
}

main().then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
