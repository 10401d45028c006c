package ledger

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// buffers reads BUFFER=N: each has as many chunks, of the class of its name.
func (s *story) buffers(args arguments) error {
	var all []Buffer
	for name, n := range args.options {
		chunks, err := strconv.Atoi(n)
		if err != nil {
			return err
		}
		all = append(all, Buffer{UID: types.UID(name), Class: s.classOf(name + "-0"), Chunks: chunks})
	}
	s.ledger.Want(all)
	return nil
}

// chunks reads BUFFER@NODE.
func (s *story) chunks(words []string) (out []capacity.Placement, err error) {
	for _, word := range words {
		name, node, ok := strings.Cut(word, "@")
		if !ok {
			return nil, fmt.Errorf("%s is no chunk: BUFFER@NODE", word)
		}
		if !s.ledger.Has(node) && !s.ledger.Watches(node) {
			s.ledger.Existing(node, NodeStatus{Managed: true, Registered: true, Initialized: true})
		}
		out = append(out, capacity.Placement{Class: s.classOf(name + "-0"), Owner: types.UID(name), Node: node})
	}
	return out, nil
}

func (s *story) keep(args arguments) error {
	placements, err := s.chunks(args.names)
	s.ledger.PlaceChunks(placements)
	return err
}

func (s *story) shift(args arguments) error {
	placements, err := s.chunks(args.names[1:])
	s.ledger.MoveChunks(args.names[0], placements)
	return err
}

func (s *story) sift(args arguments) error {
	misfit := args.flag("misfit")
	n, err := strconv.Atoi(args.last())
	s.ledger.SiftChunks([]LostChunks{{Node: args.names[1], Buffer: types.UID(args.names[0]), N: n, Misfit: misfit}}, nil, s.now)
	return err
}

func (s *story) giveup(args arguments) error {
	s.ledger.GiveUpChunks(args.names[0])
	return nil
}

func (s *story) state(arguments) error {
	for _, b := range s.ledger.Buffers() {
		line := fmt.Sprintf("%s: %d ready, %d launching, %d missing", b.UID, b.Ready, b.Launching, b.Missing())
		if wait := b.Next.Sub(s.now); wait > 0 {
			line += fmt.Sprintf(", nothing is bought for %v", wait)
		}
		s.say("%s", line)
	}
	return nil
}
