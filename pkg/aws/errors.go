package aws

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// capacityCodes say that a pool, a subnet or a quota has no room for now. Fleets answer with them beside or instead of
// instances, RunInstances as an error.
var capacityCodes = []string{
	codeInsufficientCapacity, codeUnfulfillable, codeUnsupported, codeSpotQuota, codeVCPUQuota, codeInstanceQuota,
	codeNoAddresses, codeReservationExceeded, codeNoSpotRole,
}

// Codes with a meaning of their own in a fleet's Errors.
const (
	codeInsufficientCapacity = "InsufficientInstanceCapacity"
	codeUnfulfillable        = "UnfulfillableCapacity"
	codeUnsupported          = "Unsupported"
	codeSpotQuota            = "MaxSpotInstanceCountExceeded"
	codeVCPUQuota            = "VcpuLimitExceeded"
	codeInstanceQuota        = "InstanceLimitExceeded"
	codeNoAddresses          = "InsufficientFreeAddressesInSubnet"
	codeReservationExceeded  = "ReservationCapacityExceeded"
	codeNoSpotRole           = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
	codeFleetQuota           = "MaxFleetCountExceeded"
)

// code is the service's error code, or "" when the error did not come from a service.
func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// IsInsufficientCapacity says that there is no room for now; another offer may have some.
func IsInsufficientCapacity(err error) bool { return slices.Contains(capacityCodes, code(err)) }

// IsThrottled says that the account asks too much, or has too many requests open.
func IsThrottled(err error) bool { return throttleCode(code(err)) }

func throttleCode(c string) bool {
	switch c {
	case "RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled",
		"RequestThrottledException", "TooManyRequestsException", "SlowDown", "PriorRequestNotComplete", "BandwidthLimitExceeded",
		"EC2ThrottledException", codeFleetQuota:
		return true
	}
	return false
}

// IsNotFound says that the thing asked for by its id or name is not known, perhaps not yet.
func IsNotFound(err error) bool { return notFoundCode(code(err)) }

func notFoundCode(c string) bool {
	return c == "NoSuchEntity" || c == "NoSuchEntityException" || c == "ParameterNotFound" || c == "ResourceNotFoundException" ||
		strings.HasSuffix(c, ".NotFound") || strings.HasSuffix(c, ".NotFoundException") || strings.HasSuffix(c, ".Malformed") && strings.HasPrefix(c, "InvalidInstanceID")
}

// IsStale says that a request names a launch template or image that is gone: it has to be made anew.
func IsStale(err error) bool { return staleCode(code(err)) }

func staleCode(c string) bool {
	return strings.HasPrefix(c, "InvalidLaunchTemplate") && notFoundCode(c) || strings.HasPrefix(c, "InvalidAMIID")
}

// IsAlreadyExists says that something of that name is there.
func IsAlreadyExists(err error) bool {
	c := code(err)
	return c == "EntityAlreadyExists" || c == "EntityAlreadyExistsException" || strings.HasSuffix(c, ".AlreadyExists") || strings.HasSuffix(c, ".AlreadyExistsException")
}

// IsProfileUnknown says that EC2 does not know the instance profile, perhaps not yet: IAM tells it some seconds late.
func IsProfileUnknown(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && profileUnknown(api.ErrorCode(), api.ErrorMessage())
}

func profileUnknown(c, message string) bool {
	return c == "InvalidParameterValue" && strings.Contains(message, "Invalid IAM Instance Profile")
}

// IsTokenMismatch says that a client token can't be used for this request any more: it stands for another one, or for
// instances that have ended.
func IsTokenMismatch(err error) bool {
	c := code(err)
	return c == "IdempotentParameterMismatch" || c == "IdempotentInstanceTerminated"
}

// IsUnauthorized says that the caller lacks a permission.
func IsUnauthorized(err error) bool { return unauthorizedCode(code(err)) }

func unauthorizedCode(c string) bool {
	return c == "UnauthorizedOperation" || c == "AccessDenied" || c == "AccessDeniedException" || c == "OptInRequired" || strings.HasPrefix(c, "AuthFailure") && c != codeNoSpotRole
}

// IsRefused says that the service understood the request and will not do it however often it is repeated: a bad
// parameter, a missing permission. What was repeated until the call's deadline is none of these.
func IsRefused(err error) bool {
	c := code(err)
	if c == "" || errors.Is(err, context.DeadlineExceeded) || IsInsufficientCapacity(err) || IsThrottled(err) || IsTokenMismatch(err) || IsStale(err) {
		return false
	}
	if unauthorizedCode(c) {
		return true
	}
	var api smithy.APIError
	var resp *awshttp.ResponseError
	errors.As(err, &api)
	switch {
	case errors.As(err, &resp) && resp.HTTPStatusCode() >= http.StatusInternalServerError:
		return false
	case c == "InternalError" || c == "InternalFailure" || c == "Unavailable" || c == "ServiceUnavailable" || c == "RequestExpired":
		return false
	}
	return api.ErrorFault() != smithy.FaultServer
}

// IsMissingCredentials says that no credentials could be found: nothing was asked of AWS.
func IsMissingCredentials(err error) bool {
	var told *callError
	if errors.As(err, &told) {
		err = told.err
	}
	s := err.Error()
	return code(err) == "" && (strings.Contains(s, "get credentials") || strings.Contains(s, "refresh cached credentials"))
}

// IsUnreachable says that there was nobody to ask: no such host, or nothing that listens there.
func IsUnreachable(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// failure is an error as the seams to the cloud give it: what was being done, what kind of error it is to the caller, and AWS's own.
type failure struct {
	text string
	kind error // a sentinel of package capacity; nil: none fits
	err  error // nil: it was no call that failed
}

func (f *failure) Error() string { return f.text }

func (f *failure) Unwrap() []error {
	return slices.DeleteFunc([]error{f.kind, f.err}, func(err error) bool { return err == nil })
}

// wrap puts the sentinel of the cloud seam that fits around an error, which it says in brief. what is what was being done; empty: the caller
// says it.
func wrap(err error, what string) error {
	if err == nil {
		return nil
	}
	f := &failure{text: summarize(err), kind: kindOf(err), err: err}
	if what != "" {
		f.text = what + ": " + f.text
	}
	return f
}

func kindOf(err error) error {
	switch {
	case IsTokenMismatch(err):
		return capacity.ErrTokenMismatch
	case IsStale(err), IsProfileUnknown(err):
		return capacity.ErrRequestStale
	case IsInsufficientCapacity(err):
		return capacity.ErrInsufficientCapacity
	case IsThrottled(err):
		return capacity.ErrThrottled
	case strings.HasPrefix(code(err), "InvalidInstanceID"):
		return capacity.ErrInstanceNotFound
	case IsRefused(err):
		return capacity.ErrRefused
	}
	return nil
}

// callError is an error of a call in the words that are fit for events and conditions, in place of the SDK's, which have a request id in them. The
// SDK's are logged with each attempt.
type callError struct {
	text string
	err  error
}

func (s *callError) Error() string { return s.text }
func (s *callError) Unwrap() error { return s.err }

// summarize gives an error as a person wants to read it in an event or a condition: the service's code and message, without what is different each
// time it is said.
func summarize(err error) string {
	var s *callError
	var api smithy.APIError
	var answer *awshttp.ResponseError
	var attempt attemptTimeout
	var sent *url.Error
	switch {
	case errors.As(err, &s):
		return s.text
	case errors.As(err, &api) && api.ErrorCode() != "" && api.ErrorCode() != unknownCode:
		return strings.TrimSuffix(api.ErrorCode()+": "+plain(api.ErrorMessage()), ": ")
	case errors.As(err, &answer) && answer.HTTPStatusCode() > 0:
		return strings.TrimSpace(fmt.Sprintf("HTTP %d %s", answer.HTTPStatusCode(), http.StatusText(answer.HTTPStatusCode())))
	case IsMissingCredentials(err):
		return "no AWS credentials found"
	case errors.As(err, &attempt):
		return attempt.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer within the deadline"
	case errors.As(err, &sent):
		return "the connection to AWS failed: " + sent.Err.Error()
	}
	return err.Error()
}

// unknownCode is the SDK's for an answer without any.
const unknownCode = "UnknownError"

var (
	// Services name the calls that they make themselves, with their request ids.
	callOfService = regexp.MustCompile(` *\(Service: [^)]*\)`)
	// encodedFailure is for aws sts decode-authorization-message, more than 1,000 characters that are others each time.
	encodedFailure = regexp.MustCompile(` *Encoded authorization failure message:.*`)
)

func plain(message string) string {
	return strings.TrimSpace(encodedFailure.ReplaceAllString(callOfService.ReplaceAllString(message, ""), ""))
}
