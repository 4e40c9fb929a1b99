package main

import (
	"hash/maphash"

	"github.com/anishathalye/porcupine"
)

// waiting is a task of a sub-queue that is there. The one in hand stands among the others.
type waiting struct {
	task    int64
	payload string
	pri     int64
	state   taskState
}

func (w waiting) before(other waiting) bool {
	if w.pri != other.pri {
		return w.pri < other.pri
	}
	return w.task < other.task
}

// subState: the tasks of a sub-queue that are there, in their order, and which one is taken.
type subState struct {
	tasks []waiting
	held  int // index, -1: none
	hash  uint64
}

var seed = maphash.MakeSeed()

func (w waiting) hash() uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	h.WriteString(w.payload)
	h.WriteString(w.state.session)
	h.WriteByte(byte(w.state.phase))
	return h.Sum64() ^ uint64(w.task)*0x9E3779B97F4A7C15
}

func (s *subState) find(one *op) int {
	for at, w := range s.tasks {
		if w.task == one.task && w.payload == one.payload {
			return at
		}
	}
	return -1
}

// with gives a copy in which the task at this place has another state; gone takes it out.
func (s *subState) with(at int, state taskState) *subState {
	after := &subState{held: s.held, hash: s.hash ^ s.tasks[at].hash()}
	if state.phase == gone {
		after.tasks = make([]waiting, 0, len(s.tasks)-1)
		after.tasks = append(append(after.tasks, s.tasks[:at]...), s.tasks[at+1:]...)
		if at == s.held {
			after.held = -1
		} else if at < s.held {
			after.held--
		}
		return after
	}
	after.tasks = append([]waiting(nil), s.tasks...)
	after.tasks[at].state = state
	after.hash ^= after.tasks[at].hash()
	if state.phase == taken {
		after.held = at
	} else if at == s.held {
		after.held = -1
	}
	return after
}

func (s *subState) add(one *op) *subState {
	_, state := taskState{token: -1, freed: never, until: never}.change(one)
	made := waiting{one.task, one.payload, one.pri, state}
	at := len(s.tasks)
	for at > 0 && made.before(s.tasks[at-1]) {
		at--
	}
	after := &subState{held: s.held, hash: s.hash ^ made.hash()}
	after.tasks = make([]waiting, 0, len(s.tasks)+1)
	after.tasks = append(append(append(after.tasks, s.tasks[:at]...), made), s.tasks[at:]...)
	if s.held >= at {
		after.held++
	}
	return after
}

func (s *subState) do(one *op) (bool, *subState) {
	at := s.find(one)
	if one.kind == put {
		if at >= 0 {
			return one.open || one.key != "", s
		}
		return true, s.add(one)
	}
	if at < 0 {
		return one.open, s
	}
	if one.kind == take {
		return s.take(at, one)
	}
	ok, state := s.tasks[at].state.change(one)
	if !ok {
		return one.open, s
	}
	return true, s.with(at, state)
}

// take: nothing else is in hand, and nothing before it is surely ready.
func (s *subState) take(at int, one *op) (bool, *subState) {
	after := s
	if s.held >= 0 && s.held != at {
		held := s.tasks[s.held].state
		if !held.mayBeFree(one.ended) && held.expires > one.ended {
			return one.open, s
		}
		after = s.with(s.held, held.wait(&op{}))
	}
	ok, state := after.tasks[at].state.change(one)
	if !ok {
		return one.open, s
	}
	for _, w := range after.tasks[:at] {
		if w.state.phase == ready && w.state.expires > one.ended {
			return one.open, s
		}
	}
	return true, after.with(at, state)
}

var subModel = porcupine.Model{
	Init: func() interface{} { return &subState{held: -1} },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		return state.(*subState).do(input.(*op))
	},
	Equal: func(one, other interface{}) bool {
		a, b := one.(*subState), other.(*subState)
		if a == b {
			return true
		}
		if a.hash != b.hash || a.held != b.held || len(a.tasks) != len(b.tasks) {
			return false
		}
		for at := range a.tasks {
			if a.tasks[at] != b.tasks[at] {
				return false
			}
		}
		return true
	},
	Hash: func(state interface{}) uint64 { return state.(*subState).hash },
}

func (s *subState) why(one *op) string {
	at := s.find(one)
	if at < 0 {
		return kindNames[one.kind] + " of a task that is not there"
	}
	if one.kind == take && s.held >= 0 && s.held != at && !s.tasks[s.held].state.mayBeFree(one.ended) {
		return "two of a sub-queue in hand"
	}
	if one.kind == take {
		for _, w := range s.tasks[:at] {
			if w.state.phase == ready {
				return "out of order"
			}
		}
	}
	return s.tasks[at].state.why(one)
}
