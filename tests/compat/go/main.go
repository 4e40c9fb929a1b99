// Drives a running server through go-tarantool, its queue package and its connection pool.
//
// Prints one JSON object a step, {"step": ..., "value": ...} or {"step": ..., "error": ...}; what
// each value must be is the business of test_go.py.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/tarantool/go-tarantool/v2"
	"github.com/tarantool/go-tarantool/v2/pool"
	"github.com/tarantool/go-tarantool/v2/queue"
)

var (
	address  = flag.String("address", "", "host:port of the server")
	user     = flag.String("user", "", "user to log in as; none = guest")
	password = flag.String("password", "", "the user's password")
	only     = flag.String("only", "all", "all, auth or cfg")
)

const requestTimeout = 4 * time.Second

func say(step string, value interface{}, err error) {
	line := map[string]interface{}{"step": step, "value": value}
	if err != nil {
		line = map[string]interface{}{"step": step, "error": err.Error()}
		var refused tarantool.Error
		if errors.As(err, &refused) {
			line["code"] = uint32(refused.Code)
		}
	}
	text, err := json.Marshal(line)
	if err != nil {
		fmt.Fprintln(os.Stderr, step, err)
		os.Exit(2)
	}
	fmt.Println(string(text))
}

func dialer() tarantool.NetDialer {
	return tarantool.NetDialer{Address: *address, User: *user, Password: *password}
}

func dial() (*tarantool.Connection, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	return tarantool.Connect(ctx, dialer(), tarantool.Opts{Timeout: requestTimeout})
}

func mustDial() *tarantool.Connection {
	conn, err := dial()
	if err != nil {
		say("connect", nil, err)
		os.Exit(1)
	}
	return conn
}

func task(t *queue.Task, err error) (interface{}, error) {
	if err != nil || t == nil {
		return nil, err
	}
	return []interface{}{t.Id(), t.Status(), printable(t.Data())}, nil
}

// printable turns maps with keys of any type into what JSON can hold.
func printable(data interface{}) interface{} {
	if found, ok := data.(map[interface{}]interface{}); ok {
		named := map[string]interface{}{}
		for key, value := range found {
			named[fmt.Sprint(key)] = printable(value)
		}
		return named
	}
	return data
}

func sayTask(step string) func(*queue.Task, error) {
	return func(t *queue.Task, err error) {
		value, err := task(t, err)
		say(step, value, err)
	}
}

func main() {
	flag.Parse()
	if *only == "auth" {
		conn, err := dial()
		say("auth", err == nil, err)
		if err == nil {
			_, err = conn.Do(tarantool.NewPingRequest()).Get()
			say("ping", err == nil, err)
			_ = conn.Close()
		}
		return
	}
	if *only == "cfg" {
		// As the package's example of a highly available queue does on every instance it reaches.
		conn := mustDial()
		q := queue.New(conn, "")
		state, err := q.State()
		say("state", state, err)
		say("cfg", nil, q.Cfg(queue.CfgOpts{InReplicaset: true, Ttr: time.Minute}))
		_ = conn.Close()
		return
	}
	first, second := mustDial(), mustDial()
	tasks(first)
	waiting(first, second)
	settings(first)
	sessions(first, second)
	pipelining(first)
	watching(first)
	_ = first.Close()
	_ = second.Close()
	pooled()
}

// tasks makes every call of the queue package on one connection.
func tasks(conn *tarantool.Connection) {
	q := queue.New(conn, "go_tasks")
	exists, err := q.Exists()
	say("does not exist", exists, err)
	ttl := queue.Cfg{Kind: queue.FIFO_TTL, Opts: queue.Opts{Ttl: time.Hour}}
	say("create", nil, q.Create(ttl))
	exists, err = q.Exists()
	say("exists", exists, err)
	sayTask("put")(q.Put("data"))
	sayTask("put with options")(q.PutWithOpts(map[string]int{"a": 1},
		queue.Opts{Pri: 9, Ttl: time.Minute, Ttr: time.Minute, Delay: time.Hour}))
	sayTask("peek")(q.Peek(0))
	t, err := q.Take()
	sayTask("take")(t, err)
	if err != nil || t == nil {
		os.Exit(1)
	}
	say("touch", t.Status(), t.Touch(time.Second))
	say("release with delay", nil, t.ReleaseCfg(queue.Opts{Delay: 50 * time.Millisecond}))
	sayTask("peek delayed")(q.Peek(0))
	t, err = q.TakeTimeout(2 * time.Second)
	sayTask("take delayed")(t, err)
	say("release", nil, t.Release())
	t, _ = q.Take()
	say("bury", nil, t.Bury())
	kicked, err := q.Kick(5)
	say("kick", kicked, err)
	t, _ = q.Take()
	say("ack", nil, t.Ack())
	say("ack again", nil, t.Ack())
	say("delete", nil, q.Delete(1))
	sayTask("peek missing")(q.Peek(1))
	sayTask("take nothing")(q.TakeTimeout(0))
	statistics, err := q.Statistic()
	say("statistics", fmt.Sprint(statistics != nil), err)
	altered, err := conn.Do(tarantool.NewCallRequest("queue.alter_tube").
		Args([]interface{}{"go_tasks", map[string]int{"capacity": 7}})).Get()
	say("alter", strings.Contains(fmt.Sprint(altered), "capacity:7"), err)
	_, _ = q.Put("again")
	_, _ = q.Take()
	say("release all", nil, q.ReleaseAll())
	state, err := q.State()
	say("state", state == queue.RunningState, err)
	_, err = queue.New(conn, "go_no_such_tube").Put("x")
	say("no such tube", nil, err)
	say("drop", nil, q.Drop())
}

// waiting has one connection wait for what the other one puts.
func waiting(first, second *tarantool.Connection) {
	name := "go_waiting"
	consumer, producer := queue.New(first, name), queue.New(second, name)
	say("create utube", nil, consumer.Create(queue.Cfg{Kind: queue.UTUBE, IfNotExists: true}))
	done := make(chan struct{})
	go func() {
		sayTask("take with wait")(consumer.TakeTimeout(3 * time.Second))
		close(done)
	}()
	time.Sleep(50 * time.Millisecond)
	if _, err := producer.PutWithOpts("wanted", queue.Opts{Utube: "u"}); err != nil {
		say("put for the waiting", nil, err)
	}
	<-done
	sayTask("take times out")(producer.TakeTimeout(50 * time.Millisecond))
}

// settings sets and resets what queue.cfg knows.
func settings(conn *tarantool.Connection) {
	q := queue.New(conn, "")
	say("cfg", nil, q.Cfg(queue.CfgOpts{InReplicaset: false, Ttr: 30 * time.Second}))
	say("cfg back", nil, q.Cfg(queue.CfgOpts{InReplicaset: false, Ttr: time.Nanosecond}))
}

// sessions lets the second connection finish what the first one took.
func sessions(first, second *tarantool.Connection) {
	mine, other := queue.New(first, "go_waiting"), queue.New(second, "go_waiting")
	id, err := mine.Identify(nil)
	say("identify", id != uuid.Nil, err)
	same, err := other.Identify(&id)
	say("identify on the other connection", same == id, err)
	_ = other.Delete(0)
	if _, err = mine.Put("shared"); err == nil {
		var t *queue.Task
		if t, err = mine.Take(); err == nil {
			_, err = second.Do(tarantool.NewCallRequest("queue.tube.go_waiting:ack").
				Args([]interface{}{t.Id()})).Get()
		}
	}
	say("ack what the other connection took", nil, err)
	unknown := uuid.MustParse("00010203-0405-0607-0809-0a0b0c0d0e0f")
	_, err = other.Identify(&unknown)
	say("identify unknown", nil, err)
}

// pipelining has many requests of many goroutines in flight on one connection.
func pipelining(conn *tarantool.Connection) {
	q := queue.New(conn, "go_pipeline")
	if err := q.Create(queue.Cfg{Kind: queue.FIFO}); err != nil {
		say("pipelining", nil, err)
		return
	}
	var group sync.WaitGroup
	var lock sync.Mutex
	seen := map[uint64]bool{}
	failures := 0
	for worker := 0; worker < 20; worker++ {
		group.Add(1)
		go func(worker int) {
			defer group.Done()
			for n := 0; n < 25; n++ {
				_, err := q.Put(worker*100 + n)
				t, takeErr := q.TakeTimeout(time.Second)
				lock.Lock()
				if err != nil || takeErr != nil || t == nil || seen[t.Id()] {
					failures++
				} else {
					seen[t.Id()] = true
				}
				lock.Unlock()
				if t != nil {
					_ = t.Ack()
				}
			}
		}(worker)
	}
	group.Wait()
	say("pipelining", []int{len(seen), failures}, nil)
}

// watching subscribes to the node's status.
func watching(conn *tarantool.Connection) {
	events := make(chan interface{}, 1)
	watcher, err := conn.NewWatcher("box.status", func(event tarantool.WatchEvent) {
		select {
		case events <- event.Value:
		default:
		}
	})
	if err != nil {
		say("watch", nil, err)
		return
	}
	defer watcher.Unregister()
	select {
	case value := <-events:
		status, _ := value.(map[interface{}]interface{})
		say("watch", []interface{}{status["status"], status["is_ro"]}, nil)
	case <-time.After(3 * time.Second):
		say("watch", nil, errors.New("no event"))
	}
}

// pooled finds the writable node through a pool and works through it.
func pooled() {
	ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
	defer cancel()
	opts := tarantool.Opts{Timeout: requestTimeout}
	nodes := []pool.Instance{{Name: "one", Dialer: dialer(), Opts: opts}}
	connections, err := pool.Connect(ctx, nodes)
	if err != nil {
		say("pool", nil, err)
		return
	}
	defer connections.Close()
	role := connections.GetInfo()["one"].ConnRole
	say("pool", role == pool.MasterRole, nil)
	writable := pool.NewConnectorAdapter(connections, pool.RW)
	sayTask("put through the pool")(queue.New(writable, "go_pipeline").Put("pooled"))
}
