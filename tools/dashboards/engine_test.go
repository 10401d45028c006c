package dashboards

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// database holds the series of all scrapes in memory.
type database struct {
	series      map[string]*history
	first, last time.Time
}

// history is one series.
type history struct {
	labels  labels.Labels
	samples []point
}

// point is a sample of a series; it implements chunks.Sample.
type point struct {
	at    int64 // ms
	value float64
}

func (p point) T() int64                      { return p.at }
func (p point) ST() int64                     { return 0 }
func (p point) F() float64                    { return p.value }
func (p point) H() *histogram.Histogram       { return nil }
func (p point) FH() *histogram.FloatHistogram { return nil }
func (p point) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p point) Copy() chunks.Sample           { return p }

// scrapeLabels are what Prometheus adds to each series of a scrape.
var scrapeLabels = map[string]string{"job": "karpenter", "namespace": "kube-system", "instance": "dovetail-0", "cluster": "test"}

// read reads the scrapes of a folder: files in the text format that are called after the time in milliseconds.
func read(folder string) (*database, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	db := &database{series: map[string]*history{}}
	for _, file := range files {
		ms, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(file), ".txt"), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s is not called after a time: %w", file, err)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := db.add(text, ms); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	if len(files) < 3 {
		return nil, fmt.Errorf("%d scrapes in %s: rates need some", len(files), folder)
	}
	return db, nil
}

// add adds a scrape.
func (db *database) add(text []byte, ms int64) error {
	if at := time.UnixMilli(ms); db.first.IsZero() {
		db.first, db.last = at, at
	} else {
		db.last = at
	}
	symbols := labels.NewSymbolTable()
	p := textparse.NewPromParser(text, symbols, false)
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var of labels.Labels
		p.Labels(&of)
		_, _, value := p.Series()
		b := labels.NewBuilder(of)
		for name, v := range scrapeLabels {
			if own := of.Get(name); own != "" {
				b.Set("exported_"+name, own) // as Prometheus does unless honorLabels is set
			}
			b.Set(name, v)
		}
		of = b.Labels()
		key := of.String()
		if db.series[key] == nil {
			db.series[key] = &history{labels: of}
		}
		db.series[key].samples = append(db.series[key].samples, point{ms, value})
	}
}

// names returns the metrics that there are.
func (db *database) names() map[string]bool {
	out := map[string]bool{}
	for _, h := range db.series {
		out[h.labels.Get(labels.MetricName)] = true
	}
	return out
}

// Querier implements storage.Queryable.
func (db *database) Querier(from, to int64) (storage.Querier, error) {
	return &querier{db, from, to}, nil
}

type querier struct {
	db       *database
	from, to int64
}

func (q *querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var out []storage.Series
	for _, h := range q.db.series {
		if slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(h.labels.Get(m.Name)) }) {
			continue
		}
		var samples []chunks.Sample
		for _, p := range h.samples {
			if p.at >= q.from && p.at <= q.to {
				samples = append(samples, p)
			}
		}
		if len(samples) > 0 {
			out = append(out, storage.NewListSeries(h.labels, samples))
		}
	}
	slices.SortFunc(out, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return &set{series: out, at: -1}
}

func (q *querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.New("not needed")
}

func (q *querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.New("not needed")
}

func (q *querier) Close() error { return nil }

// set is the answer to a selection.
type set struct {
	series []storage.Series
	at     int
}

func (s *set) Next() bool                        { s.at++; return s.at < len(s.series) }
func (s *set) At() storage.Series                { return s.series[s.at] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }
