package main

import "github.com/anishathalye/porcupine"

type phase uint8

const (
	missing phase = iota
	ready
	delayed
	taken
	buried
	gone
)

var phaseNames = [...]string{"not there", "ready", "delayed", "taken", "buried", "gone"}

// taskState is all that a queue knows of one task. Values compare by ==.
type taskState struct {
	phase   phase
	session string
	token   int64
	freed   int64 // the lease may end from here on, by an event
	until   int64 // or from here on, by its ttr
	due     int64 // delayed: ready from here on
	expires int64
}

func (t taskState) mayBeFree(at int64) bool {
	return earlier(t.freed, t.until) <= at
}

// heldBy: by this session, and by this token where both are known.
func (t taskState) heldBy(one *op) bool {
	return t.phase == taken && t.session == one.session &&
		(t.token < 0 || one.token < 0 || t.token == one.token)
}

func (t taskState) wait(one *op) taskState {
	t.phase, t.session, t.token, t.due = ready, "", -1, 0
	if one.delay > 0 {
		t.phase, t.due = delayed, one.began+one.delay
	}
	return t
}

// do is the model: whether a queue may have done this in this state, and the state after it.
func (t taskState) do(one *op) (bool, taskState) {
	if one.outcome == refused && !one.open {
		return t.mayRefuse(one), t
	}
	ok, after := t.change(one)
	if !ok && one.open {
		return true, t
	}
	return ok, after
}

func (t taskState) change(one *op) (bool, taskState) {
	after := t
	switch one.kind {
	case put:
		if t.phase != missing {
			return one.key != "", t
		}
		after = after.wait(one)
		after.expires = one.expires
		return true, after
	case take:
		free := t.phase == ready || t.phase == delayed && t.due <= one.ended ||
			t.phase == taken && t.mayBeFree(one.ended)
		after.phase, after.session, after.token = taken, one.session, one.token
		after.freed, after.until, after.due = one.freed, one.leaseUntil, 0
		return free, after
	case touch:
		after.until = one.leaseUntil
		return t.heldBy(one), after
	case ack:
		return t.heldBy(one), taskState{phase: gone}
	case release:
		return t.heldBy(one), after.wait(one)
	case bury:
		after.phase, after.session, after.token = buried, "", -1
		return t.heldBy(one), after
	case kick:
		after.phase = ready
		return t.phase == buried, after
	case remove:
		return t.phase != missing && t.phase != gone, taskState{phase: gone}
	case peek:
		return t.mayShow(one), t
	case absent:
		return t.isOver(one.ended), t
	}
	return false, t
}

func (t taskState) isOver(at int64) bool {
	return t.phase == missing || t.phase == gone || t.expires <= at
}

func (t taskState) mayRefuse(one *op) bool {
	switch one.result {
	case "not_taken":
		return !t.heldBy(one) || t.mayBeFree(one.ended) || t.expires <= one.ended
	case "not_found":
		return t.isOver(one.ended)
	}
	return true
}

// mayShow: a take whose answer was lost may have it in hand, so `taken` proves little.
func (t taskState) mayShow(one *op) bool {
	if t.phase == missing || t.phase == gone {
		return false
	}
	switch one.result {
	case "ready":
		return t.phase == ready || t.phase == delayed && t.due <= one.ended ||
			t.phase == taken && t.mayBeFree(one.ended)
	case "buried":
		return t.phase == buried
	case "delayed":
		return t.phase == delayed
	}
	return t.phase != buried
}

var taskModel = porcupine.Model{
	Init: func() interface{} { return taskState{token: -1, freed: never, until: never, expires: never} },
	Step: func(state, input, _ interface{}) (bool, interface{}) {
		return state.(taskState).do(input.(*op))
	},
}

// why says in one word what is wrong when this operation has no place after that state.
func (t taskState) why(one *op) string {
	switch {
	case one.kind == absent:
		return "lost"
	case one.kind == put:
		return "id given twice"
	case one.outcome == refused && one.result == "not_found":
		return "vanished"
	case one.outcome == refused:
		return "lease lost without a cause"
	case one.kind == take && t.phase == taken:
		return "held twice"
	case one.kind == take && t.phase == gone:
		return "back after its end"
	case one.kind == ack && t.phase == gone:
		return "finished twice"
	case t.phase == taken:
		return "a stale " + kindNames[one.kind] + " accepted"
	}
	return kindNames[one.kind] + " of a task that is " + phaseNames[t.phase]
}
