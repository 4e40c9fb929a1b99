// Judge reads histories of what clients of a cluster saw (FORMAT.md) and says whether a queue could
// have given those answers. It knows nothing else of the queue.
//
// Exit codes: 0 nothing is wrong, 1 something is, 2 a file cannot be read, 3 not decided.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync"
	"time"
)

const shownMax = 20

type total struct {
	runs, operations, tasks, subqueues, undone, untold, notJudged, undecided, findings int
}

func (t *total) add(one verdict) {
	t.runs++
	t.operations += one.Operations
	t.tasks += one.Tasks
	t.subqueues += one.Subqueues
	t.undone += one.Undone
	t.untold += one.Untold
	t.notJudged += len(one.NotJudged)
	t.undecided += len(one.Undecided)
	t.findings += len(one.Findings)
}

func (t *total) String() string {
	return fmt.Sprintf(
		"%d runs, %d operations, %d tasks, %d sub-queues, %d findings, %d undecided "+
			"(may be undone %d, untold tasks %d, sub-queues not judged %d)",
		t.runs, t.operations, t.tasks, t.subqueues, t.findings, t.undecided, t.undone, t.untold, t.notJudged)
}

func main() {
	steps := flag.Int("steps", 400_000, "of the search, for each task and each sub-queue")
	asJSON := flag.Bool("json", false, "a line of JSON for each run with findings, and the totals")
	least := flag.Int("least", 0, "with fewer operations the histories are too small: exit code 2")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: judge [-json] [-least N] [-steps N] FILE_OR_DIRECTORY...")
		flag.PrintDefaults()
	}
	flag.Parse()
	os.Exit(judgeAll(flag.Args(), *steps, *asJSON, *least))
}

func judgeAll(places []string, steps int, asJSON bool, least int) int {
	began := time.Now()
	paths, err := histories(places)
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("no histories (*.jsonl) in %s", strings.Join(places, ", "))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 2
	}
	verdicts, err := readAndJudge(paths, steps)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 2
	}
	all, bySource, shown := total{}, map[string]*total{}, 0
	for _, one := range verdicts {
		all.add(one)
		if bySource[one.Source] == nil {
			bySource[one.Source] = &total{}
		}
		bySource[one.Source].add(one)
		if len(one.Findings)+len(one.Undecided) > 0 && shown < shownMax {
			shown++
			show(one, asJSON)
		}
	}
	tell(all, bySource, time.Since(began), asJSON)
	switch {
	case all.findings > 0:
		return 1
	case all.operations < least:
		fmt.Fprintf(os.Stderr, "error: %d operations, at least %d are wanted\n", all.operations, least)
		return 2
	case all.undecided > 0:
		return 3
	}
	return 0
}

func histories(places []string) (paths []string, err error) {
	for _, place := range places {
		info, err := os.Stat(place)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			paths = append(paths, place)
			continue
		}
		err = filepath.Walk(place, func(path string, info os.FileInfo, err error) error {
			if err == nil && !info.IsDir() && strings.HasSuffix(path, ".jsonl") {
				paths = append(paths, path)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	sort.Strings(paths)
	return paths, nil
}

// readAndJudge gives the verdicts on all runs, by name. A name that comes twice is an error.
func readAndJudge(paths []string, steps int) ([]verdict, error) {
	var (
		lock     sync.Mutex
		group    sync.WaitGroup
		wrong    error
		verdicts []verdict
		where    = map[string]string{}
	)
	work := make(chan string)
	for n := 0; n < runtime.NumCPU(); n++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for path := range work {
				runs, err := readRuns(path)
				for name, one := range runs {
					if err == nil && !one.described {
						err = fmt.Errorf("%s: run %s has no line that describes it", path, name)
					}
					if err != nil {
						break
					}
					made := judge(one, steps)
					lock.Lock()
					if other, known := where[name]; known && err == nil {
						err = fmt.Errorf("%s: run %s is in %s, too", path, name, other)
					}
					where[name] = path
					verdicts = append(verdicts, made)
					lock.Unlock()
				}
				if err != nil {
					lock.Lock()
					wrong = err
					lock.Unlock()
				}
			}
		}()
	}
	for _, path := range paths {
		work <- path
	}
	close(work)
	group.Wait()
	sort.Slice(verdicts, func(a, b int) bool { return verdicts[a].Run < verdicts[b].Run })
	return verdicts, wrong
}

func show(one verdict, asJSON bool) {
	if asJSON {
		line, _ := json.Marshal(one)
		fmt.Println(string(line))
		return
	}
	fmt.Printf("run %s", one.Run)
	if one.Replay != "" {
		fmt.Printf(" (%s)", one.Replay)
	}
	fmt.Println()
	for _, note := range one.Notes {
		fmt.Println("  *", note)
	}
	for at, found := range one.Findings {
		if at == shownMax {
			fmt.Printf("  ... and %d more\n", len(one.Findings)-at)
			break
		}
		fmt.Printf("  %s: %s: %s\n", found.What, found.Where, found.Why)
		for _, line := range found.Story {
			fmt.Println("     ", line)
		}
	}
	for _, where := range one.Undecided {
		fmt.Println("  undecided:", where)
	}
}

func tell(all total, bySource map[string]*total, took time.Duration, asJSON bool) {
	if asJSON {
		line, _ := json.Marshal(map[string]interface{}{
			"runs": all.runs, "operations": all.operations, "tasks": all.tasks, "subqueues": all.subqueues,
			"findings": all.findings, "undecided": all.undecided, "undone": all.undone, "untold": all.untold,
			"not_judged": all.notJudged, "seconds": took.Seconds(),
		})
		fmt.Println(string(line))
		return
	}
	names := make([]string, 0, len(bySource))
	for name := range bySource {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Printf("%-11s %s\n", name, bySource[name])
	}
	fmt.Printf("%-11s %s, in %.1f s\n", "judged", &all, took.Seconds())
}
