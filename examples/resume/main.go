// Command resume trains a net on handwritten digits, a while at a time. It saves as it
// goes, beside the training, and begins where it was when it is started again, also after
// it was killed; the result is the same, bit for bit, as without a stop. At the end it
// writes a SavedModel, which Python, TensorFlow Serving and this module load.
//
//	resume run 200     # trains to step 200
//	resume run 600     # goes on from there, and writes run/model/1
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"

	tf "github.com/galeone/tensorflow/tensorflow/go"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/internal/digits"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/ops/raw"
	"github.com/sluice-ml/sluice/optimizers"
	"github.com/sluice-ml/sluice/savedmodels"
	"github.com/sluice-ml/sluice/savedmodels/checkpoints"
)

const batch = 32

// net is a classifier of digits with one hidden layer, trained by Adam.
type net struct {
	*ops.Graph
	images, labels tf.Output
	scores, right  tf.Output
	train          *tf.Operation
}

func newNet() (*net, error) {
	g := ops.NewGraph(ops.GraphOptions{Seed: 1})
	n := &net{Graph: g, images: g.Placeholder("images", tf.Float, ops.Shape{-1, 64}), labels: g.Placeholder("labels", tf.Int32, ops.Shape{-1})}
	s := g.Scope("net")
	hidden := raw.Relu(s, dense(s.Scope("hidden"), n.images, 64, 32))
	n.scores = dense(s.Scope("out"), hidden, 32, 10)
	guess := raw.ArgMax(g, n.scores, g.Const(int32(1)), raw.Attr{Name: "output_type", Value: tf.Int32})
	n.right = raw.Mean(g, raw.Cast(g, raw.Equal(g, guess, n.labels), tf.Float), g.Const([]int32{0}))
	loss := ops.SparseSoftmaxCrossEntropy(g.Root(), n.scores, n.labels)
	step, err := optimizers.NewAdam(0.003).Minimize(loss, g.Trainable("net/"))
	if err != nil {
		return nil, err
	}
	n.train = step.Op
	return n, g.Err()
}

func dense(s *ops.Scope, x tf.Output, from, to int64) tf.Output {
	w := s.Variable("kernel", ops.Shape{from, to}, ops.HeUniform())
	b := s.Variable("bias", ops.Shape{to}, ops.Zeros())
	return raw.AddV2(s, raw.MatMul(s, x, w.Value()), b.Value())
}

// trainTo trains to a step, from the newest checkpoint in dir or from the beginning, and
// returns the share of held-out digits that the net then recognizes.
func (n *net) trainTo(ctx context.Context, sess *bridge.Session, dir string, last int64, out io.Writer) (float32, error) {
	saver, err := checkpoints.NewSaver(n.Graph, dir, checkpoints.SaverOptions{Keep: 3})
	if err != nil {
		return 0, err
	}
	defer saver.Close()
	step, _, err := saver.Restore(ctx, sess)
	if errors.Is(err, bridge.ErrNotFound) { // the first time
		err = sess.Run(ctx, n.Init())
	}
	if err != nil {
		return 0, err
	}
	fmt.Fprintln(out, "from step", step)
	data, held, err := digits.Load()
	if err != nil {
		return 0, err
	}
	for ; step < last; step++ {
		if err := n.run(ctx, sess, data, step); err != nil {
			return 0, err
		}
		if (step+1)%100 == 0 {
			// The variables are taken at once; the writing goes on beside the training.
			if _, err := saver.Start(ctx, sess, step+1, checkpoints.SaveOptions{}); err != nil {
				return 0, err
			}
		}
	}
	if _, err := saver.Save(ctx, sess, step, checkpoints.SaveOptions{}); err != nil {
		return 0, err
	}
	return n.recognized(ctx, sess, held)
}

// run trains on the batch of a step, which depends on nothing but the step.
func (n *net) run(ctx context.Context, sess *bridge.Session, data digits.Set, step int64) error {
	at := int(step) * batch % (data.Len() - batch)
	images, err := bridge.FromFlat(ops.Shape{batch, 64}, data.Images[at*digits.Pixels:(at+batch)*digits.Pixels])
	if err != nil {
		return err
	}
	defer images.Close()
	labels, err := bridge.FromFlat(ops.Shape{batch}, data.Labels[at:at+batch])
	if err != nil {
		return err
	}
	defer labels.Close()
	_, err = sess.Call(ctx, bridge.Call{Feeds: []tf.Output{n.images, n.labels}, Targets: []*tf.Operation{n.train}}, images, labels)
	return err
}

func (n *net) recognized(ctx context.Context, sess *bridge.Session, held digits.Set) (float32, error) {
	images, err := bridge.FromFlat(ops.Shape{int64(held.Len()), 64}, held.Images)
	if err != nil {
		return 0, err
	}
	defer images.Close()
	labels, err := bridge.FromFlat(ops.Shape{int64(held.Len())}, held.Labels)
	if err != nil {
		return 0, err
	}
	defer labels.Close()
	out, err := sess.Call(ctx, bridge.Call{Feeds: []tf.Output{n.images, n.labels}, Fetches: []tf.Output{n.right}}, images, labels)
	if err != nil {
		return 0, err
	}
	defer out[0].Close()
	return bridge.Item[float32](out[0])
}

// export writes the net as the next version of a model, without what only training needs.
func (n *net) export(ctx context.Context, sess *bridge.Session, base string) (string, error) {
	dir, err := savedmodels.NextVersion(base)
	if err != nil {
		return "", err
	}
	err = savedmodels.Save(ctx, n.Graph, sess, dir, savedmodels.SaveOptions{Signatures: map[string]savedmodels.SignatureSpec{
		"serving_default": {
			Inputs:  map[string]tf.Output{"image": n.images},
			Outputs: map[string]tf.Output{"scores": n.scores},
		},
	}})
	return dir, err
}

func resume(ctx context.Context, dir string, last int64, out io.Writer) error {
	n, err := newNet()
	if err != nil {
		return err
	}
	sess, err := bridge.NewSession(n.TF(), bridge.Config{})
	if err != nil {
		return err
	}
	defer sess.Close()
	right, err := n.trainTo(ctx, sess, dir, last, out)
	if err != nil {
		return err
	}
	model, err := n.export(ctx, sess, filepath.Join(dir, "model"))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "step %d: %.1f %% of held-out digits recognized; %s\n", last, 100*right, model)
	return nil
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: resume FOLDER STEP")
	}
	last, err := strconv.ParseInt(os.Args[2], 10, 64)
	if err != nil || last < 0 {
		log.Fatalf("%q is not a step", os.Args[2])
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := resume(ctx, os.Args[1], last, os.Stdout); err != nil {
		stop()
		log.Fatal(err)
	}
}
