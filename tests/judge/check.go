package main

import (
	"fmt"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// verdict is what came of one run.
type verdict struct {
	Run        string    `json:"run"`
	Source     string    `json:"source"`
	Replay     string    `json:"replay"`
	Operations int       `json:"operations"`
	Tasks      int       `json:"tasks"`
	Subqueues  int       `json:"subqueues"`
	Untold     int       `json:"untold"`
	Undone     int       `json:"undone"`
	NotJudged  []string  `json:"not_judged"`
	Undecided  []string  `json:"undecided"`
	Findings   []finding `json:"findings"`
	Notes      []string  `json:"notes"`
}

// judge looks at a run. steps: of the search, for each task and sub-queue.
func judge(this *run, steps int) verdict {
	made := verdict{Run: this.name, Source: this.source, Replay: this.replay, Operations: len(this.ops)}
	s := prepare(this)
	made.Untold, made.Tasks, made.Subqueues = len(s.untold), len(s.tasks), len(s.lanes)
	made.Undone = countUndone(this.ops)
	for _, one := range this.events {
		if one.event == "note" || one.event == "forced" {
			made.Notes = append(made.Notes, fmt.Sprintf("%.6f %s %s %s", float64(one.from)/1e6, one.event, one.node, one.text))
		}
	}
	for what, ops := range s.tasks {
		switch check(taskModel, ops, steps) {
		case porcupine.Unknown:
			made.Undecided = append(made.Undecided, what.String())
		case porcupine.Illegal:
			word, why := explain(taskModel, ops, func(state interface{}, one *op) string {
				return state.(taskState).why(one)
			})
			s.found(word, what.String(), why, ops)
		}
	}
	for at, ops := range s.lanes {
		where := fmt.Sprintf("%s sub-queue %s", at.tube, at.sub)
		if s.loose[at] {
			made.NotJudged = append(made.NotJudged, where)
			continue
		}
		switch check(subModel, ops, steps) {
		case porcupine.Unknown:
			// Where cuts are in play there may be too many ways to look at all of them.
			if countUndone(ops) > 0 {
				made.NotJudged = append(made.NotJudged, where)
			} else {
				made.Undecided = append(made.Undecided, where)
			}
		case porcupine.Illegal:
			word, why := explain(subModel, ops, func(state interface{}, one *op) string {
				return state.(*subState).why(one)
			})
			s.found(word, where, why, around(ops, why))
		}
	}
	made.Findings = s.findings
	sort.SliceStable(made.Findings, func(a, b int) bool { return made.Findings[a].Where < made.Findings[b].Where })
	sort.Strings(made.Undecided)
	sort.Strings(made.NotJudged)
	return made
}

func countUndone(ops []*op) (count int) {
	for _, one := range ops {
		if one.open && one.outcome != unknown {
			count++
		}
	}
	return count
}

func history(ops []*op) []porcupine.Operation {
	made := make([]porcupine.Operation, len(ops))
	for at, one := range ops {
		made[at] = porcupine.Operation{Input: one, Call: one.began, Return: one.ended}
	}
	return made
}

// check looks for an order, in so many steps. What may have been undone is first tried as if it was:
// an open operation may always stand behind all others, where it does nothing.
func check(model porcupine.Model, ops []*op, steps int) porcupine.CheckResult {
	stood := make([]*op, 0, len(ops))
	for _, one := range ops {
		if !one.open || one.outcome == unknown {
			stood = append(stood, one)
		}
	}
	result := search(model, stood, steps)
	if result != porcupine.Ok && len(stood) < len(ops) {
		result = search(model, ops, steps)
	}
	return result
}

// search is bounded by steps, not by time: the same history has the same verdict on every machine.
// When they are used up everything is let pass, and the verdict is Unknown.
func search(model porcupine.Model, ops []*op, steps int) porcupine.CheckResult {
	step, left := model.Step, steps
	model.Step = func(state, input, output interface{}) (bool, interface{}) {
		left--
		if left < 0 {
			return true, state
		}
		return step(state, input, output)
	}
	if porcupine.CheckOperations(model, history(ops)) {
		if left < 0 {
			return porcupine.Unknown
		}
		return porcupine.Ok
	}
	return porcupine.Illegal
}

// explain names the first operation that has no place, after the longest order there is.
func explain(model porcupine.Model, ops []*op, why func(interface{}, *op) string) (string, string) {
	_, info := porcupine.CheckOperationsVerbose(model, history(ops), 10*time.Second)
	var longest []porcupine.Operation
	for _, orders := range info.PartialLinearizationsOperations() {
		for _, order := range orders {
			if len(order) > len(longest) {
				longest = order
			}
		}
	}
	state, placed := model.Init(), map[*op]bool{}
	for _, one := range longest {
		_, state = model.Step(state, one.Input, nil)
		placed[one.Input.(*op)] = true
	}
	var first *op
	for _, one := range ops {
		if !placed[one] && !one.open && (first == nil || one.ended < first.ended) {
			first = one
		}
	}
	if first == nil {
		return "no order", "there is no order of these operations"
	}
	return why(state, first), "no place for " + first.String()
}

// around keeps what is shown short: the operations near the one that has no place.
func around(ops []*op, why string) []*op {
	for at, one := range ops {
		if "no place for "+one.String() == why {
			from, to := at-12, at+6
			if from < 0 {
				from = 0
			}
			if to > len(ops) {
				to = len(ops)
			}
			return ops[from:to]
		}
	}
	return ops
}
