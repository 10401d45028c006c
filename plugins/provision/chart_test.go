package provision

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
)

// Every argument can be given under settings of the chart, and nothing else but what the schema calls Karpenter's.
func TestChartHasEveryArgument(t *testing.T) {
	data, err := os.ReadFile("../../charts/dovetail/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties struct {
			Settings struct {
				Properties map[string]struct{ Description string }
			}
		}
	}
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	settings := schema.Properties.Settings.Properties
	arguments := map[string]bool{}
	for i := range reflect.TypeFor[Args]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[Args]().Field(i).Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		arguments[name] = true
		if of, ok := settings[name]; !ok || strings.HasPrefix(of.Description, "of Karpenter's chart") {
			t.Errorf("settings.%s is missing in the chart's schema", name)
		}
	}
	for name, of := range settings {
		if !arguments[name] && of.Description != "of Karpenter's chart; without effect here" {
			t.Errorf("settings.%s is no argument", name)
		}
	}
	if len(arguments) < 30 {
		t.Errorf("%d arguments: this test looks at the wrong type", len(arguments))
	}
}
