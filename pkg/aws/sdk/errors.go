package sdk

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

// capacityCodes mean that a pool, a subnet or a quota has no capacity for now. Fleets answer with them beside or instead of instances,
// RunInstances as an error.
var capacityCodes = []string{
	codeInsufficientCapacity, codeUnfulfillable, codeUnsupported, CodeSpotQuota, CodeVCPUQuota, CodeInstanceQuota,
	CodeNoAddresses, CodeReservationExceeded, CodeNoSpotRole,
}

// Codes that are handled separately in a fleet's Errors.
const (
	codeInsufficientCapacity = "InsufficientInstanceCapacity"
	codeUnfulfillable        = "UnfulfillableCapacity"
	codeUnsupported          = "Unsupported"
	CodeSpotQuota            = "MaxSpotInstanceCountExceeded"
	CodeVCPUQuota            = "VcpuLimitExceeded"
	CodeInstanceQuota        = "InstanceLimitExceeded"
	CodeNoAddresses          = "InsufficientFreeAddressesInSubnet"
	CodeReservationExceeded  = "ReservationCapacityExceeded"
	CodeNoSpotRole           = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
	CodeNoEncryption         = "EncryptedVolumesNotSupported" // by the instance type; an account may encrypt all volumes
	codeFleetQuota           = "MaxFleetCountExceeded"
)

// NewError returns an error that a service has put into an answer instead of failing the call.
func NewError(code, message string) error {
	return &smithy.GenericAPIError{Code: code, Message: message}
}

// Code returns the service's error code, or "" if the error did not come from a service.
func Code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// IsInsufficientCapacity reports whether there is no capacity for now; another offering may have some.
func IsInsufficientCapacity(err error) bool { return slices.Contains(capacityCodes, Code(err)) }

// IsThrottled reports whether the account makes too many requests, or has too many open.
func IsThrottled(err error) bool { return throttleCode(Code(err)) }

func throttleCode(c string) bool {
	switch c {
	case "RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled",
		"RequestThrottledException", "TooManyRequestsException", "SlowDown", "PriorRequestNotComplete", "BandwidthLimitExceeded",
		"EC2ThrottledException", codeFleetQuota:
		return true
	}
	return false
}

// IsNotFound reports whether the object named by id or name is not known, perhaps not yet.
func IsNotFound(err error) bool { return notFoundCode(Code(err)) }

func notFoundCode(c string) bool {
	return c == "NoSuchEntity" || c == "NoSuchEntityException" || c == "ParameterNotFound" || c == "ResourceNotFoundException" ||
		strings.HasSuffix(c, ".NotFound") || strings.HasSuffix(c, ".NotFoundException") || strings.HasSuffix(c, ".Malformed") && strings.HasPrefix(c, "InvalidInstanceID")
}

// IsStale reports whether a request names a launch template or image that doesn't exist any more: the request has to be built again.
func IsStale(err error) bool { return staleCode(Code(err)) }

func staleCode(c string) bool {
	return strings.HasPrefix(c, "InvalidLaunchTemplate") && notFoundCode(c) || imageUnknownCode(c)
}

// IsImageUnknown reports whether EC2 doesn't know the image, or not any more.
func IsImageUnknown(err error) bool { return imageUnknownCode(Code(err)) }

func imageUnknownCode(c string) bool { return strings.HasPrefix(c, "InvalidAMIID") }

// IsPlacementUnknown reports whether the error means that the placement group doesn't exist.
func IsPlacementUnknown(err error) bool { return Code(err) == "InvalidPlacementGroup.Unknown" }

// IsAlreadyExists reports whether there is an object of that name already.
func IsAlreadyExists(err error) bool {
	c := Code(err)
	return c == "EntityAlreadyExists" || c == "EntityAlreadyExistsException" || strings.HasSuffix(c, ".AlreadyExists") || strings.HasSuffix(c, ".AlreadyExistsException")
}

// IsProfileUnknown reports whether EC2 does not know the instance profile, perhaps not yet: IAM propagates it with some seconds'
// delay.
func IsProfileUnknown(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && profileUnknown(api.ErrorCode(), api.ErrorMessage())
}

func profileUnknown(c, message string) bool {
	return c == "InvalidParameterValue" && strings.Contains(message, "Invalid IAM Instance Profile")
}

// tokenMismatch reports whether a client token can't be used for this request any more, because it belongs to another request or to
// terminated instances.
func tokenMismatch(err error) bool {
	c := Code(err)
	return c == "IdempotentParameterMismatch" || c == "IdempotentInstanceTerminated"
}

// IsDryRun reports whether EC2 would have done what a dry run asks about.
func IsDryRun(err error) bool { return Code(err) == "DryRunOperation" }

// IsUnauthorized reports whether the caller lacks a permission.
func IsUnauthorized(err error) bool { return unauthorizedCode(Code(err)) }

func unauthorizedCode(c string) bool {
	return c == "UnauthorizedOperation" || c == "AccessDenied" || c == "AccessDeniedException" || c == "OptInRequired" || strings.HasPrefix(c, "AuthFailure") && c != CodeNoSpotRole
}

// IsRefused reports whether the service understood the request and will never execute it, however often it is repeated: for example
// because of a bad parameter or a missing permission. A call that was retried until its deadline is not refused.
func IsRefused(err error) bool {
	c := Code(err)
	if c == "" || errors.Is(err, context.DeadlineExceeded) || IsInsufficientCapacity(err) || IsThrottled(err) || tokenMismatch(err) || IsStale(err) {
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

// IsMissingCredentials reports whether no credentials could be found, so that no request was sent to AWS.
func IsMissingCredentials(err error) bool {
	var told *callError
	if errors.As(err, &told) {
		err = told.err
	}
	s := err.Error()
	return Code(err) == "" && (strings.Contains(s, "get credentials") || strings.Contains(s, "refresh cached credentials"))
}

// IsUnreachable reports whether no connection could be made: no such host, or nothing listens there.
func IsUnreachable(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// failure is an error as this package returns it to callers: what was being done, the kind of error, and AWS's own error.
type failure struct {
	text string
	kind error // a sentinel of package capacity; nil: none fits
	err  error // nil: no call has failed
}

func (f *failure) Error() string { return f.text }

func (f *failure) Unwrap() []error {
	return slices.DeleteFunc([]error{f.kind, f.err}, func(err error) bool { return err == nil })
}

// Failed returns an error of a kind, a sentinel of package capacity, with a text.
func Failed(text string, kind error) error { return &failure{text: text, kind: kind} }

// Wrap returns an error that wraps err and the matching sentinel of package capacity, with a short text. what names what was being
// done; empty if the caller adds that.
func Wrap(err error, what string) error {
	if err == nil {
		return nil
	}
	f := &failure{text: Summarize(err), kind: kindOf(err), err: err}
	if what != "" {
		f.text = what + ": " + f.text
	}
	return f
}

func kindOf(err error) error {
	switch {
	case tokenMismatch(err):
		return capacity.ErrTokenMismatch
	case IsStale(err), IsProfileUnknown(err):
		return capacity.ErrRequestStale
	case IsInsufficientCapacity(err):
		return capacity.ErrInsufficientCapacity
	case IsThrottled(err):
		return capacity.ErrThrottled
	case strings.HasPrefix(Code(err), "InvalidInstanceID"):
		return capacity.ErrInstanceNotFound
	case IsRefused(err):
		return capacity.ErrRefused
	}
	return nil
}

// callError is the error of a call with a text for events and conditions, instead of the SDK's text, which contains a request id. The
// SDK's text is logged with each attempt.
type callError struct {
	text string
	err  error
}

func (s *callError) Error() string { return s.text }
func (s *callError) Unwrap() error { return s.err }

// Summarize returns the text of an error for an event or a condition: the service's code and message, without parts that differ each
// time.
func Summarize(err error) string {
	var s *callError
	var api smithy.APIError
	var answer *awshttp.ResponseError
	var attempt attemptTimeout
	var sent *url.Error
	switch {
	case errors.As(err, &s):
		return s.text
	case errors.As(err, &api) && api.ErrorCode() != "" && api.ErrorCode() != unknownCode:
		return strings.TrimSuffix(api.ErrorCode()+": "+Plain(api.ErrorMessage()), ": ")
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

// unknownCode is the SDK's code for an answer without one.
const unknownCode = "UnknownError"

var (
	// callOfService matches what services append about their own calls to other services, with request ids.
	callOfService = regexp.MustCompile(` *\(Service: [^)]*\)`)
	// encodedFailure matches the input for aws sts decode-authorization-message: more than 1,000 characters, different each time.
	encodedFailure = regexp.MustCompile(` *Encoded authorization failure message:.*`)
)

// Plain returns a message without the parts that differ each time.
func Plain(message string) string {
	return strings.TrimSpace(encodedFailure.ReplaceAllString(callOfService.ReplaceAllString(message, ""), ""))
}
