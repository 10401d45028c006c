package ec2

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sort"
	"strings"
	"time"
)

// Request is a call to the simulator, as fault hooks and the journal see it.
type Request struct {
	// Service is the signing name: ec2, ssm, iam, sts, pricing, eks, sqs.
	Service string
	Action  string
	Token   string
	Time    time.Time
	// Form are the parameters of a Query call, Body the body of a JSON call.
	Form url.Values
	Body []byte

	// id is equal for equal requests; requestID is unique, and part of the answer.
	id, requestID string

	params *params
	path   string
	http   *http.Request
	// ignoreTags: filters by tag are ignored.
	ignoreTags bool
	// results are IDs for the journal, set by the action.
	results []string
	// repeated is set if the answer is that of an earlier call with the same client token.
	repeated bool
}

// DryRun reports whether the call asks only whether it would succeed.
func (r *Request) DryRun() bool { return r.params.bool("DryRun") }

// maxBody is the longest body that EC2 accepts.
const maxBody = 1 << 20

func readRequest(hr *http.Request) (*Request, error) {
	body, err := io.ReadAll(io.LimitReader(hr.Body, maxBody+1))
	if err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	if len(body) > maxBody {
		return nil, failf("InvalidInput", "Request exceeds the allowed size limit")
	}
	r := &Request{http: hr, path: hr.URL.Path, Service: signedFor(hr), Body: body, id: fmt.Sprintf("%08x-0000-4000-8000-%012x", len(body), hash64(body))}
	switch target := hr.Header.Get("X-Amz-Target"); {
	case target != "":
		prefix, action, _ := strings.Cut(target, ".")
		r.Action = action
		r.Service = map[string]string{"AmazonSSM": "ssm", "AWSPriceListService": "pricing", "AmazonSQS": "sqs"}[prefix]
	case strings.HasPrefix(r.path, "/clusters/"):
		r.Service, r.Action = "eks", "DescribeCluster"
	case strings.HasPrefix(r.path, managedResources):
		r.Service, r.Action = "arc-zonal-shift", "GetManagedResource"
	default:
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return nil, failf("MalformedQueryString", "The query string is malformed: %v", err)
		}
		for k, v := range hr.URL.Query() {
			form[k] = v
		}
		r.Form, r.params = form, parseParams(form)
		r.Action, r.Token = form.Get("Action"), form.Get("ClientToken")
		if s := map[string]string{"2016-11-15": "ec2", "2010-05-08": "iam", "2011-06-15": "sts"}[form.Get("Version")]; s != "" {
			r.Service = s
		}
	}
	return r, nil
}

// signedFor returns the service in the credential scope, signedBy its access key: AKID/date/region/service/aws4_request.
func signedFor(hr *http.Request) string { return scopeOf(hr)[3] }

func signedBy(hr *http.Request) string { return scopeOf(hr)[0] }

func scopeOf(hr *http.Request) []string {
	_, rest, _ := strings.Cut(hr.Header.Get("Authorization"), "Credential=")
	scope, _, _ := strings.Cut(rest, ",")
	if parts := strings.Split(scope, "/"); len(parts) == 5 {
		return parts
	}
	return make([]string, 5)
}

// decode reads the body of a JSON call.
func (r *Request) decode(into any) error {
	if len(r.Body) == 0 {
		return nil
	}
	if err := json.Unmarshal(r.Body, into); err != nil {
		return failf("SerializationException", "%v", err)
	}
	return nil
}

// maxSummary is the maximum length of a request's summary in the journal.
const maxSummary = 600

// summary returns the parameters in one line, without user data and cut to a readable length.
func (r *Request) summary() string {
	if r.Form == nil {
		return cut(string(r.Body))
	}
	keys := make([]string, 0, len(r.Form))
	for k := range r.Form {
		if k != "Action" && k != "Version" && k != "ClientToken" {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	var b strings.Builder
	for _, k := range keys {
		v := r.Form.Get(k)
		if strings.HasSuffix(k, "UserData") {
			v = fmt.Sprintf("(%d bytes)", len(v))
		}
		fmt.Fprintf(&b, "%s=%s ", k, v)
		if b.Len() > maxSummary {
			break
		}
	}
	return cut(strings.TrimSpace(b.String()))
}

func cut(s string) string {
	if len(s) > maxSummary {
		return s[:maxSummary] + "..."
	}
	return s
}

// fingerprint identifies requests that may share a client token: a hash of everything but the token itself.
func (r *Request) fingerprint() [sha256.Size]byte {
	form := url.Values{}
	for k, v := range r.Form {
		if k != "ClientToken" && k != "DryRun" {
			form[k] = v
		}
	}
	return sha256.Sum256([]byte(form.Encode()))
}
