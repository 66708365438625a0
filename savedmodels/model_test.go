package savedmodels_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/savedmodels"
)

func TestRunByNames(t *testing.T) {
	m := load(t, linear(t, 3).write(), savedmodels.Options{})
	x := floats(t, bridge.Shape{2, 2}, 1, 2, 3, 4)
	assert.Equal(t, []float32{16, 42}, run(t, m, "serving_default", "y", savedmodels.Tensors{"x": x}))
	assert.Equal(t, []float32{16, 42}, run(t, m, "", "y", savedmodels.Tensors{"x": x}), "the default")
	_, err := m.Run(t.Context(), "predict", savedmodels.Tensors{"x": x})
	assert.ErrorIs(t, err, bridge.ErrNotFound)
	assert.ErrorContains(t, err, `no signature "predict"; it has serving_default`)
}

func TestWhatDoesNotFitIsRefusedBeforeAnythingRuns(t *testing.T) {
	m := load(t, linear(t, 1).write(), savedmodels.Options{})
	x := floats(t, bridge.Shape{1, 2}, 1, 2)
	double := must(bridge.FromFlat(bridge.Shape{1, 2}, []float64{1, 2}))(t)
	defer double.Close()
	closed := must(bridge.Scalar(float32(1)))(t)
	closed.Close()
	for name, c := range map[string]struct {
		in   savedmodels.Tensors
		want []string
	}{
		"an input is missing":  {nil, []string{`input "x" is missing`, "it takes x: float32 [?,2]"}},
		"an unknown input":     {savedmodels.Tensors{"x": x, "z": x}, []string{`there is no input "z"`}},
		"another data type":    {savedmodels.Tensors{"x": double}, []string{`input "x": wanted float32, got float64`}},
		"another rank":         {savedmodels.Tensors{"x": floats(t, bridge.Shape{2}, 1, 2)}, []string{`input "x": wanted 2 dimensions, [?,2], got 1, [2]`}},
		"another dimension":    {savedmodels.Tensors{"x": floats(t, bridge.Shape{1, 3}, 1, 2, 3)}, []string{`input "x": wanted shape [?,2], got [1,3]`}},
		"nil":                  {savedmodels.Tensors{"x": nil}, []string{`input "x" is nil`}},
		"a closed tensor":      {savedmodels.Tensors{"x": closed}, []string{`input "x" is a closed tensor`}},
		"several wrong things": {savedmodels.Tensors{"X": x, "Y": x}, []string{`input "x" is missing; there is no input "X"; there is no input "Y"`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := m.Run(t.Context(), "", c.in)
			require.ErrorIs(t, err, bridge.ErrInvalidArgument)
			for _, want := range c.want {
				assert.ErrorContains(t, err, want)
			}
		})
	}
	_, err := m.Run(t.Context(), "", savedmodels.Tensors{"x": closed})
	assert.ErrorIs(t, err, bridge.ErrClosed)
}

func TestOutputsMayBeInputsOrTheSameTensorTwice(t *testing.T) {
	d := newDraft(t)
	x := d.g.Placeholder("x", tf.Float, bridge.Shape{-1})
	y := raw.Neg(d.g.Root(), x)
	d.signature("both", map[string]tf.Output{"x": x}, map[string]tf.Output{"y": y, "again": y, "x": x})
	d.signature("echo", map[string]tf.Output{"x": x}, map[string]tf.Output{"x": x})
	m := load(t, d.write(), savedmodels.Options{})
	in := savedmodels.Tensors{"x": floats(t, bridge.Shape{2}, 1, 2)}
	for range 2 {
		out, err := m.Run(t.Context(), "both", in)
		require.NoError(t, err)
		for name, want := range map[string][]float32{"x": {1, 2}, "y": {-1, -2}, "again": {-1, -2}} {
			assert.Equal(t, want, must(bridge.Values[float32](out[name]))(t), name)
		}
		out.Close()
	}
	assert.Equal(t, []float32{1, 2}, run(t, m, "echo", "x", in))
}

func TestAnInputWithADefaultMayBeLeftOut(t *testing.T) {
	d := newDraft(t)
	x, k := d.g.Placeholder("x", tf.Float, bridge.Shape{-1}), d.g.Placeholder("k", tf.Float, bridge.Shape{})
	s := d.signature("scale", map[string]tf.Output{"x": x, "k": k}, map[string]tf.Output{"y": raw.Mul(d.g.Root(), x, k)})
	// SignatureDef.defaults: {"k": 3}, as a TensorProto of float_val.
	value := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(tf.Float))
	value = protowire.AppendBytes(protowire.AppendTag(value, 2, protowire.BytesType), nil)
	value = protowire.AppendBytes(protowire.AppendTag(value, 5, protowire.BytesType), []byte{0, 0, 0x40, 0x40})
	entry := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte("k"))
	entry = protowire.AppendBytes(protowire.AppendTag(entry, 2, protowire.BytesType), value)
	s.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 4, protowire.BytesType), entry))
	m := load(t, d.write(), savedmodels.Options{})
	in := savedmodels.Tensors{"x": floats(t, bridge.Shape{2}, 1, 2)}
	assert.Equal(t, []float32{3, 6}, run(t, m, "scale", "y", in))
	in["k"] = floats(t, bridge.Shape{}, -1)
	assert.Equal(t, []float32{-1, -2}, run(t, m, "scale", "y", in))
	signature := must(m.Signature("scale"))(t)
	assert.Equal(t, "scale(k: float32 [] (optional), x: float32 [?]) → (y: float32 [?])", signature.String())
}

// waiting is a model with a queue: "get" waits for what "put" brings.
func waiting(t testing.TB) *savedmodels.Model {
	d := newDraft(t)
	root := d.g.Root()
	queue := raw.FIFOQueueV2(root, []tf.DataType{tf.Float}, raw.Attr{Name: "shared_name", Value: t.Name()}, raw.Attr{Name: "shapes", Value: []bridge.Shape{{}}})
	x := d.g.Placeholder("x", tf.Float, bridge.Shape{})
	put := root.Add(bridge.OpSpec{Type: "QueueEnqueueV2", Inputs: []tf.Input{queue, tf.OutputList{x}}})
	done := root.Add(bridge.OpSpec{Type: "Identity", Name: "done", Inputs: []tf.Input{x}, Control: []*tf.Operation{put}})
	get := root.Add(bridge.OpSpec{Type: "QueueDequeueV2", Inputs: []tf.Input{queue}, Attrs: []bridge.Attr{{Name: "component_types", Value: []tf.DataType{tf.Float}}}})
	require.NoError(t, d.g.Err())
	d.signature("put", map[string]tf.Output{"x": x}, map[string]tf.Output{"x": done.Output(0)})
	d.signature("get", nil, map[string]tf.Output{"x": get.Output(0)})
	m, err := savedmodels.Load(d.write(), savedmodels.Options{})
	require.NoError(t, err)
	return m
}

func TestCloseWaitsForCallsInProgress(t *testing.T) {
	m := waiting(t)
	got := make(chan error, 1)
	go func() {
		out, err := m.Run(context.Background(), "get", nil)
		out.Close()
		got <- err
	}()
	one := floats(t, bridge.Shape{}, 1)
	require.Eventually(t, func() bool { return m.Busy() == 1 }, 10*time.Second, time.Millisecond)
	time.Sleep(50 * time.Millisecond) // it waits for the queue by then
	closed := make(chan error, 1)
	put := make(chan error, 1)
	go func() { closed <- m.Close() }()
	select {
	case <-closed:
		t.Fatal("Close returned while a call was running")
	case <-time.After(100 * time.Millisecond):
	}
	// The call that is running may end; a new one is refused.
	_, err := m.Run(t.Context(), "put", savedmodels.Tensors{"x": one})
	require.ErrorIs(t, err, bridge.ErrClosed)
	go func() {
		in, out := must(m.Tensor("x:0"))(t), must(m.Tensor("done:0"))(t)
		results, err := m.Session().Call(context.Background(), bridge.Call{Feeds: []tf.Output{in}, Fetches: []tf.Output{out}}, one)
		savedmodels.Tensors{"": first(results)}.Close()
		put <- err
	}()
	<-put // which may be cut off, as the session closes once the model's own call is done
	require.NoError(t, <-got)
	require.NoError(t, <-closed)
	require.NoError(t, m.Close(), "again")
	assert.ErrorIs(t, m.Warmup(t.Context()), bridge.ErrClosed)
}

func first(list []*bridge.Tensor) *bridge.Tensor {
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

func TestShutdownStopsWhatTakesTooLong(t *testing.T) {
	m := waiting(t)
	got := make(chan error, 1)
	go func() {
		_, err := m.Run(context.Background(), "get", nil)
		got <- err
	}()
	require.Eventually(t, func() bool { return m.Busy() == 1 }, 10*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.NoError(t, m.Shutdown(ctx))
	assert.ErrorIs(t, <-got, bridge.ErrClosed)
}

func TestADeadlineEndsARun(t *testing.T) {
	m := waiting(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := m.Run(ctx, "get", nil)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.NotZero(t, run(t, m, "put", "x", savedmodels.Tensors{"x": floats(t, bridge.Shape{}, 1)}), "and the model goes on")
	require.NoError(t, m.Close())
}

func TestASwapUnderLoadFailsNoRequest(t *testing.T) {
	dirs := [2]string{linear(t, 1).write(), linear(t, 2).write()}
	holder := savedmodels.NewHolder(must(savedmodels.Load(dirs[0], savedmodels.Options{}))(t))
	x := floats(t, bridge.Shape{1, 2}, 0, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	var seen [2]int
	var mu sync.Mutex
	for range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				out, err := holder.Run(context.Background(), "", savedmodels.Tensors{"x": x})
				if !assert.NoError(t, err) {
					return
				}
				version, err := bridge.Item[float32](out["y"])
				out.Close()
				if !assert.NoError(t, err) {
					return
				}
				mu.Lock()
				seen[int(version)-1]++
				mu.Unlock()
			}
		})
	}
	for i := range 20 {
		next := must(savedmodels.Load(dirs[(i+1)%2], savedmodels.Options{}))(t)
		require.NoError(t, next.Warmup(t.Context()))
		require.NoError(t, holder.Swap(next))
	}
	stop()
	wg.Wait()
	assert.NotZero(t, seen[0])
	assert.NotZero(t, seen[1])
	require.NoError(t, holder.Close())
	_, err := holder.Run(t.Context(), "", nil)
	assert.ErrorIs(t, err, bridge.ErrUnavailable)
}

var residentLine = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)

// resident is how much memory the process has, in MiB.
func resident(t *testing.T) int {
	t.Helper()
	status := must(os.ReadFile("/proc/self/status"))(t)
	return must(strconv.Atoi(string(residentLine.FindSubmatch(status)[1])))(t) >> 10
}

func TestMemoryStaysAsModelsComeAndGo(t *testing.T) {
	d := linear(t, 1)
	// Eight MiB that would be missed.
	big := d.variable("big", bridge.Shape{1 << 21}, make([]float32, 1<<21)...)
	sum := raw.Sum(d.g.Root(), raw.ReadVariableOp(d.g.Root(), big, tf.Float), d.g.Root().Const(int32(0)))
	d.signature("sum", nil, map[string]tf.Output{"sum": sum})
	// The saver restores both.
	handle := d.g.TF().Operation("VarHandleOp").Output(0)
	d.meta.SaverDef = nil
	d.saver(map[string]tf.Output{"net/w": handle, "big": big})
	dir := d.write()
	x := floats(t, bridge.Shape{1, 2}, 1, 2)
	settled := 0
	for i := range 200 {
		m := must(savedmodels.Load(dir, savedmodels.Options{}))(t)
		run(t, m, "serving_default", "y", savedmodels.Tensors{"x": x})
		run(t, m, "sum", "sum", nil)
		require.NoError(t, m.Close())
		if i == 40 {
			settled = resident(t)
		}
	}
	assert.Less(t, resident(t), settled+64, "MiB after 200 models, and after 40")
}

func TestWarmupRunsWhatDoesNotUpdate(t *testing.T) {
	d := newDraft(t)
	root := d.g.Root()
	n := d.variable("n", bridge.Shape{}, 5)
	by := d.g.Placeholder("by", tf.Float, bridge.Shape{})
	add := raw.AssignAddVariableOp(root, n, by)
	read := root.WithControl(add)
	d.signature("add", map[string]tf.Output{"by": by}, map[string]tf.Output{"n": raw.ReadVariableOp(read, n, tf.Float)})
	d.signature("read", nil, map[string]tf.Output{"n": raw.ReadVariableOp(root, n, tf.Float)})
	png := d.g.Placeholder("png", tf.String, bridge.Shape{})
	d.signature("picture", map[string]tf.Output{"png": png}, map[string]tf.Output{"pixels": raw.DecodePng(root, png)})
	d.saver(map[string]tf.Output{"n": n})
	m := load(t, d.write(), savedmodels.Options{})
	err := m.Warmup(t.Context())
	assert.ErrorIs(t, err, savedmodels.ErrWarmup)
	assert.ErrorContains(t, err, `signature "picture" could not be warmed up`)
	assert.NotContains(t, err.Error(), "add")
	assert.Equal(t, []float32{5}, run(t, m, "read", "n", nil), "what adds did not run")
	require.NoError(t, m.Warmup(t.Context(), "read", "add"), "unless it is named; it adds 0")
	assert.Error(t, m.Warmup(t.Context(), "none"))
}

func TestManyGoroutinesShareAModel(t *testing.T) {
	m := load(t, linear(t, 1).write(), savedmodels.Options{})
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			x, err := bridge.FromFlat(bridge.Shape{1, 2}, []float32{float32(i), 1})
			if !assert.NoError(t, err) {
				return
			}
			defer x.Close()
			for range 200 {
				out, err := m.Run(context.Background(), "", savedmodels.Tensors{"x": x})
				if !assert.NoError(t, err) {
					return
				}
				y, err := bridge.Item[float32](out["y"])
				assert.NoError(t, err)
				assert.Equal(t, float32(10*i+1), y)
				out.Close()
			}
		})
	}
	wg.Wait()
}

func TestANilModelIsAnError(t *testing.T) {
	var m *savedmodels.Model
	_, err := m.Run(t.Context(), "", nil)
	assert.ErrorIs(t, err, bridge.ErrInvalidArgument)
	assert.NoError(t, m.Close())
	assert.Empty(t, m.Variables())
	assert.Error(t, m.Warmup(t.Context()))
	assert.Nil(t, m.Graph())
	assert.Nil(t, m.Session())
	assert.Empty(t, m.Signatures())
	assert.Empty(t, m.Tags())
	_, err = m.Tensor("x:0")
	assert.Error(t, err)
	for _, h := range []*savedmodels.Holder{nil, {}} {
		_, err = h.Run(t.Context(), "", nil)
		assert.ErrorIs(t, err, bridge.ErrUnavailable)
		assert.Nil(t, h.Model())
	}
	var zero savedmodels.Model
	_, err = zero.Run(t.Context(), "", nil)
	assert.ErrorIs(t, err, bridge.ErrNotFound)
	assert.Empty(t, zero.Variables())
	assert.NoError(t, zero.Close())
}

func ExampleModel_Run() {
	dir, remove := exampleModel()
	defer remove()

	m, err := savedmodels.Load(dir, savedmodels.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	for _, name := range m.Signatures() {
		s, _ := m.Signature(name)
		fmt.Println(s)
	}

	x, err := bridge.FromFlat(bridge.Shape{2, 2}, []float32{1, 2, 3, 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer x.Close()
	out, err := m.Run(context.Background(), "serving_default", savedmodels.Tensors{"x": x})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer out.Close()
	y, err := bridge.Values[float32](out["y"])
	fmt.Println(y, err)

	_, err = m.Run(context.Background(), "serving_default", savedmodels.Tensors{"image": x})
	fmt.Println(err)
	// Output:
	// serving_default(x: float32 [?,2]) → (y: float32 [?,1])
	// [12 34] <nil>
	// signature serving_default: input "x" is missing; there is no input "image"; it takes x: float32 [?,2] (INVALID_ARGUMENT)
}
