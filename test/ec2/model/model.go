// Package model knows which parameters the actions of EC2, IAM, STS, SQS, SSM and the price list have, and which values their enums: those of
// aws-sdk-go-v2, which is generated from the services' own models. The SDK doesn't contain the models, so requests in which every parameter is
// set are serialized by it and read. EKS's only action has none: its parameter is in the path.
package model

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

// deepest bounds how far structures that contain themselves are followed.
const deepest = 8

// open are enums to which EC2 adds values faster than there are SDKs.
var open = []reflect.Type{reflect.TypeFor[types.InstanceType]()}

// action is what is known of an action: for each of its parameters the values that it may have, or nil if it isn't an enum. Indices of lists are
// written N.
type action map[string][]string

var known sync.Map // *learned by service and action

type learned struct {
	once   sync.Once
	params action
	err    error
}

// unchecked is where EC2 looks at values only when something is launched.
const unchecked = "LaunchTemplateData."

// ErrUnknown means that an action has no such parameter, ErrValue that a value isn't one of the parameter's enum.
var ErrUnknown, ErrValue = errors.New("not recognized"), errors.New("invalid")

// Check returns an error that names the first parameter of a request that the action doesn't have, or whose value isn't one of its enum.
// Parameters are in the form of query protocols, or in a JSON object.
func Check(service, name string, form url.Values, object []byte) error {
	if service == "eks" || service == "arc-zonal-shift" {
		return nil
	}
	l, _ := known.LoadOrStore(service+"."+name, &learned{})
	of := l.(*learned)
	of.once.Do(func() { of.params, of.err = learn(service, name) })
	if of.err != nil {
		return of.err
	}
	if form == nil {
		var err error
		if form, err = flat(object); err != nil {
			return fmt.Errorf("the request of %s is %w: %w", name, ErrValue, err)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(form)) {
		if key == "Action" || key == "Version" {
			continue
		}
		values, ok := of.params[normal(key)]
		if !ok {
			return fmt.Errorf("the parameter %s of %s is %w", key, name, ErrUnknown)
		}
		if v := form.Get(key); values != nil && !strings.HasPrefix(key, unchecked) && !slices.Contains(values, v) {
			return fmt.Errorf("value (%s) for parameter %s of %s is %w, it must be one of %s", v, key, name, ErrValue, strings.Join(values, ", "))
		}
	}
	return nil
}

// normal writes the indices in a parameter's name as N.
func normal(key string) string {
	parts := strings.Split(key, ".")
	for i, p := range parts {
		if _, err := strconv.Atoi(p); err == nil {
			parts[i] = "N"
		}
	}
	return strings.Join(parts, ".")
}

// errCaptured ends a call whose request has been read.
var errCaptured = errors.New("captured")

type capture struct{ form url.Values }

// flat writes a JSON object as a form: names of nested values are joined by dots, with indices of lists from 1 on.
func flat(object []byte) (url.Values, error) {
	var all map[string]any
	if err := json.Unmarshal(object, &all); err != nil {
		return nil, err
	}
	out := url.Values{}
	var add func(name string, v any)
	add = func(name string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, one := range v {
				add(name+"."+key, one)
			}
		case []any:
			for i, one := range v {
				add(fmt.Sprintf("%s.%d", name, i+1), one)
			}
		default:
			out.Set(name, fmt.Sprint(v))
		}
	}
	for key, one := range all {
		add(key, one)
	}
	return out, nil
}

func (c *capture) Do(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if r.Header.Get("X-Amz-Target") != "" {
		c.form, err = flat(body)
	} else {
		c.form, err = url.ParseQuery(string(bytes.TrimSpace(body)))
	}
	return nil, cmp.Or(err, errCaptured)
}

// learn serializes a request of the action with everything set.
func learn(service, name string) (action, error) {
	c := &capture{}
	config := aws.Config{Region: "us-west-2", BaseEndpoint: aws.String("http://model.invalid"), HTTPClient: c, Retryer: func() aws.Retryer { return aws.NopRetryer{} },
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "MODEL", SecretAccessKey: "model"}, nil
		})}
	var client any
	switch service {
	case "ec2":
		client = ec2.NewFromConfig(config)
	case "iam":
		client = iam.NewFromConfig(config)
	case "sqs":
		client = sqs.NewFromConfig(config)
	case "ssm":
		client = ssm.NewFromConfig(config)
	case "sts":
		client = sts.NewFromConfig(config)
	case "pricing":
		client = pricing.NewFromConfig(config)
	default:
		return nil, fmt.Errorf("service %q isn't known", service)
	}
	method := reflect.ValueOf(client).MethodByName(name)
	if !method.IsValid() || method.Type().NumIn() < 2 {
		return nil, fmt.Errorf("aws-sdk-go-v2 knows no action %s of %s", name, service)
	}
	f := &filler{values: map[string][]string{}}
	input := reflect.New(method.Type().In(1).Elem())
	f.fill(input.Elem(), 0)
	out := method.Call([]reflect.Value{reflect.ValueOf(context.Background()), input})
	if err, _ := out[1].Interface().(error); !errors.Is(err, errCaptured) {
		return nil, fmt.Errorf("serializing %s: %w", name, err)
	}
	params := action{}
	for key, v := range c.form {
		params[normal(key)] = f.values[v[0]]
	}
	return params, nil
}

// filler sets everything in an input. The text that it sets for an enum stands for the enum's values.
type filler struct{ values map[string][]string }

func (f *filler) fill(v reflect.Value, depth int) {
	if depth > deepest {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), depth)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(1, 0)))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				f.fill(v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte("x"))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.fill(v.Index(0), depth)
	case reflect.String:
		v.SetString(f.text(v))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1)
	}
}

func (f *filler) text(v reflect.Value) string {
	m := v.MethodByName("Values")
	if !m.IsValid() || slices.Contains(open, v.Type()) {
		return "x"
	}
	var values []string
	list := m.Call(nil)[0]
	for i := range list.Len() {
		values = append(values, list.Index(i).String())
	}
	f.values["enum "+v.Type().Name()] = values
	return "enum " + v.Type().Name()
}
