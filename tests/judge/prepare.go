package main

import (
	"fmt"
	"sort"
	"strings"
)

// thing names a task: an id given to one payload in one tube. An id may be given anew after a cut.
type thing struct {
	tube    string
	task    int64
	payload string
}

type numbered struct {
	tube string
	task int64
}

type named struct {
	tube, payload string
}

type lane struct {
	tube, sub string
}

// finding is something that is wrong with a run.
type finding struct {
	What  string   `json:"what"`
	Where string   `json:"where"`
	Why   string   `json:"why"`
	Story []string `json:"story"`
}

// story is a run put in order: operations by task and by sub-queue, with what events say of them.
type story struct {
	*run
	kept     bool
	tasks    map[thing][]*op
	lanes    map[lane][]*op
	untold   map[thing]int64
	loose    map[lane]bool // sub-queues of which something is not told
	drained  map[string]int64
	cuts     []told
	undone   map[numbered][]told
	findings []finding
}

func (s *story) found(what, where, why string, ops []*op) {
	lines := make([]string, len(ops))
	for at, one := range ops {
		lines[at] = one.String()
	}
	s.findings = append(s.findings, finding{what, where, why, lines})
}

func (one *op) String() string {
	ended := "never answered"
	if one.ended != never {
		ended = fmt.Sprintf("%.6f", float64(one.ended)/1e6)
	}
	said := [...]string{"ok", "refused", "unknown"}[one.outcome]
	if one.result != "" {
		said += " " + one.result
	}
	if one.open && one.outcome != unknown {
		said += ", may be undone"
	}
	if one.kind == absent {
		return fmt.Sprintf("%.6f the tube is empty", float64(one.began)/1e6)
	}
	words := []string{fmt.Sprintf("%.6f-%s", float64(one.began)/1e6, ended), one.session}
	if one.node != "" {
		words = append(words, "at "+one.node)
	}
	words = append(words, kindNames[one.kind])
	if one.task >= 0 {
		words = append(words, fmt.Sprintf("%d", one.task))
	}
	if one.token >= 0 {
		words = append(words, fmt.Sprintf("token %d", one.token))
	}
	return strings.Join(words, " ") + ": " + said
}

func (t thing) String() string {
	return fmt.Sprintf("%s task %d payload %s", t.tube, t.task, t.payload)
}

// prepare sorts a run's lines; what arithmetic alone shows to be wrong is found here.
func prepare(this *run) *story {
	s := &story{
		run: this, kept: this.promise == "kept", tasks: map[thing][]*op{}, lanes: map[lane][]*op{},
		untold: map[thing]int64{}, loose: map[lane]bool{}, drained: map[string]int64{},
		undone: map[numbered][]told{},
	}
	sort.SliceStable(this.ops, func(a, b int) bool { return this.ops[a].began < this.ops[b].began })
	var ends []told
	for _, one := range this.events {
		switch one.event {
		case "forced":
			s.kept = false
		case "lease_may_end":
			ends = append(ends, one)
		case "drained":
			s.drained[one.tube] = one.from
		case "cut":
			s.cuts = append(s.cuts, one)
		case "undone":
			at := numbered{one.tube, one.task}
			s.undone[at] = append(s.undone[at], one)
		case "appears":
			this.ops = append(this.ops, appearing(one))
		}
	}
	if s.kept {
		s.undone, s.cuts = map[numbered][]told{}, nil
	}
	s.count()
	s.name()
	s.forget()
	s.loosen()
	s.free(ends)
	s.deal()
	return s
}

// appearing is a put that nobody saw.
func appearing(one told) *op {
	made := &op{
		kind: put, outcome: unknown, open: true, client: "(appears)", session: "(appears)", tube: one.tube,
		task: one.task, payload: one.payload, token: -1, began: one.from, ended: never, expires: never,
		leaseUntil: never, freed: never,
	}
	if one.sub != nil {
		made.sub, made.hasSub = *one.sub, true
	}
	return made
}

// covers: whether this cut may have undone the operation.
func (one told) covers(of *op) bool {
	if len(one.kinds) > 0 && !one.kinds[of.kind] || one.node != "" && one.node != of.node ||
		one.client != "" && one.client != of.client {
		return false
	}
	if of.outcome == done && (of.ended < one.from || of.ended > one.to) {
		return false
	}
	if of.kind == put {
		return one.payload == of.payload
	}
	return one.payload == "" || of.payload == "" || one.payload == of.payload
}

// count: no payload has more ids than puts, no id more payloads than one, nothing from nowhere.
func (s *story) count() {
	attempts := map[named][]*op{}
	ids := map[named]map[int64]bool{}
	payloads := map[numbered]map[string]bool{}
	for _, one := range s.ops {
		if one.payload == "" {
			continue
		}
		key := named{one.tube, one.payload}
		if one.kind == put {
			attempts[key] = append(attempts[key], one)
		}
		if one.task >= 0 && one.outcome != refused {
			at := numbered{one.tube, one.task}
			if ids[key] == nil {
				ids[key] = map[int64]bool{}
			}
			if payloads[at] == nil {
				payloads[at] = map[string]bool{}
			}
			ids[key][one.task], payloads[at][one.payload] = true, true
		}
	}
	for key, found := range ids {
		s.countIds(key, found, attempts[key])
	}
	for at, found := range payloads {
		if len(found) > 1 && !s.putUndone(at) && !s.givenByTwoLogs(at) {
			where := fmt.Sprintf("%s task %d", at.tube, at.task)
			s.found("one id, several tasks", where, fmt.Sprint(keys(found)), s.of(at.tube, at.task, ""))
		}
	}
}

func (s *story) countIds(key named, found map[int64]bool, attempts []*op) {
	makers, byKey := 0, map[string]bool{}
	for _, one := range attempts {
		switch {
		case one.outcome == refused:
		case one.key == "":
			makers++
		case !byKey[one.key]:
			byKey[one.key] = true
			makers++
		}
	}
	for id := range found {
		if s.putUndone(numbered{key.tube, id}) && makers > 0 {
			makers++ // its key went with it: sent again it is stored again
		}
	}
	where := fmt.Sprintf("%s payload %s", key.tube, key.payload)
	switch {
	case makers == 0 && len(attempts) == 0 && s.comesUntold(key):
	case makers == 0 && len(attempts) == 0:
		s.found("from nowhere", where, "it was never put and came out", s.of(key.tube, -1, key.payload))
	case makers == 0:
		s.found("refused, yet done", where, "every put was refused and it came out", s.of(key.tube, -1, key.payload))
	case len(found) > makers && s.comesAgain(key):
	case len(found) > makers:
		why := fmt.Sprintf("%d ids, and at most %d puts were done", len(found), makers)
		s.found("stored twice", where, why, s.of(key.tube, -1, key.payload))
	}
}

// comesUntold: how it came there has no line (a dead letter, a move).
func (s *story) comesUntold(key named) bool {
	for _, one := range s.events {
		if one.event == "untold" && one.tube == key.tube && one.payload == key.payload {
			return true
		}
	}
	return false
}

// comesAgain: it may leave and come back under another id (moved there and here, sent back).
func (s *story) comesAgain(key named) bool {
	for _, one := range s.events {
		if one.event == "untold" && one.again && one.tube == key.tube && one.payload == key.payload {
			return true
		}
	}
	return false
}

func (s *story) putUndone(at numbered) bool {
	for _, one := range s.undone[at] {
		if len(one.kinds) == 0 || one.kinds[put] {
			return true
		}
	}
	return false
}

// givenByTwoLogs: an id that a log gave before it was cut may be given anew: of the tasks it stood
// for at most one was told of by the log that stands. Where logs may be cut each of two nodes may
// have given it, and what came to its end before the cut is in no rescue file.
func (s *story) givenByTwoLogs(at numbered) bool {
	nodes, standing := map[string]bool{}, map[string]bool{}
	for _, one := range s.of(at.tube, at.task, "") {
		if one.kind == put && one.outcome == done {
			nodes[one.node] = true
		}
		if one.payload != "" && one.outcome != refused && !s.ofCutLog(one) {
			standing[one.payload] = true
		}
	}
	return len(standing) <= 1 || !s.kept && len(nodes) > 1
}

func (s *story) of(tube string, task int64, payload string) (found []*op) {
	for _, one := range s.ops {
		if one.tube == tube && (task >= 0 && one.task == task || payload != "" && one.payload == payload) {
			found = append(found, one)
		}
	}
	return found
}

func keys(of map[string]bool) (found []string) {
	for one := range of {
		found = append(found, one)
	}
	sort.Strings(found)
	return found
}

// name gives each operation the payload and the sub-queue that others tell of its task.
func (s *story) name() {
	payloads := map[numbered]string{}
	subs := map[named]string{}
	several := map[numbered]bool{}
	for _, one := range s.ops {
		if one.payload == "" {
			continue
		}
		if one.hasSub {
			subs[named{one.tube, one.payload}] = one.sub
		}
		if one.task >= 0 {
			at := numbered{one.tube, one.task}
			several[at] = several[at] || payloads[at] != "" && payloads[at] != one.payload
			payloads[at] = one.payload
		}
	}
	for _, one := range s.ops {
		if at := (numbered{one.tube, one.task}); one.payload == "" && one.task >= 0 && !several[at] {
			one.payload = payloads[at]
		}
		if sub, known := subs[named{one.tube, one.payload}]; known && !one.hasSub {
			one.sub, one.hasSub = sub, true
		}
	}
}

// forget drops answers that changed nothing and came from a log that was cut afterwards.
func (s *story) forget() {
	var weigh []*op
	for _, one := range s.ops {
		if one.outcome != refused && one.kind != peek || !s.ofCutLog(one) {
			weigh = append(weigh, one)
		}
	}
	s.ops = weigh
}

// ofCutLog: the node answered from a log that was cut afterwards.
func (s *story) ofCutLog(one *op) bool {
	for _, cut := range s.cuts {
		if cut.client != "" && cut.client != one.client {
			continue
		}
		if one.node == cut.node && one.ended >= cut.from && one.began <= cut.to {
			return true
		}
	}
	return false
}

// loosen makes operations open that a cut may have undone.
func (s *story) loosen() {
	for _, one := range s.ops {
		if one.task < 0 {
			continue
		}
		for _, cut := range s.undone[numbered{one.tube, one.task}] {
			if one.outcome != unknown && cut.covers(one) {
				one.open, one.ended = true, never
			}
		}
	}
}

// free tells of each take from when on an event may have ended its lease.
func (s *story) free(ends []told) {
	bySession, ofTask := map[string][]told{}, map[numbered][]told{}
	for _, one := range ends {
		if one.task >= 0 {
			at := numbered{one.tube, one.task}
			ofTask[at] = append(ofTask[at], one)
		} else {
			bySession[one.session] = append(bySession[one.session], one)
		}
	}
	known := map[string]leases{}
	for session, events := range bySession {
		known[session] = newLeases(events)
	}
	for _, one := range s.ops {
		if one.kind != take || one.task < 0 {
			continue
		}
		one.freed = earlier(known[one.session].freed(one.began), known["*"].freed(one.began))
		for _, end := range ofTask[numbered{one.tube, one.task}] {
			if one.began <= end.to && (end.session == "*" || end.session == one.session) {
				one.freed = earlier(one.freed, later(one.began, end.from))
			}
		}
	}
}

// deal gives every operation to its task and its sub-queue.
func (s *story) deal() {
	things := map[named]map[int64]bool{}
	payloads := map[numbered]map[string]*op{}
	for _, one := range s.ops {
		if one.task >= 0 && one.payload != "" && one.outcome != refused {
			key, at := named{one.tube, one.payload}, numbered{one.tube, one.task}
			if payloads[at] == nil {
				payloads[at] = map[string]*op{}
			}
			payloads[at][one.payload] = one
			if things[key] == nil {
				things[key] = map[int64]bool{}
			}
			things[key][one.task] = true
		}
	}
	for _, one := range s.events {
		if one.event != "untold" {
			continue
		}
		for key, ids := range things {
			for id := range ids {
				if key.tube == one.tube && (one.task == id || one.payload != "" && one.payload == key.payload) {
					what := thing{key.tube, id, key.payload}
					if until, known := s.untold[what]; !known || one.from < until {
						s.untold[what] = one.from
					}
				}
			}
		}
	}
	for _, one := range s.ops {
		if one.outcome == refused && (one.kind == put || one.kind == take) {
			continue
		}
		if one.kind == put && one.task < 0 {
			for id := range things[named{one.tube, one.payload}] {
				s.give(thing{one.tube, id, one.payload}, one)
			}
			continue
		}
		if one.task >= 0 {
			s.give(thing{one.tube, one.task, one.payload}, one)
			s.giveOthers(one, payloads[numbered{one.tube, one.task}])
		}
	}
	for what, ops := range s.tasks {
		s.tasks[what] = withoutEchoes(ops)
	}
	s.queue()
	for what, ops := range s.tasks {
		if at, known := s.drained[what.tube]; known && !s.changedUnseen(what) {
			end := &op{kind: absent, session: "(judge)", tube: what.tube, task: what.task, began: at, ended: at, token: -1}
			s.tasks[what] = append(ops, end)
		}
	}
}

// withoutEchoes leaves out what can only be done once and may have been done before, by the same
// hand: of several acks without an answer the first one's time holds all the others' possibilities.
func withoutEchoes(ops []*op) (kept []*op) {
	type call struct {
		kind    kind
		session string
		token   int64
	}
	known := map[call]bool{}
	sort.SliceStable(ops, func(a, b int) bool { return ops[a].began < ops[b].began })
	for _, one := range ops {
		if one.open && (one.kind == ack || one.kind == remove || one.kind == put) {
			made := call{one.kind, one.session, one.token}
			if one.kind == put {
				made.session = ""
			}
			if known[made] {
				continue
			}
			known[made] = true
		}
		kept = append(kept, one)
	}
	return kept
}

// giveOthers: a call that names an id without a token may have found another task that has it now.
func (s *story) giveOthers(one *op, payloads map[string]*op) {
	if one.kind == put || one.kind == take || one.token >= 0 || one.outcome == refused {
		return
	}
	for payload, like := range payloads {
		if payload == one.payload {
			continue
		}
		other := *one
		other.payload, other.sub, other.hasSub = payload, like.sub, like.hasSub
		other.open, other.outcome, other.ended = true, unknown, never
		s.give(thing{one.tube, one.task, payload}, &other)
	}
}

func (s *story) give(what thing, one *op) {
	if one.kind == put && one.task != what.task {
		other := *one
		other.task = what.task
		one = &other
	}
	if until, known := s.untold[what]; known {
		s.loose[lane{what.tube, one.sub}] = true
		if one.began > until {
			return
		}
		if one.ended > until && !one.open {
			other := *one
			other.open, other.ended = true, never
			one = &other
		}
	}
	s.tasks[what] = append(s.tasks[what], one)
}

// queue gives the operations of each sub-queue's tasks to it; attempts at one put are one put.
func (s *story) queue() {
	for what, ops := range s.tasks {
		var stored *op
		for _, one := range ops {
			if !one.hasSub || one.outcome == refused || one.kind == peek {
				continue
			}
			if !one.open && s.ofCutLog(one) {
				// Of another order than that of the log that stands.
				other := *one
				other.open, other.ended = true, never
				one = &other
			}
			at := lane{what.tube, one.sub}
			if one.kind != put {
				s.lanes[at] = append(s.lanes[at], one)
				continue
			}
			if stored == nil {
				copied := *one
				stored = &copied
				s.lanes[at] = append(s.lanes[at], stored)
			}
			stored.ended, stored.open = earlier(stored.ended, one.ended), stored.open && one.open
		}
	}
	for _, ops := range s.lanes {
		sort.SliceStable(ops, func(a, b int) bool { return ops[a].began < ops[b].began })
	}
}

func (s *story) changedUnseen(what thing) bool {
	_, known := s.untold[what]
	return known
}
