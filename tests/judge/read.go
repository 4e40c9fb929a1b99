package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"sort"
)

// never is a moment that does not come.
const never = int64(math.MaxInt64 / 4)

type kind uint8

const (
	put kind = iota
	take
	touch
	ack
	release
	bury
	kick
	remove
	peek
	absent
)

var kinds = map[string]kind{
	"put": put, "take": take, "touch": touch, "ack": ack, "release": release,
	"bury": bury, "kick": kick, "delete": remove, "peek": peek,
}

var kindNames = func() map[kind]string {
	names := map[kind]string{absent: "drained"}
	for name, one := range kinds {
		names[one] = name
	}
	return names
}()

type outcome uint8

const (
	done outcome = iota
	refused
	unknown
)

var outcomes = map[string]outcome{"ok": done, "refused": refused, "unknown": unknown}

// line is one line of a history, as FORMAT.md describes it.
type line struct {
	What         string          `json:"what"`
	Run          string          `json:"run"`
	Source       string          `json:"source"`
	Promise      string          `json:"promise"`
	Replay       string          `json:"replay"`
	Event        string          `json:"event"`
	Client       string          `json:"client"`
	Session      string          `json:"session"`
	Node         string          `json:"node"`
	Kind         string          `json:"kind"`
	Kinds        []string        `json:"kinds"`
	Tube         string          `json:"tube"`
	Type         string          `json:"type"`
	Subqueue     *string         `json:"subqueue"`
	Task         *int64          `json:"task"`
	Payload      json.RawMessage `json:"payload"`
	Key          *string         `json:"key"`
	Token        *int64          `json:"token"`
	BeganUs      *int64          `json:"began_us"`
	EndedUs      *int64          `json:"ended_us"`
	Outcome      string          `json:"outcome"`
	Result       string          `json:"result"`
	DelayUs      int64           `json:"delay_us"`
	Pri          int64           `json:"pri"`
	ExpiresUs    *int64          `json:"expires_us"`
	LeaseUntilUs *int64          `json:"lease_until_us"`
	FromUs       *int64          `json:"from_us"`
	ToUs         *int64          `json:"to_us"`
	AtUs         *int64          `json:"at_us"`
	File         string          `json:"file"`
	Why          string          `json:"why"`
	Again        bool            `json:"again"`
	Text         string          `json:"text"`
}

// op is an operation on one task. open: it has its effect at some moment from `began` on, or never.
type op struct {
	kind         kind
	outcome      outcome
	open         bool
	session      string
	client, node string
	tube, sub    string
	hasSub       bool
	task         int64 // -1: not known
	payload      string
	key          string
	token        int64 // -1: none
	result       string
	began, ended int64
	delay, pri   int64
	expires      int64
	leaseUntil   int64
	freed        int64 // from when on an event may have ended the lease
}

// told is an event.
type told struct {
	event, tube, session, node string
	client                     string
	sub                        *string
	task                       int64
	payload                    string
	kinds                      map[kind]bool
	from, to                   int64
	text                       string
	again                      bool
}

// run is one history, and what its file says of it.
type run struct {
	name, source, promise, replay string
	described                     bool
	ops                           []*op
	events                        []told
}

func orNever(moment *int64) int64 {
	if moment == nil {
		return never
	}
	return *moment
}

func orNone(number *int64) int64 {
	if number == nil {
		return -1
	}
	return *number
}

func text(raw json.RawMessage) string {
	if bytes.Equal(raw, []byte("null")) {
		return ""
	}
	return string(raw)
}

// readRuns reads all runs of a file. The error names file and line.
func readRuns(path string) (map[string]*run, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	runs := map[string]*run{}
	reader := bufio.NewReaderSize(file, 1<<20)
	for number := 1; ; number++ {
		raw, err := reader.ReadBytes('\n')
		if len(bytes.TrimSpace(raw)) > 0 {
			var one line
			wrong := json.Unmarshal(raw, &one)
			if wrong == nil {
				wrong = add(runs, &one)
			}
			if wrong != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, number, wrong)
			}
		}
		if err == io.EOF {
			return runs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, number, err)
		}
	}
}

func add(runs map[string]*run, one *line) error {
	if one.Run == "" {
		return fmt.Errorf("no run")
	}
	this := runs[one.Run]
	if this == nil {
		this = &run{name: one.Run}
		runs[one.Run] = this
	}
	switch one.What {
	case "run":
		if this.described {
			return fmt.Errorf("run %s is described twice", one.Run)
		}
		if one.Promise != "kept" && one.Promise != "rescued" {
			return fmt.Errorf("promise %q is neither kept nor rescued", one.Promise)
		}
		this.described = true
		this.source, this.promise, this.replay = one.Source, one.Promise, one.Replay
		return nil
	case "op":
		made, err := operation(one)
		if err == nil {
			this.ops = append(this.ops, made)
		}
		return err
	case "event":
		made, err := event(one)
		if err == nil {
			this.events = append(this.events, made)
		}
		return err
	}
	return fmt.Errorf("what is %q", one.What)
}

func operation(one *line) (*op, error) {
	what, known := kinds[one.Kind]
	if !known {
		return nil, fmt.Errorf("kind %q is not known", one.Kind)
	}
	how, known := outcomes[one.Outcome]
	if !known {
		return nil, fmt.Errorf("outcome %q is not known", one.Outcome)
	}
	if one.Client == "" || one.Tube == "" || one.BeganUs == nil {
		return nil, fmt.Errorf("an operation needs client, tube and began_us")
	}
	made := &op{
		kind: what, outcome: how, client: one.Client, session: one.Session, node: one.Node,
		tube: one.Tube, task: orNone(one.Task), payload: text(one.Payload), token: orNone(one.Token),
		result: one.Result, began: *one.BeganUs, ended: orNever(one.EndedUs), delay: one.DelayUs,
		pri: one.Pri, expires: orNever(one.ExpiresUs), leaseUntil: orNever(one.LeaseUntilUs),
		open: how == unknown, freed: never,
	}
	if made.session == "" {
		made.session = one.Client
	}
	if one.Key != nil {
		made.key = *one.Key
	}
	if one.Subqueue != nil {
		made.sub, made.hasSub = *one.Subqueue, true
	}
	switch {
	case made.open:
		made.ended = never
	case one.EndedUs == nil || made.ended < made.began:
		return nil, fmt.Errorf("began at %d and ended at %v with outcome %s", made.began, one.EndedUs, one.Outcome)
	}
	if what == put && made.payload == "" {
		return nil, fmt.Errorf("a put without payload")
	}
	needsTask := how == done && what != take || what != put && what != take
	if needsTask && made.task < 0 {
		return nil, fmt.Errorf("%s without task", one.Kind)
	}
	return made, nil
}

func event(one *line) (told, error) {
	made := told{
		event: one.Event, tube: one.Tube, session: one.Session, node: one.Node, client: one.Client, sub: one.Subqueue,
		task: orNone(one.Task), payload: text(one.Payload), from: orNone(one.FromUs), to: orNever(one.ToUs),
		text: one.Text, again: one.Again,
	}
	if one.AtUs != nil {
		made.from, made.to = *one.AtUs, *one.AtUs
	}
	needs := map[string]bool{}
	switch one.Event {
	case "lease_may_end":
		if one.ToUs == nil {
			made.to = made.from
		}
		// Without a session it is about nobody.
		needs["from_us"] = made.from < 0
		needs["tube"] = made.task >= 0 && made.tube == ""
	case "undone":
		made.kinds = map[kind]bool{}
		for _, name := range one.Kinds {
			what, known := kinds[name]
			if !known {
				return made, fmt.Errorf("kind %q is not known", name)
			}
			made.kinds[what] = true
		}
		needs["tube"], needs["task"] = made.tube == "", made.task < 0
	case "appears":
		needs["tube"], needs["task"], needs["from_us"] = made.tube == "", made.task < 0, made.from < 0
		needs["payload"] = made.payload == ""
	case "untold":
		needs["tube"], needs["from_us"] = made.tube == "", made.from < 0
		needs["task or payload"] = made.task < 0 && made.payload == ""
	case "drained":
		needs["tube"], needs["at_us"] = made.tube == "", one.AtUs == nil
	case "cut":
		needs["node"] = made.node == ""
	case "forced", "note":
	default:
		return made, fmt.Errorf("event %q is not known", one.Event)
	}
	for name, missing := range needs {
		if missing {
			return made, fmt.Errorf("event %s without %s", one.Event, name)
		}
	}
	return made, nil
}

// leases answers from when on an event may have ended a lease of one session.
type leases struct {
	to      []int64 // sorted
	soonest []int64 // the least `from` of this and all later ones
}

func newLeases(events []told) leases {
	sort.Slice(events, func(a, b int) bool { return events[a].to < events[b].to })
	made := leases{make([]int64, len(events)), make([]int64, len(events))}
	least := never
	for at := len(events) - 1; at >= 0; at-- {
		least = earlier(least, events[at].from)
		made.to[at], made.soonest[at] = events[at].to, least
	}
	return made
}

func (l leases) freed(began int64) int64 {
	at := sort.Search(len(l.to), func(at int) bool { return l.to[at] >= began })
	if at == len(l.to) {
		return never
	}
	return later(began, l.soonest[at])
}

func earlier(one, other int64) int64 {
	if other < one {
		return other
	}
	return one
}

func later(one, other int64) int64 {
	if other > one {
		return other
	}
	return one
}
