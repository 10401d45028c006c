package ec2

import (
	"fmt"
	"net/http"
)

// apiError is an error in AWS's form: a code for programs, a message for people, an HTTP status.
type apiError struct {
	Code    string
	Message string
	Status  int // 0: 400
}

func (e *apiError) Error() string { return e.Code + ": " + e.Message }

func (e *apiError) status() int {
	if e.Status == 0 {
		return http.StatusBadRequest
	}
	return e.Status
}

func failf(code, format string, args ...any) *apiError {
	return &apiError{Code: code, Message: fmt.Sprintf(format, args...)}
}

func invalidValue(name, value, why string) *apiError {
	return failf("InvalidParameterValue", "Value (%s) for parameter %s is invalid. %s", value, name, why)
}

func missing(name string) *apiError {
	return failf("MissingParameter", "The request must contain the parameter %s", name)
}

// dryRun returns the error that a request with DryRun gets if it would have succeeded.
func dryRun() *apiError {
	return &apiError{Code: "DryRunOperation", Message: "Request would have succeeded, but DryRun flag is set.", Status: http.StatusPreconditionFailed}
}
