package antiaffinity

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func selector(t testing.TB, text string) labels.Selector {
	t.Helper()
	out, err := labels.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// class returns a class of namespace d with the labels, whose terms are for hosts.
func class(key string, of labels.Set, terms ...capacity.PodTerm) *capacity.Class {
	return &capacity.Class{Key: capacity.ClassKey(key), Namespace: "d", Labels: of, AntiAffinity: terms}
}

func host(selects labels.Selector) capacity.PodTerm {
	return capacity.PodTerm{TopologyKey: capacity.LabelHostname, Namespaces: []string{"d"}, Selector: selects}
}

func all(capacity.ClassKey) bool { return true }

func TestApart(t *testing.T) {
	elsewhere := class("web", labels.Set{"app": "web"})
	elsewhere.Namespace = "e"
	zonal := host(selector(t, "app=web"))
	zonal.TopologyKey = capacity.LabelZone
	anywhere, some := host(selector(t, "app=web")), host(selector(t, "app=web"))
	anywhere.NamespaceSelector, some.NamespaceSelector = labels.Everything(), selector(t, "team=a")
	web := class("web", labels.Set{"app": "web", "size": "3"})
	for name, tc := range map[string]struct {
		there, asks *capacity.Class
		want        bool
	}{
		"neither has a term":                  {web, class("db", nil), false},
		"a value":                             {web, class("db", nil, host(selector(t, "app=web"))), true},
		"one of several values":               {web, class("db", nil, host(selector(t, "app in (api, web)"))), true},
		"another value":                       {web, class("db", nil, host(selector(t, "app=api"))), false},
		"a value, and another label is wrong": {web, class("db", nil, host(selector(t, "app=web,size=4"))), false},
		"a label":                             {web, class("db", nil, host(selector(t, "app"))), true},
		"a larger value":                      {web, class("db", nil, host(selector(t, "size>2"))), true},
		"a label that is absent":              {web, class("db", nil, host(selector(t, "!tier"))), true},
		"no label asked for":                  {web, class("db", nil, host(labels.Everything())), true},
		"nothing selected":                    {web, class("db", nil, host(labels.Nothing())), false},
		"no selector":                         {web, class("db", nil, host(nil)), false},
		"zones":                               {web, class("db", nil, zonal), false},
		"the second term":                     {web, class("db", nil, zonal, host(selector(t, "app=web"))), true},
		"another namespace":                   {elsewhere, class("db", nil, host(selector(t, "app=web"))), false},
		"all namespaces":                      {elsewhere, class("db", nil, anywhere), true},
		"namespaces by their labels":          {elsewhere, class("db", nil, some), false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, pair := range [][2]*capacity.Class{{tc.there, tc.asks}, {tc.asks, tc.there}} {
				x := New()
				x.Add(pair[0])
				if got := x.Apart(pair[1], all); got[pair[0].Key] != tc.want || !tc.want && got != nil {
					t.Errorf("%s is asked for: %v, want %t", pair[1].Key, got, tc.want)
				}
				if got := x.Apart(pair[1], func(capacity.ClassKey) bool { return false }); got != nil {
					t.Errorf("%v don't count", got)
				}
				x.Remove(pair[0].Key)
				if x.Len()+len(x.lists)+len(x.namespaces) > 0 || x.Apart(pair[1], all) != nil {
					t.Errorf("something is left of the class: %v", slices.Collect(maps.Keys(x.lists)))
				}
			}
		})
	}
}

// Only classes that may conflict are looked at, however many share a label that terms ask for, too.
func TestApartLooksAtFew(t *testing.T) {
	x := New()
	for i := range 5_000 {
		app := fmt.Sprintf("app-%d", i)
		x.Add(class(app, labels.Set{"app": app, "managed-by": "helm"}, host(selector(t, "managed-by=helm,app="+app))))
		x.Add(class("plain-"+app, labels.Set{"app": app, "managed-by": "helm"}))
	}
	asks := class("new", labels.Set{"app": "app-7", "managed-by": "helm"}, host(selector(t, "managed-by=helm,app=app-7")))
	looked := 0
	got := x.Apart(asks, func(capacity.ClassKey) bool {
		looked++
		return true
	})
	if want := map[capacity.ClassKey]bool{"app-7": true, "plain-app-7": true}; !maps.Equal(got, want) {
		t.Errorf("apart from %v, want %v", got, want)
	}
	if looked > 10 {
		t.Errorf("looked at %d of 10,000 classes", looked)
	}
}

// A class that is added twice is there once.
func TestAddTwice(t *testing.T) {
	x, c := New(), class("a", labels.Set{"app": "a"}, host(selector(t, "app=a")), host(selector(t, "app=a")))
	x.Add(c)
	if x.Add(c); x.Len() != 1 || !x.Apart(c, all)["a"] {
		t.Errorf("%d classes", x.Len())
	}
	x.Remove("a")
	if x.Remove("a"); x.Len()+len(x.lists) > 0 {
		t.Errorf("%d classes are left", x.Len())
	}
}

// BenchmarkApart asks for one pod among many classes, each of an app of its own: all have a term that selects their like, or none has. every is a
// comparison with every class.
func BenchmarkApart(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		for _, repelling := range []bool{false, true} {
			x, classes := New(), make([]*capacity.Class, n)
			for i := range classes {
				app := fmt.Sprintf("app-%d", i)
				c := class(app, labels.Set{"app": app, "managed-by": "helm"})
				if repelling {
					c.AntiAffinity = append(c.AntiAffinity, host(selector(b, "app="+app)))
				}
				classes[i] = c
				x.Add(c)
			}
			asks := class("new", labels.Set{"app": "app-7", "managed-by": "helm"}, host(selector(b, "app=app-7")))
			name := fmt.Sprintf("classes=%d/repelling=%t", n, repelling)
			b.Run(name+"/index", func(b *testing.B) {
				for b.Loop() {
					x.Apart(asks, all)
				}
			})
			b.Run(name+"/every", func(b *testing.B) {
				for b.Loop() {
					for _, c := range classes {
						capacity.Apart(asks, c)
					}
				}
			})
			b.Run(name+"/add-remove", func(b *testing.B) {
				for b.Loop() {
					x.Add(asks)
					x.Remove(asks.Key)
				}
			})
		}
	}
}
