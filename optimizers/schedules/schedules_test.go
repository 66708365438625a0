package schedules_test

import (
	"fmt"
	"math"
	"os"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/optimizers/schedules"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if tensors, bytes := bridge.Live(); tensors != 0 && code == 0 {
		fmt.Fprintf(os.Stderr, "%d tensors (%d bytes) are still alive\n", tensors, bytes)
		code = 1
	}
	os.Exit(code)
}

// values are what schedules give at a step, in one run.
func values(t *testing.T, dt tf.DataType, step int64, all ...ops.Hyperparameter) []float64 {
	t.Helper()
	g := ops.NewGraph(ops.GraphOptions{})
	at := ops.Const(g.Root(), ops.Shape{}, []int64{step})
	outs := make([]tf.Output, len(all))
	for i, h := range all {
		outs[i] = h.At(g.Root(), at, dt)
	}
	require.NoError(t, g.Err())
	sess, err := bridge.NewSession(g.TF(), bridge.Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, sess.Close()) }()
	results, err := sess.Call(t.Context(), bridge.Call{Fetches: outs})
	require.NoError(t, err)
	got := make([]float64, len(results))
	for i, r := range results {
		v, err := bridge.ToFloat64(r)
		require.NoError(t, err)
		assert.Equal(t, dt, r.DType())
		got[i] = v[0]
		require.NoError(t, r.Close())
	}
	return got
}

func TestSchedulesByStep(t *testing.T) {
	smooth := schedules.ExponentialDecay{Initial: 1, Steps: 10, Rate: .5}
	stairs := smooth
	stairs.Staircase = true
	pieces := schedules.PiecewiseConstant{Boundaries: []int64{10, 20}, Values: []float64{1, .5, .125}}
	one := schedules.PiecewiseConstant{Values: []float64{.25}}
	large := schedules.PiecewiseConstant{Boundaries: []int64{1<<53 + 1}, Values: []float64{1, 2}}
	for _, c := range []struct {
		step                  int64
		smooth, stairs, piece float64
		large                 float64
	}{
		{0, 1, 1, 1, 1},
		{5, math.Sqrt(.5), 1, 1, 1},
		{10, .5, .5, 1, 1}, // a boundary belongs to what is before it
		{11, math.Pow(.5, 1.1), .5, .5, 1},
		{19, math.Pow(.5, 1.9), .5, .5, 1},
		{20, .25, .25, .5, 1},
		{21, math.Pow(.5, 2.1), .25, .125, 1},
		{1 << 53, 0, 0, .125, 1},
		{1<<53 + 2, 0, 0, .125, 2}, // no float tells this step from the boundary
	} {
		for dt, precision := range map[tf.DataType]float64{tf.Float: 3e-7, tf.Double: 1e-15, tf.Half: 1e-3} {
			t.Run(fmt.Sprintf("step %d, %s", c.step, bridge.DTypeName(dt)), func(t *testing.T) {
				got := values(t, dt, c.step, smooth, stairs, pieces, one, large)
				for i, want := range []float64{c.smooth, c.stairs, c.piece, .25, c.large} {
					assert.InDelta(t, want, got[i], precision*max(want, 1e-3), "schedule %d", i)
				}
			})
		}
	}
}

func TestSettingsThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		schedule ops.Hyperparameter
		want     string
	}{
		"no steps":               {schedules.ExponentialDecay{Initial: 1, Rate: .5}, "Steps is 0"},
		"negative steps":         {schedules.ExponentialDecay{Initial: 1, Rate: .5, Steps: -3}, "Steps is -3"},
		"negative factor":        {schedules.ExponentialDecay{Initial: 1, Rate: -1, Steps: 3}, "Rate is -1"},
		"NaN":                    {schedules.ExponentialDecay{Initial: math.NaN(), Rate: 1, Steps: 3}, "Initial is NaN"},
		"too few values":         {schedules.PiecewiseConstant{Boundaries: []int64{1}, Values: []float64{1}}, "1 values for 1 boundaries"},
		"nothing at all":         {schedules.PiecewiseConstant{}, "0 values for 0 boundaries"},
		"boundaries that fall":   {schedules.PiecewiseConstant{Boundaries: []int64{5, 4}, Values: []float64{1, 2, 3}}, "boundary 4 follows 5"},
		"a value that is no one": {schedules.PiecewiseConstant{Values: []float64{math.NaN()}}, "NaN"},
	} {
		t.Run(name, func(t *testing.T) {
			g := ops.NewGraph(ops.GraphOptions{})
			c.schedule.At(g.Root(), ops.Const(g.Root(), ops.Shape{}, []int64{0}), tf.Float)
			require.ErrorContains(t, g.Err(), c.want)
		})
	}
}

func ExamplePiecewiseConstant() {
	rate := schedules.PiecewiseConstant{Boundaries: []int64{100, 200}, Values: []float64{0.1, 0.01, 0.001}}
	fmt.Println(rate.Check())
	rate.Values = rate.Values[:2]
	fmt.Println(rate.Check())
	// Output:
	// <nil>
	// piecewise constant: 2 values for 2 boundaries, wanted one value more than boundaries
}
