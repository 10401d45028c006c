package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"testing"

	"github.com/aws/smithy-go"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func api(code string) error {
	return fmt.Errorf("operation error EC2: %w", &smithy.GenericAPIError{Code: code, Message: "because", Fault: smithy.FaultClient})
}

func TestQuestions(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want error // the sentinel that it is wrapped with
	}{
		{api("InsufficientInstanceCapacity"), capacity.ErrInsufficientCapacity},
		{api("InsufficientFreeAddressesInSubnet"), capacity.ErrInsufficientCapacity},
		{api("MaxSpotInstanceCountExceeded"), capacity.ErrInsufficientCapacity},
		{api("AuthFailure.ServiceLinkedRoleCreationNotPermitted"), capacity.ErrInsufficientCapacity},
		{api("RequestLimitExceeded"), capacity.ErrThrottled},
		{api("MaxFleetCountExceeded"), capacity.ErrThrottled},
		{api("IdempotentParameterMismatch"), capacity.ErrTokenMismatch},
		{api("IdempotentInstanceTerminated"), capacity.ErrTokenMismatch},
		{api("InvalidLaunchTemplateName.NotFoundException"), capacity.ErrRequestStale},
		{api("InvalidLaunchTemplateId.NotFound"), capacity.ErrRequestStale},
		{api("InvalidAMIID.NotFound"), capacity.ErrRequestStale},
		{api("InvalidInstanceID.NotFound"), capacity.ErrInstanceNotFound},
		{api("InvalidInstanceID.Malformed"), capacity.ErrInstanceNotFound},
		{api("UnauthorizedOperation"), capacity.ErrRefused},
		{api("AuthFailure"), capacity.ErrRefused},
		{api("InvalidParameterValue"), capacity.ErrRefused},
		{api("InvalidSubnetID.NotFound"), capacity.ErrRefused},
		{api("InternalError"), nil},
		{api("Unavailable"), nil},
		{&smithy.GenericAPIError{Code: "Odd", Fault: smithy.FaultServer}, nil},
		{context.DeadlineExceeded, nil},
		{errors.New("connection refused"), nil},
	} {
		got := Wrap(tt.err, "doing something")
		for _, s := range []error{capacity.ErrInsufficientCapacity, capacity.ErrThrottled, capacity.ErrTokenMismatch, capacity.ErrRequestStale,
			capacity.ErrInstanceNotFound, capacity.ErrRefused} {
			if errors.Is(got, s) != (s == tt.want) {
				t.Errorf("%v: errors.Is(%v) is %v", tt.err, s, errors.Is(got, s))
			}
		}
		if !errors.Is(got, tt.err) {
			t.Errorf("%v is lost in %v", tt.err, got)
		}
	}
}

func TestSummarize(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{fmt.Errorf("operation error EC2: DescribeSubnets, https response error StatusCode: 403, RequestID: 1-2-3, %w", api("UnauthorizedOperation")), "UnauthorizedOperation: because"},
		{fmt.Errorf("asking: %w", context.DeadlineExceeded), "no answer within the deadline"},
		{&smithy.GenericAPIError{Code: "AccessDenied", Message: "User: x is not allowed (Service: Iam, Status Code: 403, Request ID: 1-2-3)"}, "AccessDenied: User: x is not allowed"},
		{&smithy.GenericAPIError{Code: "UnauthorizedOperation", Message: "No. Encoded authorization failure message: xYz123"}, "UnauthorizedOperation: No."},
		{&smithy.GenericAPIError{Code: "Unavailable"}, "Unavailable"},
		{fmt.Errorf("operation error EC2: CreateFleet, %w", &url.Error{Op: "Post", URL: "https://ec2", Err: io.EOF}), "the connection to AWS failed: EOF"},
		{fmt.Errorf("operation error EC2: X, %w", &callError{text: "no AWS credentials found", err: io.EOF}), "no AWS credentials found"},
		{errors.New("get identity: get credentials: failed to refresh cached credentials, no EC2 IMDS role found"), "no AWS credentials found"},
	} {
		if got := Summarize(tt.err); got != tt.want {
			t.Errorf("brief is %q, want %q", got, tt.want)
		}
	}
}
