<?php
// Drives a running node through tarantool/client and tarantool/queue, as a PHP application does:
//     composer require tarantool/client tarantool/queue
//     php drive.php vendor/autoload.php 127.0.0.1:3301 [USER PASSWORD]
// Run by hand: those packages come from no registry the tests use. With a user it only logs in.
// Says each step that is not as it must be, then how many were.

use Tarantool\Client\Client;
use Tarantool\Client\Exception\RequestFailed;
use Tarantool\Client\Schema\Criteria;
use Tarantool\Queue\Queue;
use Tarantool\Queue\States;

[, $autoload, $address] = $argv;
require $autoload;
$as_expected = $other = 0;

function step(string $name, $expected, callable $run): void
{
    global $as_expected, $other;
    try {
        $found = $run();
    } catch (RequestFailed $error) {
        $found = [$error->getCode(), $error->getMessage()];
    }
    if ($found === $expected) {
        ++$as_expected;
        return;
    }
    ++$other;
    echo $name, ': ', json_encode($found), ', not ', json_encode($expected), "\n";
}

function told($task): ?array
{
    return $task === null ? null : [$task->getId(), $task->getState(), $task->getData()];
}

function client(string $address, array $more = []): Client
{
    return Client::fromOptions(['uri' => "tcp://$address", 'socket_timeout' => 10] + $more);
}

if (isset($argv[4])) {
    $given = ['username' => $argv[3], 'password' => $argv[4]];
    step('login', null, fn () => client($address, $given)->ping());
} else {
    $client = client($address);
    $name = 'php_' . getmypid();
    $queue = new Queue($client, $name);
    step('create', $name, fn () => $client->call('queue.create_tube', $name, 'fifottl')[0]['name']);
    step('alter', 7, fn () => $client->call('queue.alter_tube', $name, ['capacity' => 7])[0]['opts']['capacity']);
    step('put', [0, States::READY, 'data'], fn () => told($queue->put('data')));
    $options = ['pri' => 9, 'ttl' => 60, 'ttr' => 60, 'delay' => 3600];
    step('put with options', [1, States::DELAYED, ['a' => 1]], fn () => told($queue->put(['a' => 1], $options)));
    step('peek', [0, States::READY, 'data'], fn () => told($queue->peek(0)));
    step('take', [0, States::TAKEN, 'data'], fn () => told($queue->take()));
    step('touch', [0, States::TAKEN, 'data'], fn () => told($queue->touch(0, 10)));
    step('release', [0, States::READY, 'data'], fn () => told($queue->release(0)));
    step('take again', [0, States::TAKEN, 'data'], fn () => told($queue->take(1)));
    step('release with delay', [0, States::DELAYED, 'data'], fn () => told($queue->release(0, ['delay' => 0.05])));
    step('take delayed', [0, States::TAKEN, 'data'], fn () => told($queue->take(5)));
    step('bury', [0, States::BURIED, 'data'], fn () => told($queue->bury(0)));
    step('kick', 1, fn () => $queue->kick(5));
    step('take kicked', [0, States::TAKEN, 'data'], fn () => told($queue->take(1)));
    step('ack', [0, States::DONE, 'data'], fn () => told($queue->ack(0)));
    step('ack again', [32, 'Task was not taken'], fn () => told($queue->ack(0)));
    step('take nothing', null, fn () => told($queue->take(0.05)));
    step('stats', 2, fn () => $queue->stats('calls.put'));
    step('rows by name', 1, fn () => count($client->getSpace($name)->select(Criteria::key([]))));
    step('write', 42, fn () => (function () use ($client, $name) {
        try {
            $client->getSpace($name)->insert([7, 'r', 'x']);
        } catch (RequestFailed $error) {
            return $error->getCode();
        }
    })());
    step('eval', [true], fn () => $client->evaluate("return queue.tube['$name'] ~= nil"));
    step('delete', [1, States::DONE, ['a' => 1]], fn () => told($queue->delete(1)));
    step('truncate', null, fn () => $queue->truncate());
    step('missing', [32, 'Task 1 not found'], fn () => told($queue->peek(1)));
    step('drop', [true], fn () => $client->call("queue.tube.$name:drop"));
}
echo "$as_expected steps as expected, $other not\n";
exit($other ? 1 : 0);
