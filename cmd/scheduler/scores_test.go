//go:build scenes && scores

package main

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/chaos"
	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/kubeapi"
)

// What the scores of a profile cost: the whole program schedules the same load with several ways to score nodes, while it consolidates or
// ends empty nodes only. It takes 0.4 s of CPU time per node and hour; go run ./test/consolidation scores, where only
// the scheduler and the planners are real, takes a sixtieth of that. docs/design/scoring.md has the results.

var (
	scoreArms  = flag.String("scores.arms", "all", "ways to score that are compared, by name, separated by commas; all: all of them")
	scoreNodes = flag.Int("scores.nodes", 300, "about so many nodes at the peak")
	scoreHours = flag.Int("scores.hours", 24, "hours that count, after one that doesn't")
	scoreSeed  = flag.Uint64("scores.seed", 1, "determines the load")
	scoreEmpty = flag.Bool("scores.empty", false, "nothing is consolidated: only empty nodes end")
	scoreFrom  = flag.Float64("scores.from", 4, "the time of day at which it begins: the load is least at 4, most at 16")
)

// scoreArm is a way to score nodes.
type scoreArm struct {
	name     string
	strategy string // of NodeResourcesFit
	weight   int    // of NodeResourcesFit; 0: upstream's
	// unbalanced: without NodeResourcesBalancedAllocation.
	unbalanced bool
}

var scoreWays = []scoreArm{
	{name: "LeastAllocated", strategy: "LeastAllocated"},
	{name: "MostAllocated", strategy: "MostAllocated"},
	{name: "MostAllocated-10", strategy: "MostAllocated", weight: 10},
	{name: "MostAllocated-unbalanced", strategy: "MostAllocated", unbalanced: true},
	{name: "MostAllocated-10-unbalanced", strategy: "MostAllocated", weight: 10, unbalanced: true},
}

// configuration returns that of the whole scheduler with this way to score.
func (a scoreArm) configuration() string {
	enabled, more := "{name: Provision}, {name: Binder}", ""
	if a.weight > 0 {
		enabled += fmt.Sprintf(", {name: NodeResourcesFit, weight: %d}", a.weight)
	}
	if a.unbalanced {
		for _, point := range []string{"preScore", "score"} {
			more += fmt.Sprintf("\n      %s: {disabled: [{name: NodeResourcesBalancedAllocation}]}", point)
		}
	}
	return strings.NewReplacer("{enabled: [{name: Provision}, {name: Binder}]}", "{enabled: ["+enabled+"]}"+more, "type: MostAllocated", "type: "+a.strategy).Replace(hostedConfig)
}

// program is the whole scheduler with this way to score.
func (a scoreArm) program(m *scoreMeter) chaos.Program {
	return func(ctx context.Context, p chaos.Process) error {
		after := p.Kube.After
		p.Kube.After = func(c *kubeapi.Call, err error) *kubeapi.Fault {
			if err == nil && c.Verb == "create" && c.Sub == "eviction" {
				m.evictions.Add(1)
			}
			if err == nil && c.Verb == "create" && c.Sub == "binding" {
				m.bound.Add(1)
			}
			return after(c, err)
		}
		return host(ctx, p, a.configuration(), nil)
	}
}

// scoreMeter counts what a process does.
type scoreMeter struct{ evictions, bound atomic.Int64 }

// TestScores prints a line for each way to score. It has a build tag of its own, because it takes hours: make scores WHOLE=1.
func TestScores(t *testing.T) {
	prepare()
	measured := 0
	for _, a := range scoreWays {
		if *scoreArms != "all" && !strings.Contains(","+*scoreArms+",", ","+a.name+",") {
			continue
		}
		measured++
		t.Run(a.name, func(t *testing.T) { a.measure(t) })
	}
	if measured == 0 {
		t.Errorf("-scores.arms %s: there is no such way to score", *scoreArms)
	}
}

func (a scoreArm) measure(t *testing.T) {
	m, begun := &scoreMeter{}, time.Now()
	report := chaos.RunScene(t, cluster.Scheme, chaos.Scene{Seed: *scoreSeed, Program: a.program(m), Play: func(s *chaos.Stage) {
		l := newScoreLoad(*scoreSeed, *scoreNodes)
		pool := chaos.Saving("", "10%")
		if *scoreEmpty {
			pool.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmpty
		}
		s.Create(chaos.Class("default"), pool)
		l.create(s)
		s.Start()
		for range 60 {
			l.minute(s)
		}
		_, before := s.Hours()
		evictions, launches, bound, peak := m.evictions.Load(), s.Launched(), m.bound.Load(), 0
		for minute := range *scoreHours * 60 {
			l.minute(s)
			peak = max(peak, len(s.Cloud().Live()))
			if minute%60 == 59 {
				s.Note("$%.2f/h for %d nodes, %d evictions", s.Price(), len(s.Cloud().Live()), m.evictions.Load()-evictions)
			}
		}
		_, after := s.Hours()
		s.Note("RESULT %s seed %d empty %v: $ %.2f, evictions %d, launches %d, bound %d, peak %d nodes", a.name, *scoreSeed, *scoreEmpty,
			after-before, m.evictions.Load()-evictions, s.Launched()-launches, m.bound.Load()-bound, peak)
	}}, nil)
	t.Logf("%s, took %s\n%s", report.Passed, time.Since(begun).Round(time.Second), strings.Join(report.Note, "\n"))
	if len(report.Failures) > 0 {
		t.Errorf("failed:\n%s", strings.Join(report.Failures, "\n"))
	}
}

// scoreLoad is a day's load: Deployments with a daily curve and without one, and Jobs that come each hour. Autoscalers act every
// few minutes, each Deployment is rolled out once a day, and pods are restarted now and then.
type scoreLoad struct {
	random *rand.Rand
	apps   []*scoreApp
	now    int
}

type scoreApp struct {
	deployment *appsv1.Deployment
	peak       float64
	constant   bool
	phase      float64 // in hours
	rollOut    int     // minute of the day
	replicas   int
	jobs       *batchv1.CronJob // instead of a Deployment
}

const (
	scoreRestarts = 0.0005 // of the pods, per minute
	scoreTrough   = 0.35   // of the peak, by night
	scoreApps     = 30
	scoreJobsRun  = 13 * time.Minute // of each hour
)

func newScoreLoad(seed uint64, nodes int) *scoreLoad {
	l := &scoreLoad{random: rand.New(rand.NewPCG(seed, 77)), now: int(*scoreFrom * 60)}
	cpus := []int{250, 500, 1000, 1000, 1500, 2000, 2000, 3000, 4000}
	perCPU := []float64{1, 2, 3, 4, 6, 7.5}
	for i := range scoreApps {
		cpu := cpus[l.random.IntN(len(cpus))]
		memory := float64(cpu) / 1000 * perCPU[l.random.IntN(len(perCPU))]
		name := fmt.Sprintf("app%d", i)
		t := chaos.Template(name, fmt.Sprintf("%dm", cpu), fmt.Sprintf("%dMi", int(memory*1024)))
		// A node has about 15 CPUs; the part of an app varies by a factor of nine.
		peak := math.Ceil(float64(nodes) * 15000 / scoreApps / float64(cpu) * math.Pow(3, 2*l.random.Float64()-1) / 1.2)
		a := &scoreApp{peak: peak, phase: l.random.NormFloat64() * 1.5, rollOut: l.random.IntN(24 * 60)}
		switch {
		case i%7 == 3: // about 15 % of the pods
			a.jobs = chaos.CronJob(scoreJobsRun, batchv1.ForbidConcurrent, t)
			a.jobs.Spec.Schedule = fmt.Sprintf("%d * * * *", l.random.IntN(60))
			a.jobs.Spec.JobTemplate.Spec.Parallelism, a.jobs.Spec.JobTemplate.Spec.Completions = ptr.To(int32(peak)), ptr.To(int32(peak))
		case i%5 == 1:
			a.constant = true
			fallthrough
		default:
			a.replicas = a.target(l.now)
			a.deployment = chaos.Deployment(a.replicas, t)
		}
		l.apps = append(l.apps, a)
	}
	return l
}

// target returns how many replicas a Deployment should have at a minute.
func (a *scoreApp) target(now int) int {
	if a.constant {
		return int(a.peak)
	}
	hour := math.Mod(float64(now)/60+a.phase+24, 24)
	part := .5 - .5*math.Cos((hour-4)/24*2*math.Pi) // least at 4, most at 16
	return int(math.Round(a.peak * (scoreTrough + (1-scoreTrough)*part)))
}

func (l *scoreLoad) create(s *chaos.Stage) {
	for _, a := range l.apps {
		if a.jobs != nil {
			s.Create(a.jobs)
		} else {
			s.Create(a.deployment)
		}
	}
}

// minute lets a minute pass, and changes what there should be.
func (l *scoreLoad) minute(s *chaos.Stage) {
	s.Pass(time.Minute)
	l.now++
	for i, a := range l.apps {
		if a.jobs != nil {
			continue
		}
		if l.now%(24*60) == a.rollOut {
			chaos.Change(s, a.deployment, func(d *appsv1.Deployment) {
				metav1.SetMetaDataAnnotation(&d.Spec.Template.ObjectMeta, "rolled-out", fmt.Sprint(l.now))
			})
		}
		if want := a.target(l.now); l.now%5 == i%5 && want != a.replicas {
			a.replicas = want
			chaos.Change(s, a.deployment, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(want)) })
		}
		restarts := 0
		for range a.replicas {
			if l.random.Float64() < scoreRestarts {
				restarts++
			}
		}
		if restarts > 0 {
			pods := s.Pods(a.deployment.Spec.Selector.MatchLabels)
			for _, at := range l.random.Perm(len(pods))[:min(restarts, len(pods))] {
				s.Delete(pods[at])
			}
		}
	}
}
