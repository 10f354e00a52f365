package moe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"

	"libmoe.example/go/internal/raw"
)

// Error is a failed call: nothing was changed by it.
type Error struct {
	Status  Status
	Name    string // "MOE_ERR_SHAPE"
	Subject string // where: a JSON pointer, a role, a parameter, a path
	Message string
	Details string // everything a program may want, as JSON
	cause   error
}

func (e *Error) Error() string { return fmt.Sprintf("%s at '%s': %s", e.Name, e.Subject, e.Message) }

// Is makes errors.Is(err, ErrShape) true for every error of that status.
func (e *Error) Is(target error) bool {
	status, ok := target.(Status)
	return ok && status == e.Status
}

// Unwrap is what a callback returned, why a context.Context ended, or of an ErrIO the system's error (a syscall.Errno:
// errors.Is(err, fs.ErrNotExist) is true for a missing file); else nil.
func (e *Error) Unwrap() error { return e.cause }

// String is the name of a status, "MOE_ERR_UNKNOWN" for others.
func (s Status) String() string {
	if c := raw.Loaded(); c != nil { // the error of a failed load must not load
		return raw.Text(c.StatusName(int32(s)))
	}
	if name, known := statusNames[s]; known {
		return name
	}
	return "MOE_ERR_UNKNOWN"
}

// Error makes a status an error: for errors.Is, and for callbacks that return one.
func (s Status) Error() string { return s.String() }

// systemError is the number of errno in an error's details, nil if there is none.
func systemError(details string) error {
	var found struct{ Errno int }
	if json.Unmarshal([]byte(details), &found) != nil || found.Errno <= 0 {
		return nil
	}
	return syscall.Errno(found.Errno)
}

// refused is the error of a call that does not reach the library.
func refused(status Status, subject, format string, values ...interface{}) *Error {
	return &Error{Status: status, Name: status.String(), Subject: subject, Message: fmt.Sprintf(format, values...), Details: "{}"}
}

// statusOf is what a callback's error is for the library.
func statusOf(err error) Status {
	var failure *Error
	var status Status
	switch {
	case errors.As(err, &failure) && failure.Status != OK:
		return failure.Status
	case errors.As(err, &status) && status != OK:
		return status
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return ErrCancelled
	}
	return ErrCallback
}
