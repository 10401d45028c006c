package guard

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite testdata/*.txt with what comes out now; understand the difference before you keep it")

// TestDialogues plays testdata/*.txt: commands, each followed by its expected output after ">". The commands are methods of dialogue.
func TestDialogues(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no dialogues: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(strings.Split(string(text), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("the dialogue went otherwise (-want +got):\n%s", diff)
			}
		})
	}
}

// epoch is the time at which every test begins.
var epoch = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)

// dialogue runs commands against a guard. Machines are of class c and, unless a command says otherwise, of image i, zone z and pool a.
type dialogue struct {
	g   *Guard
	now time.Time
	all []Bought // live machines, with their names in Round, after a space
	out strings.Builder
}

func play(text string) string {
	d := &dialogue{g: New(), now: epoch}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, ">") {
			continue
		}
		d.out.WriteString(line + "\n")
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] != "#" {
			d.do(fields[0], fields[1:])
			for _, n := range d.g.Take() {
				d.say("%s %s", n.Kind, n.Key)
			}
		}
	}
	return d.out.String()
}

func (d *dialogue) say(format string, args ...any) { fmt.Fprintf(&d.out, "> "+format+"\n", args...) }

func (d *dialogue) do(command string, args []string) {
	arg := func(i int) string {
		if i < len(args) {
			return args[i]
		}
		return ""
	}
	words := func(from int) string { return strings.Join(args[min(from, len(args)):], " ") }
	switch command {
	case "at": // TIME since the beginning
		if after, err := time.ParseDuration(arg(0)); err == nil {
			d.now = epoch.Add(after)
		}
		d.g.Tick(d.now)
	case "buy": // MACHINES WORKLOADS [POOL] [ZONES]: one round; the machines are probes of all breakers that are due
		d.buy(strings.Split(arg(0), ","), split(arg(1)), arg(2), arg(3))
	case "located": // MACHINE ZONE [IMAGE]
		d.g.Locate(arg(0), arg(2), arg(1))
	case "initialized":
		d.g.Initialized(arg(0), d.now)
	case "steady":
		d.g.Steady(arg(0), d.now)
	case "served": // MACHINE [WORKLOAD]
		d.g.Serve(arg(0), workload(arg(1)), d.now)
	case "broken": // MACHINES CAUSE
		for _, name := range split(arg(0)) {
			d.g.Fail(name, Fault{Machine: true, Cause: words(1), Message: words(1)}, d.now)
		}
	case "refused": // MACHINE CAUSE
		d.g.Fail(arg(0), Fault{Machine: true, Cause: words(1), Message: words(1), Refused: true}, d.now)
	case "failed": // MACHINES WORKLOADS|all CAUSE
		for _, name := range split(arg(0)) {
			f := Fault{Cause: words(2), Message: words(2)}
			if f.Cause == "deleted" {
				f = *Deleted("deleted")
			}
			if arg(1) != "all" {
				f.Workloads = workloads(split(arg(1)))
			}
			d.g.Fail(name, f, d.now)
		}
	case "thrown": // MACHINE|- WORKLOAD DESIRED CAUSE: off a machine of pool a
		desired, _ := strconv.Atoi(arg(2))
		d.g.Throw(arg(0), "a", workload(arg(1)), desired, Fault{Cause: words(3), Message: words(3)}, d.now)
	case "waited": // MACHINE WORKLOAD CAUSE
		d.g.Fail(arg(0), Fault{Cause: words(2), Message: words(2), Workloads: workloads(split(arg(1))), Waited: true}, d.now)
	case "ended":
		for _, name := range split(arg(0)) {
			d.g.End(name, d.now)
			d.all = slices.DeleteFunc(d.all, func(m Bought) bool { return strings.HasSuffix(m.Round, " "+name) })
		}
	case "changed", "retried": // WORKLOAD, or everything
		match := func(k Key) bool { return arg(0) == "" || k.Workload == workload(arg(0)) }
		d.g.Changed(match, command == "retried", d.now)
	case "accepted":
		for _, b := range d.g.Breakers() {
			d.g.Accepted(b.Key, d.now)
		}
	case "restarted":
		d.restart()
	case "holds": // WORKLOAD [POOL] [ZONE]
		d.holds(workload(arg(0)), or(arg(1), "a"), or(arg(2), "z"))
	case "show":
		d.show()
	default:
		d.say("no such command")
	}
}

func (d *dialogue) buy(names, of []string, pool, zones string) {
	m := Bought{
		Purchase: Purchase{Round: fmt.Sprintf("%s %s", d.now, names[0]), Workloads: workloads(of)}, Pool: or(pool, "a"), Class: "c",
		Images: []string{"i"}, Zones: split(or(zones, "z")), At: d.now,
	}
	due := d.g.Due(d.now, nil)
	for _, w := range append(workloads(of), NoPod) {
		for _, zone := range m.Zones {
			for _, b := range []*Breaker{d.g.HoldsPods(m.Pool, w, d.now), d.g.HoldsMachine(m.Class, "i", zone)} {
				switch {
				case b == nil || slices.Contains(m.Probes, b.Key):
				case slices.Contains(due, b.Key):
					m.Probes = append(m.Probes, b.Key)
				default:
					d.say("although %s is paused", b.Key)
				}
			}
		}
	}
	for _, k := range m.Probes {
		d.say("a probe of %s", k)
	}
	for _, name := range names {
		d.g.Buy(name, m)
		if len(m.Zones) == 1 {
			d.g.Locate(name, "i", m.Zones[0])
		}
		kept := m
		kept.Round += " " + name
		d.all = append(d.all, kept)
	}
}

// restart replaces the guard by a new one made from the records.
func (d *dialogue) restart() {
	fresh := New()
	for o := range d.g.Owners() {
		if err := fresh.Restore(o, d.g.Encode(o, d.now)); err != nil {
			d.say("%v", err)
		}
	}
	for _, m := range d.all {
		i := strings.LastIndex(m.Round, " ")
		name := m.Round[i+1:]
		m.Round = m.Round[:i]
		fresh.Buy(name, m)
		if old := d.g.machines[name]; old.zone != "" {
			fresh.Locate(name, old.image, old.zone)
		}
	}
	fresh.Recovered(d.now)
	d.g = fresh
}

func (d *dialogue) holds(w Workload, pool, zone string) {
	held := false
	for _, b := range []*Breaker{d.g.HoldsPods(pool, w, d.now), d.g.HoldsMachine("c", "i", zone)} {
		if b != nil {
			d.say("%s", b.Text())
			held = true
		}
	}
	if !held {
		d.say("nothing")
	}
}

func (d *dialogue) show() {
	for _, b := range d.g.Breakers() {
		state := "next at " + b.Next.Sub(epoch).String()
		switch {
		case !b.Open():
			state = "closed"
		case b.Probing():
			state = "probing"
		case b.Refused:
			state = "refused"
		case !d.now.Before(b.Next):
			state = "due"
		}
		if b.Trial {
			state += ", on trial"
		}
		d.say("%s: %s, %d failed", b.Key, state, b.Failed)
	}
	if len(d.g.Breakers()) == 0 {
		d.say("no breakers")
	}
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func split(s string) []string {
	if s == "" || s == "nothing" {
		return nil
	}
	return strings.Split(s, ",")
}

// workload returns the workload of that name; a name with a slash is that of a machine bought for no pod.
func workload(name string) Workload {
	switch {
	case name == "":
		return Workload{}
	case strings.Contains(name, "/"):
		return Workload{Owner: name}
	}
	return Workload{Namespace: "n", Owner: name}
}

func workloads(names []string) (out []Workload) {
	for _, name := range names {
		out = append(out, workload(name))
	}
	return out
}
