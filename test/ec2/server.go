package ec2

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"hash/fnv"
	"net/http"
	"strings"

	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/test/ec2/model"
)

// Handler serves all AWS services and the admin API.
func (s *Sim) Handler() http.Handler {
	mux := http.NewServeMux()
	s.serveAdmin(mux)
	mux.HandleFunc("/", s.serve)
	return mux
}

// serve handles one API call:
//  1. read it and find its service and action,
//  2. take a token from the account's bucket,
//  3. call the Before hooks,
//  4. perform the action,
//  5. call the After hooks,
//  6. write the journal,
//  7. answer, or cut the connection.
func (s *Sim) serve(hw http.ResponseWriter, hr *http.Request) {
	r, err := readRequest(hr)
	if err != nil {
		s.refuse(hw, &Request{Service: signedFor(hr), requestID: "unread"}, err)
		return
	}
	r.requestID = fmt.Sprintf("%08x%s", uint32(s.requests.Add(1)), r.id[8:])
	r.Time, r.ignoreTags = s.clock.Now(), s.cfg.IgnoreTagFilters
	var answer any
	var lost bool
	if err = s.throttle(r); err == nil {
		if lost, err = s.fault(hr.Context(), before, r, nil); !lost && err == nil {
			answer, err = s.do(hr.Context(), r)
			var after error
			if lost, after = s.fault(hr.Context(), afterwards, r, err); after != nil {
				err = after
			}
		}
	}
	s.mu.Lock()
	s.world.journal.call(r, err, lost)
	s.mu.Unlock()
	klog.FromContext(hr.Context()).V(4).Info("EC2 simulator call", "service", r.Service, "action", r.Action, "results", r.results, "err", err, "lost", lost)
	switch {
	case lost:
		s.hangUp(hw)
	case err != nil:
		s.refuse(hw, r, err)
	default:
		s.reply(hw, r, answer)
	}
}

// do calls the action's function.
func (s *Sim) do(ctx context.Context, r *Request) (any, error) {
	if err := r.params.checkFilters(); r.Service == "ec2" && err != nil {
		return nil, err
	}
	a, ok := actions[r.Service+"."+r.Action]
	if !ok {
		return nil, failf("InvalidAction", "The action %s is not valid for this web service.", r.Action)
	}
	if err := model.Check(r.Service, r.Action, r.Form, r.Body); errors.Is(err, model.ErrValue) {
		return nil, failf("InvalidParameterValue", "%v", err)
	} else if err != nil {
		return nil, failf("UnknownParameter", "%v", err)
	}
	var refusal *apiError
	s.with(func(w *world) { refusal = w.permit(r) })
	if refusal != nil {
		return nil, refusal
	}
	answer, err := a(s, ctx, r)
	// Calls that change something look at DryRun themselves.
	if err == nil && r.Service == "ec2" && strings.HasPrefix(r.Action, "Describe") && r.params.bool("DryRun") {
		return nil, dryRun()
	}
	return answer, err
}

func (s *Sim) hangUp(hw http.ResponseWriter) {
	conn, _, err := http.NewResponseController(hw).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // which also cuts the connection
	}
	conn.Close()
}

func (s *Sim) reply(hw http.ResponseWriter, r *Request, answer any) {
	body, kind, err := encode(r, answer)
	if err != nil {
		s.refuse(hw, r, fmt.Errorf("encoding the answer: %w", err))
		return
	}
	hw.Header().Set("Content-Type", kind)
	hw.Header().Set("X-Amzn-Requestid", r.requestID)
	hw.Write(body) // fails only if the client has disconnected
}

// encode encodes an answer in the service's protocol.
func encode(r *Request, answer any) (body []byte, contentType string, err error) {
	if jsonService(r.Service) {
		if answer == nil {
			answer = struct{}{}
		}
		body, err = json.Marshal(answer)
		return body, jsonType(r.Service), err
	}
	var inner bytes.Buffer
	if answer != nil {
		if err := xml.NewEncoder(&inner).EncodeElement(answer, xml.StartElement{Name: xml.Name{Local: "r"}}); err != nil {
			return nil, "", err
		}
	}
	content := strings.TrimSuffix(strings.TrimPrefix(inner.String(), "<r>"), "</r>")
	var out bytes.Buffer
	out.WriteString(xml.Header)
	switch r.Service {
	case "ec2":
		fmt.Fprintf(&out, `<%[1]sResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>%[2]s</requestId>%[3]s</%[1]sResponse>`, r.Action, r.requestID, content)
	default:
		fmt.Fprintf(&out, `<%[1]sResponse xmlns="https://%[2]s.amazonaws.com/"><%[1]sResult>%[3]s</%[1]sResult><ResponseMetadata><RequestId>%[4]s</RequestId></ResponseMetadata></%[1]sResponse>`,
			r.Action, r.Service, content, r.requestID)
	}
	return out.Bytes(), "text/xml;charset=UTF-8", nil
}

// refuse answers with an error in the service's protocol.
func (s *Sim) refuse(hw http.ResponseWriter, r *Request, err error) {
	var e *apiError
	if !errors.As(err, &e) {
		e = &apiError{Code: "InternalError", Message: err.Error(), Status: http.StatusInternalServerError}
	}
	hw.Header().Set("X-Amzn-Requestid", r.requestID)
	var body []byte
	switch {
	case jsonService(r.Service):
		hw.Header().Set("Content-Type", jsonType(r.Service))
		hw.Header().Set("X-Amzn-Errortype", e.Code)
		body, err = json.Marshal(map[string]string{"__type": e.Code, "message": e.Message})
	case r.Service == "ec2" || r.Service == "":
		hw.Header().Set("Content-Type", "text/xml;charset=UTF-8")
		body, err = xml.Marshal(struct {
			XMLName xml.Name `xml:"Response"`
			Code    string   `xml:"Errors>Error>Code"`
			Message string   `xml:"Errors>Error>Message"`
			ID      string   `xml:"RequestID"`
		}{Code: e.Code, Message: e.Message, ID: r.requestID})
	default:
		hw.Header().Set("Content-Type", "text/xml")
		body, err = xml.Marshal(struct {
			XMLName xml.Name `xml:"ErrorResponse"`
			Type    string   `xml:"Error>Type"`
			Code    string   `xml:"Error>Code"`
			Message string   `xml:"Error>Message"`
			ID      string   `xml:"RequestId"`
		}{Type: "Sender", Code: e.Code, Message: e.Message, ID: r.requestID})
	}
	if err != nil {
		http.Error(hw, err.Error(), http.StatusInternalServerError)
		return
	}
	hw.WriteHeader(e.status())
	hw.Write(body)
}

func jsonService(service string) bool {
	return service == "ssm" || service == "pricing" || service == "sqs" || service == "eks" || service == "arc-zonal-shift"
}

func jsonType(service string) string {
	switch service {
	case "sqs":
		return "application/x-amz-json-1.0"
	case "eks", "arc-zonal-shift":
		return "application/json"
	}
	return "application/x-amz-json-1.1"
}

func hash64(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64() & 0xffffffffffff
}
