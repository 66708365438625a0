package bridge_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	attrvalue "github.com/galeone/tensorflow/tensorflow/go/core/framework/attr_value_go_proto"
	function "github.com/galeone/tensorflow/tensorflow/go/core/framework/function_go_proto"
	graphdef "github.com/galeone/tensorflow/tensorflow/go/core/framework/graph_go_proto"
	nodedef "github.com/galeone/tensorflow/tensorflow/go/core/framework/node_def_go_proto"
	opdef "github.com/galeone/tensorflow/tensorflow/go/core/framework/op_def_go_proto"
	tensorproto "github.com/galeone/tensorflow/tensorflow/go/core/framework/tensor_go_proto"
	types "github.com/galeone/tensorflow/tensorflow/go/core/framework/types_go_proto"
	versions "github.com/galeone/tensorflow/tensorflow/go/core/framework/versions_go_proto"
	"github.com/sluice-ml/sluice/bridge"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

// counter is a graph with an int64 variable and an op that adds one to it.
type counter struct {
	testGraph
	init, add *tf.Operation
	value     tf.Output
}

func newCounter(t testing.TB) counter {
	g := newGraph(t)
	handle, initialize := g.variable("n", constant(g, "zero", bridge.Shape{}, int64(0)))
	return counter{g, initialize,
		g.op("AssignAddVariableOp", "add", []tf.Output{handle, constant(g, "one", bridge.Shape{}, int64(1))}),
		g.read("value", handle, tf.Int64)}
}

// readNow is the counter's value in the session.
func (c counter) readNow(s *bridge.Session) int64 {
	c.Helper()
	got, err := s.Call(context.Background(), bridge.Call{Fetches: []tf.Output{c.value}})
	require.NoError(c, err)
	defer got[0].Close()
	n, err := bridge.Item[int64](got[0])
	require.NoError(c, err)
	return n
}

// dequeue is an op that waits for an element of a queue that stays empty.
func (g testGraph) dequeue(name string) *tf.Operation {
	queue := g.op("FIFOQueueV2", name+"/queue", nil, bridge.Attr{Name: "component_types", Value: []tf.DataType{tf.Int32}}).Output(0)
	return g.op("QueueDequeueV2", name, []tf.Output{queue}, bridge.Attr{Name: "component_types", Value: []tf.DataType{tf.Int32}})
}

// loop imports a While that counts from 0 to the fed limit, doing one AddV2, and
// an AssignAddVariableOp on the handle if there is one, at each turn.
func (g testGraph) loop(handle tf.Output) (limit, count tf.Output) {
	g.Helper()
	list := func(types ...types.DataType) *attrvalue.AttrValue {
		return &attrvalue.AttrValue{Value: &attrvalue.AttrValue_List{List: &attrvalue.AttrValue_ListValue{Type: types}}}
	}
	typ := func(dt types.DataType) *attrvalue.AttrValue {
		return &attrvalue.AttrValue{Value: &attrvalue.AttrValue_Type{Type: dt}}
	}
	fn := func(name string) *attrvalue.AttrValue {
		return &attrvalue.AttrValue{Value: &attrvalue.AttrValue_Func{Func: &attrvalue.NameAttrList{Name: name}}}
	}
	one := &attrvalue.AttrValue{Value: &attrvalue.AttrValue_Tensor{Tensor: &tensorproto.TensorProto{Dtype: types.DataType_DT_INT64, Int64Val: []int64{1}}}}
	arg := func(name string, dt types.DataType) *opdef.OpDef_ArgDef {
		return &opdef.OpDef_ArgDef{Name: name, Type: dt}
	}
	const i64, resource = types.DataType_DT_INT64, types.DataType_DT_RESOURCE

	args := []*opdef.OpDef_ArgDef{arg("i", i64), arg("limit", i64)}
	results := []*opdef.OpDef_ArgDef{arg("i_out", i64), arg("limit_out", i64)}
	ret := map[string]string{"i_out": "next:z:0", "limit_out": "limit"}
	body := []*nodedef.NodeDef{
		{Name: "one", Op: "Const", Attr: map[string]*attrvalue.AttrValue{"dtype": typ(i64), "value": one}},
		{Name: "next", Op: "AddV2", Input: []string{"i", "one:output:0"}, Attr: map[string]*attrvalue.AttrValue{"T": typ(i64)}},
	}
	names := [2]string{"pure_cond", "pure_body"}
	if handle.Op != nil {
		names = [2]string{"updating_cond", "updating_body"}
	}
	kinds, stateful := []types.DataType{i64, i64}, false
	controlled := map[string]string{}
	if handle.Op != nil {
		kinds, stateful = append(kinds, resource), true
		args, results = append(args, arg("v", resource)), append(results, arg("v_out", resource))
		ret["v_out"] = "v"
		body = append(body, &nodedef.NodeDef{Name: "count", Op: "AssignAddVariableOp", Input: []string{"v", "one:output:0"},
			Attr: map[string]*attrvalue.AttrValue{"dtype": typ(i64)}})
		controlled["count"] = "count"
	}
	def := &graphdef.GraphDef{
		Versions: &versions.VersionDef{Producer: 1000},
		Node: []*nodedef.NodeDef{
			{Name: "limit", Op: "Placeholder", Attr: map[string]*attrvalue.AttrValue{"dtype": typ(i64)}},
			{Name: "start", Op: "Const", Attr: map[string]*attrvalue.AttrValue{"dtype": typ(i64), "value": {Value: &attrvalue.AttrValue_Tensor{
				Tensor: &tensorproto.TensorProto{Dtype: i64, Int64Val: []int64{0}}}}}},
			{Name: "while", Op: "While", Input: []string{"start", "limit"}, Attr: map[string]*attrvalue.AttrValue{
				"T": list(kinds...), "cond": fn(names[0]), "body": fn(names[1])}},
		},
		Library: &function.FunctionDefLibrary{Function: []*function.FunctionDef{
			{Signature: &opdef.OpDef{Name: names[0], InputArg: args, OutputArg: []*opdef.OpDef_ArgDef{arg("go", types.DataType_DT_BOOL)}},
				NodeDef: []*nodedef.NodeDef{{Name: "less", Op: "Less", Input: []string{"i", "limit"}, Attr: map[string]*attrvalue.AttrValue{"T": typ(i64)}}},
				Ret:     map[string]string{"go": "less:z:0"}},
			{Signature: &opdef.OpDef{Name: names[1], InputArg: args, OutputArg: results, IsStateful: stateful},
				NodeDef: body, Ret: ret, ControlRet: controlled},
		}},
	}
	if handle.Op != nil {
		def.Library.Function[1].Signature.ControlOutput = []string{"count"}
		def.Node[2].Input = append(def.Node[2].Input, "handle")
		def.Node = append(def.Node, &nodedef.NodeDef{Name: "handle", Op: "VarHandleOp", Attr: map[string]*attrvalue.AttrValue{
			"dtype": typ(i64), "shape": {Value: &attrvalue.AttrValue_Shape{Shape: nil}},
			"shared_name": {Value: &attrvalue.AttrValue_S{S: []byte(handle.Op.Name())}}}})
	}
	b, err := proto.Marshal(def)
	require.NoError(g, err)
	prefix := "loop"
	if handle.Op != nil {
		prefix = "updating_loop"
	}
	require.NoError(g, g.Import(b, prefix))
	return g.Operation(prefix + "/limit").Output(0), g.Operation(prefix + "/while").Output(0)
}

// matmuls is a chain of n products of 1000 by 1000 matrices, each a kernel of
// tens of milliseconds.
func (g testGraph) matmuls(n int) tf.Output {
	x := g.op("Fill", "matmuls/x", []tf.Output{constant(g, "matmuls/dims", bridge.Shape{2}, int32(1000), 1000), constant(g, "matmuls/fill", bridge.Shape{}, float32(1e-3))}).Output(0)
	// Random, so that nothing is computed ahead.
	x = g.op("RandomUniform", "matmuls/random", []tf.Output{g.op("Shape", "matmuls/shape", []tf.Output{x}).Output(0)}, bridge.Attr{Name: "dtype", Value: tf.Float}).Output(0)
	y := x
	for range n {
		y = g.op("MatMul", g.fresh("matmuls/y"), []tf.Output{y, x}).Output(0)
	}
	return g.op("Sum", "matmuls/sum", []tf.Output{y, constant(g, "matmuls/axes", bridge.Shape{2}, int32(0), 1)}).Output(0)
}

func TestSessionClose(t *testing.T) {
	t.Run("is idempotent and safe from many goroutines", func(t *testing.T) {
		s, err := bridge.NewSession(newCounter(t).Graph, bridge.Config{})
		require.NoError(t, err)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { assert.NoError(t, s.Close()) })
		}
		all.Wait()
		require.NoError(t, s.Close())
		require.NoError(t, (*bridge.Session)(nil).Close())
		require.NoError(t, new(bridge.Session).Close())
	})

	t.Run("makes all later calls errors", func(t *testing.T) {
		c := newCounter(t)
		s := c.session(bridge.Config{})
		step, out := prepare(t, s, bridge.Call{Fetches: []tf.Output{c.value}, Targets: []*tf.Operation{c.init}})
		require.NoError(t, s.Run(t.Context(), c.init))
		require.NoError(t, s.Close())
		require.ErrorIs(t, s.Run(t.Context(), c.init), bridge.ErrClosed)
		require.ErrorIs(t, s.Run(t.Context(), c.add), bridge.ErrClosed)
		require.ErrorIs(t, step.Run(t.Context(), nil, out), bridge.ErrClosed)
		_, err := s.Prepare(bridge.Call{Fetches: []tf.Output{c.value}})
		require.ErrorIs(t, err, bridge.ErrClosed)
		_, err = s.Call(t.Context(), bridge.Call{Fetches: []tf.Output{c.value}})
		require.ErrorIs(t, err, bridge.ErrClosed)
	})

	// What each run is doing when the session is closed.
	c := newCounter(t)
	limit, count := c.loop(tf.Output{})
	blocked := []struct {
		name string
		call bridge.Call
		feed []*bridge.Tensor
	}{
		{"a queue", bridge.Call{Targets: []*tf.Operation{c.dequeue("dequeue")}}, nil},
		{"a loop", bridge.Call{Feeds: []tf.Output{limit}, Fetches: []tf.Output{count}}, []*bridge.Tensor{flat(t, bridge.Shape{}, int64(math.MaxInt64))}},
	}
	for _, threading := range []bridge.Threading{bridge.CallersThread, bridge.Pool, bridge.SingleThreaded} {
		for _, b := range blocked {
			t.Run("frees a run in "+b.name+" at once: "+threading.String(), func(t *testing.T) {
				s := c.session(bridge.Config{Threading: threading})
				result := make(chan error)
				go func() {
					got, err := s.Call(context.Background(), b.call, b.feed...)
					for _, v := range got {
						v.Close()
					}
					result <- err
				}()
				time.Sleep(100 * time.Millisecond)
				start := time.Now()
				require.NoError(t, s.Close())
				require.ErrorIs(t, <-result, bridge.ErrClosed)
				require.Less(t, time.Since(start), time.Second)
			})
		}
	}

	t.Run("waits for runs under load, each of which succeeds or says so", func(t *testing.T) {
		c := newCounter(t)
		s := c.session(bridge.Config{})
		require.NoError(t, s.Run(t.Context(), c.init))
		var all sync.WaitGroup
		var done atomic.Int64
		for i := range 8 {
			call := bridge.Call{Fetches: []tf.Output{c.value}}
			if i%2 == 0 {
				call.Targets = []*tf.Operation{c.add}
			}
			step, out := prepare(t, s, call)
			all.Go(func() {
				for {
					if err := step.Run(context.Background(), nil, out); err != nil {
						assert.ErrorIs(t, err, bridge.ErrClosed)
						return
					}
					done.Add(1)
				}
			})
		}
		for done.Load() < 100 {
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, s.Close())
		all.Wait()
	})

	t.Run("ends the wait for a turn", func(t *testing.T) {
		c, _, s := heldTurn(t)
		waiting := make(chan error)
		go func() { waiting <- s.Run(context.Background(), c.add) }()
		time.Sleep(50 * time.Millisecond)
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-waiting, bridge.ErrClosed)
	})
}

// heldTurn is a session in which an update waits in a queue, and so has the turn,
// until the session is closed.
func heldTurn(t *testing.T) (c counter, stuck <-chan error, s *bridge.Session) {
	c = newCounter(t)
	wait := c.dequeue("never")
	held, err := bridge.AddOperation(c.Graph, bridge.OpSpec{Type: "AssignAddVariableOp", Name: "held",
		Inputs: []tf.Input{bridge.Input(c.add, 0), bridge.Input(c.add, 1)}, Control: []*tf.Operation{wait}})
	require.NoError(t, err)
	s = c.session(bridge.Config{})
	require.NoError(t, s.Run(t.Context(), c.init))
	result := make(chan error, 1)
	go func() { result <- s.Run(context.Background(), held) }()
	time.Sleep(100 * time.Millisecond)
	return c, result, s
}

func TestUpdatesTakeTurns(t *testing.T) {
	t.Run("16 goroutines, 500 updates each, lose none", func(t *testing.T) {
		// Read, then write: exact only if no two runs overlap.
		g := newGraph(t)
		handle, initialize := g.variable("n", constant(g, "zero", bridge.Shape{}, int64(0)))
		value := g.read("value", handle, tf.Int64)
		next := g.op("AddV2", "next", []tf.Output{value, constant(g, "one", bridge.Shape{}, int64(1))}).Output(0)
		step := g.op("AssignVariableOp", "step", []tf.Output{handle, next})
		c := counter{g, initialize, step, value}
		s := c.session(bridge.Config{})
		require.NoError(t, s.Run(t.Context(), c.init))
		update, err := s.Prepare(bridge.Call{Fetches: []tf.Output{next}, Targets: []*tf.Operation{step}})
		require.NoError(t, err)
		var all sync.WaitGroup
		seen := make([]atomic.Int64, 16*500+1)
		for range 16 {
			all.Go(func() {
				out := update.NewOutputs()
				defer out.Close()
				for range 500 {
					if !assert.NoError(t, update.Run(context.Background(), nil, out)) {
						return
					}
					n, err := bridge.Item[int64](out.Tensor(0))
					assert.NoError(t, err)
					seen[n].Add(1)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 16*500, c.readNow(s))
		for n := range seen[1:] {
			require.EqualValues(t, 1, seen[n+1].Load(), "the value %d was written by %d runs", n+1, seen[n+1].Load())
		}
	})

	t.Run("a wait ends with its context, others run beside it", func(t *testing.T) {
		c, stuck, s := heldTurn(t)

		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, s.Run(ctx, c.add), context.DeadlineExceeded)
		require.Less(t, time.Since(start), time.Second)

		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(30*time.Millisecond, cancel)
		start = time.Now()
		require.ErrorIs(t, s.Run(ctx, c.add), context.Canceled)
		require.Less(t, time.Since(start), time.Second)

		require.Zero(t, c.readNow(s), "a read takes no turn, and neither update was made")
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-stuck, bridge.ErrClosed)
	})
}

func TestUpdatesAreFound(t *testing.T) {
	g := newGraph(t)
	handle, initialize := g.variable("v", constant(g, "zero", bridge.Shape{}, int64(0)))
	value := g.read("value", handle, tf.Int64)
	plain := g.op("Square", "plain", []tf.Output{value}).Output(0)
	_, pureLoop := g.loop(tf.Output{})
	_, updatingLoop := g.loop(handle)
	after := g.op("Square", "after", []tf.Output{updatingLoop}).Output(0)
	controlled, err := bridge.AddOperation(g.Graph, bridge.OpSpec{Type: "NoOp", Name: "controlled", Control: []*tf.Operation{initialize}})
	require.NoError(t, err)
	old := g.op("VariableV2", "old", nil, bridge.Attr{Name: "shape", Value: bridge.Shape{}}, bridge.Attr{Name: "dtype", Value: tf.Float}).Output(0)
	oldAdd := g.op("AssignAdd", "old/add", []tf.Output{old, constant(g, "one", bridge.Shape{}, float32(1))}).Output(0)

	s := g.session(bridge.Config{})
	for _, c := range []struct {
		name string
		call bridge.Call
		want bool
	}{
		{"a read", bridge.Call{Fetches: []tf.Output{plain}}, false},
		{"an assignment", bridge.Call{Targets: []*tf.Operation{initialize}}, true},
		{"what waits for an assignment", bridge.Call{Targets: []*tf.Operation{controlled}}, true},
		{"a loop that updates nothing", bridge.Call{Fetches: []tf.Output{pureLoop}}, false},
		{"a loop that updates in its body", bridge.Call{Fetches: []tf.Output{updatingLoop}}, true},
		{"what follows such a loop", bridge.Call{Fetches: []tf.Output{after}}, true},
		{"what follows such a loop whose result is fed", bridge.Call{Feeds: []tf.Output{updatingLoop}, Fetches: []tf.Output{after}}, false},
		{"an old reference variable's update", bridge.Call{Fetches: []tf.Output{oldAdd}}, true},
		{"an old reference variable's read", bridge.Call{Fetches: []tf.Output{old}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			step, err := s.Prepare(c.call)
			require.NoError(t, err)
			require.Equal(t, c.want, step.Updates())
		})
	}
}

func TestUpdatesAreFoundInFunctionsThatCallEachOther(t *testing.T) {
	// a loops over b, then updates; b loops over a. (TensorFlow itself overflows
	// its stack on plain calls in a circle, so these are loops.)
	call := func(name, callee string) *nodedef.NodeDef {
		body := &attrvalue.AttrValue{Value: &attrvalue.AttrValue_Func{Func: &attrvalue.NameAttrList{Name: callee}}}
		return &nodedef.NodeDef{Name: name, Op: "While", Input: []string{"v"}, Attr: map[string]*attrvalue.AttrValue{"cond": body, "body": body,
			"T": {Value: &attrvalue.AttrValue_List{List: &attrvalue.AttrValue_ListValue{Type: []types.DataType{types.DataType_DT_RESOURCE}}}}}}
	}
	i64 := &attrvalue.AttrValue{Value: &attrvalue.AttrValue_Type{Type: types.DataType_DT_INT64}}
	def := func(name string, nodes ...*nodedef.NodeDef) *function.FunctionDef {
		return &function.FunctionDef{NodeDef: nodes, Signature: &opdef.OpDef{Name: name, IsStateful: true,
			InputArg: []*opdef.OpDef_ArgDef{{Name: "v", Type: types.DataType_DT_RESOURCE}}}}
	}
	a := def("a", call("b", "b"),
		&nodedef.NodeDef{Name: "one", Op: "Const", Attr: map[string]*attrvalue.AttrValue{"dtype": i64,
			"value": {Value: &attrvalue.AttrValue_Tensor{Tensor: &tensorproto.TensorProto{Dtype: types.DataType_DT_INT64, Int64Val: []int64{1}}}}}},
		&nodedef.NodeDef{Name: "add", Op: "AssignAddVariableOp", Input: []string{"v", "one:output:0"}, Attr: map[string]*attrvalue.AttrValue{"dtype": i64}})
	g := newGraph(t)
	_, err := bridge.AddFunctions(g.Graph, a, def("b", call("a", "a")), def("idle", call("idle", "idle")))
	require.NoError(t, err)
	v, _ := g.variable("v", constant(g, "zero", bridge.Shape{}, int64(0)))
	s := g.session(bridge.Config{})
	for name, want := range map[string]bool{"a": true, "b": true, "idle": false} {
		op, err := bridge.AddOperation(g.Graph, bridge.OpSpec{Type: "While", Name: "loop_" + name, Inputs: []tf.Input{tf.OutputList{v}},
			Attrs: []bridge.Attr{{Name: "cond", Value: bridge.Func{Name: name}}, {Name: "body", Value: bridge.Func{Name: name}}}})
		require.NoError(t, err)
		for range 2 {
			step, err := s.Prepare(bridge.Call{Targets: []*tf.Operation{op}})
			require.NoError(t, err)
			require.Equal(t, want, step.Updates(), name)
		}
	}
}

func TestUpdatingOpTypes(t *testing.T) {
	all, err := bridge.AllOps()
	require.NoError(t, err)
	var found []string
	for _, def := range all {
		if bridge.UpdatesVariable(def.GetName()) {
			found = append(found, def.GetName())
		}
	}
	for _, want := range []string{
		"Assign", "AssignAdd", "AssignSub", "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp",
		"ResourceApplyAdam", "ResourceSparseApplyAdagradV2", "ApplyMomentum", "SparseApplyFtrl",
		"ResourceScatterAdd", "ResourceScatterNdUpdate", "ScatterUpdate", "ScatterNdSub",
		"StridedSliceAssign", "ResourceStridedSliceAssign", "CountUpTo",
	} {
		require.Contains(t, found, want)
	}
	for _, not := range []string{"ScatterNd", "ScatterNdNonAliasingAdd", "TensorScatterUpdate", "ReadVariableOp", "AssertNextDataset", "VarHandleOp", "Assert"} {
		require.NotContains(t, found, not)
	}
}

func TestTimeLimits(t *testing.T) {
	const limit = 100 * time.Millisecond
	c := newCounter(t)
	turns, count := c.loop(tf.Output{})
	endless := []*bridge.Tensor{flat(t, bridge.Shape{}, int64(math.MaxInt64))}
	queue := bridge.Call{Targets: []*tf.Operation{c.dequeue("dequeue")}}
	loop := bridge.Call{Feeds: []tf.Output{turns}, Fetches: []tf.Output{count}}
	kernels := bridge.Call{Fetches: []tf.Output{c.matmuls(20)}}
	s := c.session(bridge.Config{})
	require.NoError(t, s.Run(t.Context(), c.init))

	run := func(s *bridge.Session, ctx context.Context, call bridge.Call, feeds ...*bridge.Tensor) (time.Duration, error) {
		start := time.Now()
		got, err := s.Call(ctx, call, feeds...)
		for _, v := range got {
			assert.NoError(t, v.Close())
		}
		return time.Since(start), err
	}
	stillGood := func(t *testing.T) {
		before := c.readNow(s)
		require.NoError(t, s.Run(t.Context(), c.add))
		require.Equal(t, before+1, c.readNow(s), "the session and its variables are usable afterwards")
	}

	t.Run("a queue is left at the deadline", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		took, err := run(s, ctx, queue)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, bridge.ErrDeadlineExceeded)
		require.GreaterOrEqual(t, took, limit)
		require.Less(t, took, limit+time.Second)
		stillGood(t)
	})
	t.Run("a loop is left at the deadline", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		took, err := run(s, ctx, loop, endless...)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, took, limit+time.Second)
		stillGood(t)
	})
	t.Run("kernels without a loop are run to their end, then it is an error", func(t *testing.T) {
		free, err := run(s, context.Background(), kernels)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), free/8)
		defer cancel()
		took, err := run(s, ctx, kernels)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, took, 5*free+time.Second)
		stillGood(t)
	})
	t.Run("a session's own limit holds for contexts without one", func(t *testing.T) {
		s := c.session(bridge.Config{Timeout: limit})
		_, err := run(s, context.Background(), queue)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		ctx, cancel := context.WithTimeout(t.Context(), 4*limit)
		defer cancel()
		took, err := run(s, ctx, queue)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.GreaterOrEqual(t, took, 4*limit, "the context's deadline counts where it has one")
	})
	t.Run("a context that is done already runs nothing", func(t *testing.T) {
		before := c.readNow(s)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, s.Run(ctx, c.add), context.Canceled)
		ctx, cancel = context.WithTimeout(t.Context(), -time.Second)
		defer cancel()
		require.ErrorIs(t, s.Run(ctx, c.add), context.DeadlineExceeded)
		require.Equal(t, before, c.readNow(s))
	})
	t.Run("a cancelled context is seen after the run in progress", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(limit/10, cancel)
		feed := []*bridge.Tensor{flat(t, bridge.Shape{}, int64(20_000))}
		_, err := run(s, ctx, loop, feed...)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, bridge.ErrCanceled)
		stillGood(t)
	})
	t.Run("a deadline may be far away", func(t *testing.T) {
		ctx, cancel := context.WithDeadline(t.Context(), time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC))
		defer cancel()
		require.NoError(t, s.Run(ctx, c.add))
	})
	t.Run("a nil context is the background", func(t *testing.T) {
		var none context.Context
		require.NoError(t, s.Run(none, c.add))
	})
}

func TestUninitializedVariablesAreNamed(t *testing.T) {
	g := newGraph(t)
	u, initialize := g.variable("net/u", constant(g, "u0", bridge.Shape{2}, float32(1), 2))
	index := constant(g, "index", bridge.Shape{1}, int32(0))
	row := constant(g, "row", bridge.Shape{1}, float32(1))
	rate := constant(g, "rate", bridge.Shape{}, float32(1))
	float := bridge.Attr{Name: "dtype", Value: tf.Float}
	old := g.op("VariableV2", "net/old", nil, bridge.Attr{Name: "shape", Value: bridge.Shape{}}, float)
	s := g.session(bridge.Config{})
	for name, op := range map[string]*tf.Operation{
		"read":          g.op("ReadVariableOp", "read", []tf.Output{u}, float),
		"gather":        g.op("ResourceGather", "gather", []tf.Output{u, index}, float),
		"assign add":    g.op("AssignAddVariableOp", "assign_add", []tf.Output{u, constant(g, "d", bridge.Shape{2}, float32(1), 2)}),
		"scatter":       g.op("ResourceScatterAdd", "scatter", []tf.Output{u, index, row}, float),
		"apply":         g.op("ResourceApplyGradientDescent", "apply", []tf.Output{u, rate, constant(g, "e", bridge.Shape{2}, float32(1), 2)}),
		"sparse":        g.op("ResourceSparseApplyAdagrad", "sparse", []tf.Output{u, u, rate, row, index}),
		"old reference": g.op("Identity", "old_read", []tf.Output{old.Output(0)}),
	} {
		t.Run(name, func(t *testing.T) {
			err := s.Run(t.Context(), op)
			require.ErrorIs(t, err, bridge.ErrUninitialized)
			require.ErrorIs(t, err, bridge.ErrFailedPrecondition)
			want := "net/u"
			if name == "old reference" {
				want = "net/old"
			}
			require.ErrorContains(t, err, `"`+want+`"`)
			require.ErrorContains(t, err, "Init()")
			var e *bridge.Error
			require.True(t, errors.As(err, &e))
			require.Equal(t, op.Name(), e.Op)
		})
	}
	require.NoError(t, s.Run(t.Context(), initialize))
	require.NoError(t, s.Run(t.Context(), g.Operation("apply")))
}

func TestSessionSeesOperationsAddedLater(t *testing.T) {
	c := newCounter(t)
	s := c.session(bridge.Config{})
	require.NoError(t, s.Run(t.Context(), c.init))
	require.NoError(t, s.Run(t.Context(), c.add))
	double := c.op("AddV2", "double", []tf.Output{c.value, c.value}).Output(0)
	got, err := s.Call(t.Context(), bridge.Call{Fetches: []tf.Output{double}})
	require.NoError(t, err)
	defer got[0].Close()
	require.Equal(t, []int64{2}, values[int64](t, got[0]))
}

func TestForgottenSessionIsClosed(t *testing.T) {
	before := bridge.LiveSessions()
	func() {
		c := newCounter(t)
		s, err := bridge.NewSession(c.Graph, bridge.Config{})
		require.NoError(t, err)
		require.NoError(t, s.Run(t.Context(), c.init)) // remembers a step
	}()
	require.Eventually(t, func() bool {
		runtime.GC()
		return bridge.LiveSessions() <= before
	}, 10*time.Second, 10*time.Millisecond)
}
