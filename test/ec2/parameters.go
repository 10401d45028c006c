package ec2

import (
	"slices"
	"strings"
)

// parameterItem is an SSM parameter. LastModifiedDate is in seconds since 1970.
type parameterItem struct {
	Name             string
	Type             string
	Value            string
	Version          int
	LastModifiedDate float64
	ARN              string
	DataType         string
}

func (w *world) parameter(name string) (parameterItem, bool) {
	bare, _, _ := strings.Cut(name, ":") // NAME:VERSION
	v, ok := w.parameters[bare]
	return parameterItem{bare, "String", v, 1, float64(released[len(released)-1].Unix()), w.arn("ssm", "parameter"+bare), "aws:ec2:image"}, ok
}

func (w *world) getParameter(r *Request) (any, error) {
	var in struct{ Name string }
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	p, ok := w.parameter(in.Name)
	if !ok {
		return nil, failf("ParameterNotFound", "Parameter %s not found.", in.Name)
	}
	return struct{ Parameter parameterItem }{p}, nil
}

func (w *world) getParameters(r *Request) (any, error) {
	var in struct{ Names []string }
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	if len(in.Names) > 10 {
		return nil, failf("ValidationException", "1 validation error detected: names must have at most 10 members")
	}
	out := struct {
		Parameters        []parameterItem
		InvalidParameters []string
	}{[]parameterItem{}, []string{}}
	for _, n := range in.Names {
		if p, ok := w.parameter(n); ok {
			out.Parameters = append(out.Parameters, p)
		} else {
			out.InvalidParameters = append(out.InvalidParameters, n)
		}
	}
	return out, nil
}

func (w *world) getParametersByPath(r *Request) (any, error) {
	var in struct {
		Path, NextToken string
		Recursive       bool
		MaxResults      int
	}
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	if in.MaxResults == 0 {
		in.MaxResults = 10
	}
	prefix := strings.TrimSuffix(in.Path, "/") + "/"
	var names []string
	for n := range w.parameters {
		if rest, ok := strings.CutPrefix(n, prefix); ok && (in.Recursive || !strings.Contains(rest, "/")) && n > in.NextToken {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	out := struct {
		Parameters []parameterItem
		NextToken  string `json:",omitempty"`
	}{Parameters: []parameterItem{}}
	if len(names) > in.MaxResults {
		names = names[:in.MaxResults]
		out.NextToken = names[len(names)-1]
	}
	for _, n := range names {
		p, _ := w.parameter(n)
		out.Parameters = append(out.Parameters, p)
	}
	return out, nil
}
