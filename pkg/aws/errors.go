package aws

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
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
// parameter, a missing permission.
func IsRefused(err error) bool {
	c := code(err)
	if c == "" || IsInsufficientCapacity(err) || IsThrottled(err) || IsTokenMismatch(err) || IsStale(err) {
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
	s := err.Error()
	return code(err) == "" && (strings.Contains(s, "get credentials") || strings.Contains(s, "refresh cached credentials"))
}

// IsUnreachable says that there was nobody to ask: no such host, or nothing that listens there.
func IsUnreachable(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// wrap puts the sentinel of the cloud seam that fits around an error. what is what was being done.
func wrap(err error, what string) error {
	switch {
	case err == nil:
		return nil
	case IsTokenMismatch(err):
		return fmt.Errorf("%s: %w: %w", what, capacity.ErrTokenMismatch, err)
	case IsStale(err), IsProfileUnknown(err):
		return fmt.Errorf("%s: %w: %w", what, capacity.ErrRequestStale, err)
	case IsInsufficientCapacity(err):
		return fmt.Errorf("%s: %w: %w", what, capacity.ErrInsufficientCapacity, err)
	case IsThrottled(err):
		return fmt.Errorf("%s: %w: %w", what, capacity.ErrThrottled, err)
	case strings.HasPrefix(code(err), "InvalidInstanceID"):
		return fmt.Errorf("%s: %w: %w", what, capacity.ErrInstanceNotFound, err)
	case IsRefused(err):
		return fmt.Errorf("%s: %w: %w", what, capacity.ErrRefused, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// brief is an error as a person wants to read it in a condition: the service's message without request ids.
func brief(err error) string {
	var api smithy.APIError
	switch {
	case errors.As(err, &api):
		return api.ErrorCode() + ": " + api.ErrorMessage()
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer within the deadline"
	case IsMissingCredentials(err):
		return "no AWS credentials found"
	}
	return err.Error()
}
