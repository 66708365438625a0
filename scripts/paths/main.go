// Paths draws how ten optimizers walk from one place down Rosenbrock's function
//
//	f(x, y) = (1-x)² + 10·(y-x²)²
//
// a bent valley with its lowest place at (1, 1) (with 10 for his 100, so that
// one sees into it), and writes docs/paths.png.
//
//	go run ./scripts/paths [-out docs/paths.png] [-steps 200]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"image/color"
	"io"
	"math"
	"os"
	"path/filepath"

	tf "github.com/galeone/tensorflow/tensorflow/go"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/palette"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/sluice-ml/sluice/bridge"
	"github.com/sluice-ml/sluice/ops"
	"github.com/sluice-ml/sluice/optimizers"
)

// minimizer is what all optimizers have in common.
type minimizer interface {
	Minimize(loss tf.Output, vars []*ops.Variable, opts ...optimizers.GradientOptions) (*optimizers.TrainOp, error)
}

// walkers are the ten, each at a rate that suits it here.
var walkers = []struct {
	name string
	make func() minimizer
	ink  color.RGBA
	dash []vg.Length
}{
	{"SGD, 0.01", func() minimizer { return optimizers.NewGradientDescent(.01) }, blue, nil},
	{"momentum, 0.005", func() minimizer { return optimizers.NewMomentum(.005, .9) }, orange, nil},
	{"Nesterov, 0.005", func() minimizer { m := optimizers.NewMomentum(.005, .9); m.Nesterov = true; return m }, green, nil},
	{"RMSprop, 0.02", func() minimizer { return optimizers.NewRMSprop(.02) }, red, nil},
	{"Adagrad, 0.5", func() minimizer { return optimizers.NewAdagrad(.5) }, violet, nil},
	{"Adadelta, 30", func() minimizer { return optimizers.NewAdadelta(30) }, blue, short},
	{"Adam, 0.1", func() minimizer { return optimizers.NewAdam(.1) }, orange, short},
	{"Nadam, 0.1", func() minimizer { return optimizers.NewNadam(.1) }, green, short},
	{"Lion, 0.03", func() minimizer { return optimizers.NewLion(.03) }, red, short},
	{"schedule-free, 0.3", func() minimizer { return optimizers.NewScheduleFreeAdamW(.3) }, violet, short},
}

var (
	blue   = color.RGBA{0x1b, 0x6c, 0xa8, 0xff}
	orange = color.RGBA{0xe0, 0x7a, 0x1f, 0xff}
	green  = color.RGBA{0x2a, 0x9d, 0x6f, 0xff}
	red    = color.RGBA{0xb2, 0x18, 0x2b, 0xff}
	violet = color.RGBA{0x6a, 0x3d, 0x9a, 0xff}
	short  = []vg.Length{vg.Points(4), vg.Points(2.5)}
)

const (
	startX, startY = -1.3, 0.4
	left, right    = -1.8, 1.6
	low, high      = -0.6, 2.4
)

func main() {
	out := flag.String("out", filepath.Join("docs", "paths.png"), "where the picture goes")
	steps := flag.Int("steps", 200, "how many steps each takes")
	flag.Parse()
	if err := run(context.Background(), *out, *steps); err != nil {
		fmt.Fprintln(os.Stderr, "paths:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out string, steps int) error {
	paths := make([]plotter.XYs, len(walkers))
	for i, w := range walkers {
		path, err := walk(ctx, w.make(), steps)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		paths[i] = path
		end := path[len(path)-1]
		fmt.Printf("%-20s ends at (%6.3f, %6.3f), f = %.3g\n", w.name, end.X, end.Y, surface{}.at(end.X, end.Y))
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	return errors.Join(drawPaths(f, steps, paths), f.Close())
}

// walk is where an optimizer is before its first step and after each.
func walk(ctx context.Context, o minimizer, steps int) (plotter.XYs, error) {
	g := ops.NewGraph(ops.GraphOptions{Seed: 1})
	x := g.Variable("x", ops.Shape{}, ops.Value(startX))
	y := g.Variable("y", ops.Shape{}, ops.Value(startY))
	f := ops.NewFormula(g.Root(), tf.Float)
	apart := f.Sub(y.Value(), f.Square(x.Value()))
	loss := f.Add(f.Square(f.Sub(f.Constant(1), x.Value())), f.Mul(f.Constant(10), f.Square(apart)))
	train, err := o.Minimize(loss, g.Trainable())
	if err != nil {
		return nil, err
	}
	session, err := bridge.NewSession(g.TF(), bridge.Config{})
	if err != nil {
		return nil, err
	}
	defer session.Close()
	if err := session.Run(ctx, g.Init()); err != nil {
		return nil, err
	}
	var path plotter.XYs
	for i := range steps + 1 {
		if i > 0 {
			if err := session.Run(ctx, train.Op); err != nil {
				return nil, err
			}
		}
		now, err := session.Call(ctx, bridge.Call{Fetches: []tf.Output{x.Value(), y.Value()}})
		if err != nil {
			return nil, err
		}
		var at [2]float32
		for k, t := range now {
			value, failed := bridge.Item[float32](t)
			at[k], err = value, errors.Join(err, failed, t.Close())
		}
		if err != nil {
			return nil, err
		}
		path = append(path, plotter.XY{X: float64(at[0]), Y: float64(at[1])})
	}
	return path, nil
}

// surface is the logarithm of the function on a grid.
type surface struct{}

const cells = 240

func (surface) at(x, y float64) float64 { return (1-x)*(1-x) + 10*(y-x*x)*(y-x*x) }

func (surface) Dims() (columns, rows int) { return cells, cells }
func (surface) X(c int) float64           { return left + (right-left)*float64(c)/(cells-1) }
func (surface) Y(r int) float64           { return low + (high-low)*float64(r)/(cells-1) }
func (s surface) Z(c, r int) float64      { return math.Log10(s.at(s.X(c), s.Y(r)) + 1e-3) }

func drawPaths(w io.Writer, steps int, paths []plotter.XYs) error {
	p := plot.New()
	p.Title.Text = fmt.Sprintf("Ten optimizers on Rosenbrock's function, %d steps from the cross", steps)
	p.Title.Padding = vg.Points(8)
	p.X.Label.Text, p.Y.Label.Text = "x", "y"
	p.BackgroundColor = color.White
	levels := make([]float64, 16)
	for i := range levels {
		levels[i] = -2 + 4*float64(i)/float64(len(levels)-1)
	}
	contour := plotter.NewContour(surface{}, levels, greys(len(levels)))
	for i := range contour.LineStyles {
		contour.LineStyles[i].Width = vg.Points(.6)
	}
	p.Add(contour)
	for i, path := range paths {
		line, err := plotter.NewLine(path)
		if err != nil {
			return err
		}
		line.Color, line.Dashes, line.Width = walkers[i].ink, walkers[i].dash, vg.Points(1.6)
		ends, err := plotter.NewScatter(path[len(path)-1:])
		if err != nil {
			return err
		}
		ends.GlyphStyle = draw.GlyphStyle{Color: walkers[i].ink, Radius: vg.Points(3.5), Shape: draw.CircleGlyph{}}
		p.Add(line, ends)
		p.Legend.Add(walkers[i].name, line)
	}
	marks, err := plotter.NewScatter(plotter.XYs{{X: startX, Y: startY}, {X: 1, Y: 1}})
	if err != nil {
		return err
	}
	marks.GlyphStyle = draw.GlyphStyle{Color: color.Black, Radius: vg.Points(5), Shape: draw.CrossGlyph{}}
	p.Add(marks)
	p.Legend.Top, p.Legend.Left, p.Legend.XOffs, p.Legend.YOffs = true, true, 7*vg.Centimeter, -vg.Points(6)
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = left, right, low, high
	canvas := vgimg.New(20*vg.Centimeter, 14*vg.Centimeter)
	p.Draw(draw.Crop(draw.New(canvas), 6, -6, 6, -6))
	_, err = vgimg.PngCanvas{Canvas: canvas}.WriteTo(w)
	return err
}

// greys go from light, high up, to dark in the valley.
type shades []color.Color

func (s shades) Colors() []color.Color { return s }

func greys(n int) palette.Palette {
	s := make(shades, n)
	for i := range s {
		s[i] = color.Gray{Y: uint8(150 + 80*i/n)}
	}
	return s
}
