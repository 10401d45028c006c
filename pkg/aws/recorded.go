package aws

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// pack returns a request as compressed JSON without empty fields, of which the SDK's types have many.
func pack(in *ec2.CreateFleetInput) ([]byte, error) {
	raw, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("writing the fleet request: %w", err)
	}
	var doc any
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("writing the fleet request: %w", err)
	}
	if raw, err = json.Marshal(dense(doc)); err != nil {
		return nil, fmt.Errorf("writing the fleet request: %w", err)
	}
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(raw); err != nil {
		return nil, fmt.Errorf("writing the fleet request: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("writing the fleet request: %w", err)
	}
	return out.Bytes(), nil
}

func unpack(request []byte) (*ec2.CreateFleetInput, error) {
	z, err := gzip.NewReader(bytes.NewReader(request))
	if err != nil {
		return nil, fmt.Errorf("reading the recorded fleet request: %w: %w", err, capacity.ErrRequestStale)
	}
	raw, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("reading the recorded fleet request: %w: %w", err, capacity.ErrRequestStale)
	}
	in := &ec2.CreateFleetInput{}
	if err := json.Unmarshal(raw, in); err != nil {
		return nil, fmt.Errorf("reading the recorded fleet request: %w: %w", err, capacity.ErrRequestStale)
	}
	if in.TargetCapacitySpecification == nil || len(in.LaunchTemplateConfigs) == 0 {
		return nil, fmt.Errorf("the recorded fleet request has no target capacity or no launch template: %w", capacity.ErrRequestStale)
	}
	return in, nil
}

// dense removes nulls, empty strings, false values and empty maps.
func dense(v any) any {
	switch t := v.(type) {
	case map[string]any:
		for k, e := range t {
			if e = dense(e); e == nil || e == "" || e == false {
				delete(t, k)
			} else {
				t[k] = e
			}
		}
	case []any:
		for i := range t {
			t[i] = dense(t[i])
		}
	}
	return v
}
