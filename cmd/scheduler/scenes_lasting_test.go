package main

import (
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/test/chaos"
)

func TestSceneNothing(t *testing.T) {
	play(t, chaos.Scene{Play: func(s *chaos.Stage) {
		s.Create(chaos.Class("default"), chaos.Pool("default", "default"), chaos.Deployment(10, chaos.Template("web", "3", "1Gi")))
		s.Start()
		s.Until("all run", 5*time.Minute, s.Running(map[string]int{"web": 10}))
		s.NothingOpens()
		s.Pass(24 * time.Hour)
		s.AtMost("machines", s.Launched(), 10)
	}})
}
