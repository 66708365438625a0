package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/stretchr/testify/require"
)

func TestErrorText(t *testing.T) {
	for want, err := range map[string]error{
		"net/w: wanted this (NOT_FOUND)": &bridge.Error{Code: bridge.NotFound, Op: "net/w", Message: "wanted this"},
		"wanted this (INTERNAL)":         &bridge.Error{Code: bridge.Internal, Message: "wanted this"},
		"Run: EOF (DATA_LOSS)":           &bridge.Error{Code: bridge.DataLoss, Op: "Run", Err: io.EOF},
		"Run (ABORTED)":                  &bridge.Error{Code: bridge.Aborted, Op: "Run"},
		"OUT_OF_RANGE":                   bridge.ErrOutOfRange,
		"CODE(99)":                       &bridge.Error{Code: 99},
		"read: at byte 7: EOF (UNKNOWN)": bridge.Errorf(bridge.Unknown, "read", "at byte %d: %w", 7, io.EOF),
	} {
		require.Equal(t, want, err.Error())
	}
	require.Equal(t, "CODE(-1)", bridge.Code(-1).String())
	require.Equal(t, "UNAUTHENTICATED", bridge.Unauthenticated.String())
}

func TestErrorIs(t *testing.T) {
	missing := bridge.Errorf(bridge.NotFound, "load", "%w and %w", io.EOF, bridge.ErrClosed)
	for _, err := range []error{missing, fmt.Errorf("outer: %w", missing)} {
		require.ErrorIs(t, err, bridge.ErrNotFound)
		require.ErrorIs(t, err, &bridge.Error{Code: bridge.NotFound})
		require.ErrorIs(t, err, io.EOF)
		require.ErrorIs(t, err, bridge.ErrClosed)
		require.NotErrorIs(t, err, bridge.ErrInternal)
		require.NotErrorIs(t, err, bridge.ErrUninitialized)
		require.NotErrorIs(t, err, &bridge.Error{Code: bridge.NotFound, Op: "another"})
		var e *bridge.Error
		require.True(t, errors.As(err, &e))
		require.Equal(t, "load", e.Op)
	}
	require.NotErrorIs(t, bridge.ErrNotFound, io.EOF)
}

func TestTensorFlowsErrorsAreReadable(t *testing.T) {
	for _, c := range []struct {
		name, from   string
		code         bridge.Code
		op, text     string
		is, isNot    error
		wantSameCode bool
	}{
		{"as it is", "Matrix size-incompatible: In[0]: [1,2], In[1]: [3,4]", bridge.InvalidArgument, "Run", "Matrix size-incompatible: In[0]: [1,2], In[1]: [3,4]", bridge.ErrInvalidArgument, bridge.ErrUninitialized, true},
		{"its node becomes the op", "Integer division by zero\n\t [[{{node net/div}}]]", bridge.InvalidArgument, "net/div", "Integer division by zero", bridge.ErrInvalidArgument, nil, true},
		{"the first of several roots", "2 root error(s) found.\n  (0) INVALID_ARGUMENT: Integer division by zero\n\t [[{{node div}}]]\n\t [[add/_3]]\n  (1) INVALID_ARGUMENT: another\n\t [[{{node div}}]]\n0 successful operations.\n0 derived errors ignored.", bridge.InvalidArgument, "div", "Integer division by zero", nil, nil, true},
		{"inside a function", "{{function_node __inference_f_12}} bad\n\t [[{{node inner}}]]", bridge.Internal, "inner", "bad", bridge.ErrInternal, nil, true},
		{"TensorFlow's own nodes are not named", "bad\n\t [[{{node _retval_v_0_0}}]]", bridge.Internal, "Run", "bad", nil, nil, true},
		{"a deadline", "Timed out", bridge.DeadlineExceeded, "Run", "Timed out", context.DeadlineExceeded, context.Canceled, true},
		{"a table that is missing is no variable", "Table not initialized.\n\t [[{{node lookup}}]]", bridge.FailedPrecondition, "lookup", "Table not initialized.", bridge.ErrFailedPrecondition, bridge.ErrUninitialized, true},
		{"a missing file is no variable", "data/v/x; No such file or directory", bridge.NotFound, "Run", "data/v/x; No such file or directory", bridge.ErrNotFound, bridge.ErrUninitialized, true},
		{"a variable of another container", "Resource box/net/w/N10tensorflow3VarE does not exist.\n\t [[{{node r}}]]", bridge.NotFound, "r", `variable "net/w" has no value yet`, bridge.ErrUninitialized, bridge.ErrNotFound, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := bridge.FromTensorFlow(c.code, "Run", c.from)
			var e *bridge.Error
			require.True(t, errors.As(err, &e))
			require.Equal(t, c.op, e.Op)
			if c.wantSameCode {
				require.Equal(t, c.code, e.Code)
				require.Equal(t, c.text, e.Message)
			} else {
				require.ErrorContains(t, err, c.text)
			}
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
			if c.isNot != nil {
				require.NotErrorIs(t, err, c.isNot)
			}
		})
	}
}
