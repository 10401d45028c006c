package day

import (
	"math"
	"math/rand/v2"
)

// Load says how the number of pods changes over a day.
type Load struct {
	Name string
	// Flat: no class has a daily curve.
	Flat bool
	// Cron is the part of the pods that are there for 10 of every 45 minutes only.
	Cron float64
	// RollOuts: each Deployment is rolled out once a day.
	RollOuts bool
	// Spot: nodes are spot capacity, with prices that change.
	Spot bool
}

const (
	restarts    = 0.0005 // the part of pods that is restarted per minute
	flat        = 0.2    // the part of the pods that have no daily curve
	trough      = 0.35   // of the peak, by night
	rollOutStep = 4      // minutes of a roll-out, which replaces as many pods in each
	cronPeriod  = 45.
	cronOn      = 10.
)

// habit is how a class's number of pods changes.
type habit int

const (
	diurnal habit = iota
	constant
	cron
)

// demand is how many pods of each class there should be.
type demand struct {
	load   Load
	random *rand.Rand
	habits []habit
	// phase is in hours, peak in pods.
	phase, peak []float64
	// rollOut is the minute of the day at which the class is rolled out.
	rollOut []int
	want    []int
}

func newDemand(l Load, peak []float64, seed uint64) *demand {
	d := &demand{load: l, random: rand.New(rand.NewPCG(seed, 77)), peak: peak, want: make([]int, len(peak))}
	total := 0.0
	for _, p := range peak {
		total += p
	}
	d.habits, d.phase, d.rollOut = make([]habit, len(peak)), make([]float64, len(peak)), make([]int, len(peak))
	before := 0.0 // the part of the pods whose classes have been given a habit
	for _, class := range d.random.Perm(len(peak)) {
		switch {
		case before < l.Cron:
			d.habits[class], d.phase[class] = cron, d.random.Float64()*24
		case before > 1-flat || l.Flat:
			d.habits[class] = constant
		default:
			d.habits[class], d.phase[class] = diurnal, d.random.NormFloat64()*1.5
		}
		before += peak[class] / total
		d.rollOut[class] = d.random.IntN(24 * 60)
	}
	return d
}

// retarget sets what is wanted at a minute. Autoscalers act every few minutes.
func (d *demand) retarget(now int) {
	for class := range d.want {
		if d.habits[class] != diurnal || now%3 == class%3 {
			d.want[class] = d.target(class, now)
		}
	}
}

func (d *demand) target(class, now int) int {
	switch d.habits[class] {
	case constant:
		return int(math.Round(d.peak[class]))
	case cron:
		if math.Mod(float64(now)+d.phase[class]*60, cronPeriod) < cronOn {
			return int(d.peak[class])
		}
		return 0
	}
	hour := math.Mod(float64(now)/60+d.phase[class], 24)
	part := .5 - .5*math.Cos((hour-4)/24*2*math.Pi) // least at 4, most at 16
	return int(math.Round(d.peak[class] * (trough + (1-trough)*part)))
}

// change returns how many pods of a class go and how many arrive in a minute, if there are have.
func (d *demand) change(class, have, now int) (gone, arrive int) {
	again := 0
	for range min(have, d.want[class]) {
		if d.random.Float64() < restarts {
			again++
		}
	}
	if since := now%(24*60) - d.rollOut[class]; d.load.RollOuts && since >= 0 && since < rollOutStep {
		again = min(have, max(again, (d.want[class]+rollOutStep-1)/rollOutStep))
	}
	over := have - d.want[class]
	again = min(again, have-max(0, over))
	return max(0, over) + again, max(0, -over) + again
}

// spotPrices are prices that move around a mean of their own, hour by hour.
type spotPrices struct {
	random         *rand.Rand
	onDemand, mean []float64
	deviation      []float64 // of the logarithm
}

func newSpotPrices(onDemand []float64, seed uint64) *spotPrices {
	p := &spotPrices{random: rand.New(rand.NewPCG(seed, 11)), onDemand: onDemand, deviation: make([]float64, len(onDemand))}
	for range onDemand {
		p.mean = append(p.mean, .3+.3*p.random.Float64())
	}
	return p
}

// next returns the prices of the next hour.
func (p *spotPrices) next() []float64 {
	out := make([]float64, len(p.onDemand))
	for i := range out {
		p.deviation[i] = .95*p.deviation[i] + .03*p.random.NormFloat64()
		out[i] = p.onDemand[i] * min(1, p.mean[i]*math.Exp(p.deviation[i]))
	}
	return out
}

// Loads are the days of the benchmark.
var Loads = []Load{
	{Name: "cron", Cron: 0.15},
	{Name: "cron and roll-outs", Cron: 0.15, RollOuts: true},
	{Name: "flat", Flat: true},
	{Name: "diurnal"},
	{Name: "roll-outs", RollOuts: true},
	{Name: "spot prices", Spot: true},
}
