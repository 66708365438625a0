package main

import (
	"path/filepath"
	"testing"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/savedmodels"
)

// y = w·x² with w = 2 at x = 3, weighted by 5: the gradients are 60 by x and 45 by
// w, and none by z.
func TestASavedModelCaseFailsOnWhatDiffersFromPython(t *testing.T) {
	dir := t.TempDir()
	g := ops.NewGraph(ops.GraphOptions{})
	x, z := g.Placeholder("x", tf.Float, ops.Shape{1}), g.Placeholder("z", tf.Float, ops.Shape{1})
	w := g.Variable("w", ops.Shape{1}, ops.FromValue([]float32{2}))
	y := raw.Mul(g.Root(), w.Value(), raw.Square(g.Root(), x))
	y = raw.Identity(g.Root().WithControl(raw.Neg(g.Root(), z).Op), y)
	session, err := bridge.NewSession(g.TF(), bridge.Config{})
	require.NoError(t, err)
	defer session.Close()
	require.NoError(t, session.Run(t.Context(), g.Init()))
	require.NoError(t, savedmodels.Save(t.Context(), g, session, filepath.Join(dir, "square", "1"), savedmodels.SaveOptions{Signatures: map[string]savedmodels.SignatureSpec{
		"s": {Inputs: map[string]tf.Output{"x": x, "z": z}, Outputs: map[string]tf.Output{"y": y}}}}))
	writeArrays(t, dir, map[string]float32{"x": 3, "z": 1, "y": 18, "weight": 5, "gx": 60, "gw": 45, "wrong": 60.01})
	rec, err := openRecording(dir)
	require.NoError(t, err)
	defer rec.Close()
	array := func(key string) Array { return Array{Key: key, DType: "float32", Shape: []int64{1}} }
	pointer := func(key string) *Array { a := array(key); return &a }
	for name, c := range map[string]struct {
		change func(*savedModelCase)
		says   string
	}{
		"nothing":                  {func(*savedModelCase) {}, ""},
		"an output":                {func(c *savedModelCase) { c.Outputs["y"] = array("gx") }, "y: relative error"},
		"an output's name":         {func(c *savedModelCase) { c.Outputs["Y"] = array("y"); delete(c.Outputs, "y") }, `gives ["y"], in Python ["Y"]`},
		"an input's name":          {func(c *savedModelCase) { c.Inputs["X"] = array("x"); delete(c.Inputs, "x") }, `has no "X"`},
		"the gradient by an input": {func(c *savedModelCase) { c.Gradients.Inputs["x"] = pointer("wrong") }, "gradient by input x: relative error"},
		"a variable's":             {func(c *savedModelCase) { c.Gradients.Variables["w"] = pointer("gx") }, "gradient by variable w: relative error"},
		"none for a value":         {func(c *savedModelCase) { c.Gradients.Inputs["x"] = nil }, "gradient by input x: a value, in Python none"},
		"a value for none":         {func(c *savedModelCase) { c.Gradients.Inputs["z"] = pointer("gx") }, "the gradient by input z is none, in Python it is a value"},
		"a variable's name":        {func(c *savedModelCase) { c.Gradients.Variables["v"] = pointer("gw") }, `lists no variable "v"`},
		"another signature":        {func(c *savedModelCase) { c.Signature = "t" }, `no signature "t"`},
	} {
		t.Run(name, func(t *testing.T) {
			right := savedModelCase{Model: "square", Signature: "s",
				Inputs:  map[string]Array{"x": array("x"), "z": array("z")},
				Outputs: map[string]Array{"y": array("y")}, Weights: map[string]Array{"y": array("weight")}}
			right.Gradients.Inputs = map[string]*Array{"x": pointer("gx"), "z": nil}
			right.Gradients.Variables = map[string]*Array{"w": pointer("gw")}
			c.change(&right)
			_, err := right.check(t.Context(), rec)
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
		})
	}
}
