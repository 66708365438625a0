package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/savedmodels"
)

// save writes a model of y = x·[10, version].
func save(t *testing.T, dir string, version float32) {
	t.Helper()
	g := ops.NewGraph(ops.GraphOptions{})
	x := g.Placeholder("x", tf.Float, ops.Shape{-1, 2})
	w := g.Variable("w", ops.Shape{2, 1}, ops.FromValue([][]float32{{10}, {version}}))
	y := raw.MatMul(g.Root(), x, w.Value())
	sess, err := bridge.NewSession(g.TF(), bridge.Config{})
	require.NoError(t, err)
	defer sess.Close()
	require.NoError(t, sess.Run(t.Context(), g.Init()))
	require.NoError(t, savedmodels.Save(t.Context(), g, sess, dir, savedmodels.SaveOptions{Signatures: map[string]savedmodels.SignatureSpec{
		"serving_default": {Inputs: map[string]tf.Output{"x": x}, Outputs: map[string]tf.Output{"y": y}}}}))
}

func TestTheServiceChangesVersionsUnderLoadAndDrains(t *testing.T) {
	models := t.TempDir()
	save(t, filepath.Join(models, "1"), 1)
	listener, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	url := "http://" + listener.Addr().String()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, listener, models, 5*time.Second, 20*time.Millisecond) }()
	ask := func(body string) (int, string) {
		response, err := http.Post(url+"/predict", "application/json", strings.NewReader(body))
		if !assert.NoError(t, err) {
			return 0, ""
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		assert.NoError(t, err)
		return response.StatusCode, strings.TrimSpace(string(text))
	}
	code, text := ask(`{"rows": [[1, 2], [3, 4]]}`)
	assert.Equal(t, http.StatusOK, code)
	assert.Equal(t, `{"rows":[[12],[34]]}`, text)
	response, err := http.Get(url + "/healthz")
	require.NoError(t, err)
	response.Body.Close()
	assert.Equal(t, http.StatusOK, response.StatusCode)

	for body, want := range map[string]string{
		`{"rows": [[1, 2, 3]]}`:   "wanted shape [?,2], got [1,3]",
		`{"rows": [[1, 2], [3]]}`: "row 1 has 1 numbers, row 0 has 2",
		`{}`:                      "there are no rows",
		`rows`:                    "invalid character",
	} {
		code, text := ask(body)
		assert.Equal(t, http.StatusBadRequest, code)
		assert.Contains(t, text, want)
	}

	// Version 2 comes while four callers ask on; a damaged version 3 changes nothing.
	var wg sync.WaitGroup
	asking, enough := context.WithCancel(t.Context())
	var mu sync.Mutex
	answers := map[string]int{}
	for range 4 {
		wg.Go(func() {
			for asking.Err() == nil {
				code, text := ask(`{"rows": [[0, 1]]}`)
				if !assert.Equal(t, http.StatusOK, code, text) {
					return
				}
				mu.Lock()
				answers[text]++
				mu.Unlock()
			}
		})
	}
	heard := func(answer string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return answers[answer] > 20
		}
	}
	require.Eventually(t, heard(`{"rows":[[1]]}`), 20*time.Second, time.Millisecond)
	save(t, filepath.Join(models, "2"), 2)
	require.NoError(t, os.Mkdir(filepath.Join(models, "3"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(models, "3", "saved_model.pb"), []byte("half a mod"), 0o600))
	time.Sleep(100 * time.Millisecond) // it has seen that by then
	require.NoError(t, os.RemoveAll(filepath.Join(models, "3")))
	require.Eventually(t, heard(`{"rows":[[2]]}`), 20*time.Second, time.Millisecond)
	enough()
	wg.Wait()
	assert.Len(t, answers, 2)

	stop()
	require.NoError(t, <-done)
	http.DefaultClient.CloseIdleConnections()
	_, err = http.Post(url+"/predict", "application/json", strings.NewReader("{}"))
	assert.Error(t, err, "it is gone")
	tensors, bytes := bridge.Live()
	assert.Zero(t, tensors, "tensors left, %d bytes", bytes)
	assert.Zero(t, bridge.LiveSessions())
}

func TestNoModelIsAnErrorAtOnce(t *testing.T) {
	listener, err := net.Listen("tcp", "localhost:0")
	require.NoError(t, err)
	err = serve(t.Context(), listener, t.TempDir(), time.Second, time.Second)
	assert.ErrorContains(t, err, "there is no model in")
}
