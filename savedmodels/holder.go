package savedmodels

import (
	"context"
	"sync/atomic"

	"github.com/sluice-ml/sluice/bridge"
)

// Holder holds the model that is to answer, and lets another version take its
// place while requests come in: none of them fails. The zero Holder holds none.
type Holder struct {
	current atomic.Pointer[Model]
}

// NewHolder holds m.
func NewHolder(m *Model) *Holder {
	h := new(Holder)
	h.current.Store(m)
	return h
}

// Model is the model that answers now; nil where there is none. Another may take
// its place at any time, and this one be closed: Run is what goes on.
func (h *Holder) Model() *Model {
	if h == nil {
		return nil
	}
	return h.current.Load()
}

// Run is [Model.Run] of the model that answers now.
func (h *Holder) Run(ctx context.Context, signature string, in Tensors) (Tensors, error) {
	for {
		m := h.Model()
		if m == nil {
			return nil, bridge.Errorf(bridge.Unavailable, "Run", "there is no model yet: Swap puts one in")
		}
		if err := m.enter(); err != nil {
			if h.Model() != m {
				continue // another took its place just now
			}
			return nil, err
		}
		defer m.leave()
		return m.call(ctx, signature, in)
	}
}

// Swap has m answer from now on, and closes the model that did when its last call
// has returned, which Swap waits for. Warm m up before, so that no request waits.
// nil takes the model out: requests then fail until another comes.
func (h *Holder) Swap(m *Model) error {
	if h == nil {
		return bridge.Errorf(bridge.InvalidArgument, "Swap", "the holder is nil")
	}
	old := h.current.Swap(m)
	if old == m {
		return nil
	}
	return old.Close()
}

// Close takes the model out and closes it.
func (h *Holder) Close() error { return h.Swap(nil) }
