package demo

import (
	"image"
	"image/color"
	"io"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"github.com/sluice-ml/sluice/internal/digits"
)

// curve is one line of a picture: a value for each epoch, beginning with the given one.
type curve struct {
	name   string
	first  int
	values []float64
}

// The lines' colours, in the order in which they are drawn; told apart also by who is colour-blind.
var inks = []color.RGBA{
	{0x1b, 0x6c, 0xa8, 0xff}, // blue
	{0xe0, 0x7a, 0x1f, 0xff}, // orange
	{0x2a, 0x9d, 0x6f, 0xff}, // green
}

var dashes = [][]vg.Length{nil, {vg.Points(5), vg.Points(3)}, {vg.Points(1.5), vg.Points(2.5)}}

// drawCurves writes a PNG of some curves over the epochs, with an axis from low to high.
func drawCurves(w io.Writer, title, unit string, low, high float64, curves ...curve) error {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = vg.Points(8)
	p.X.Label.Text = "epoch"
	p.Y.Label.Text = unit
	p.Legend.Padding = vg.Points(3)
	p.Legend.XOffs, p.Legend.YOffs = -vg.Points(10), vg.Points(10)
	p.Add(plotter.NewGrid())
	for i, c := range curves {
		points := make(plotter.XYs, len(c.values))
		for i, v := range c.values {
			points[i] = plotter.XY{X: float64(c.first + i), Y: v}
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.Color = inks[i%len(inks)]
		line.Dashes = dashes[i%len(dashes)]
		line.Width = vg.Points(1.8)
		p.Add(line)
		p.Legend.Add(c.name, line)
	}
	p.Y.Min, p.Y.Max = low, high
	return writePlot(w, p, 16*vg.Centimeter, 9*vg.Centimeter)
}

// tile is one image of 8×8 pixels in a grid.
type tile func(row, column int) color.Color

// greyTile shows ink on paper: 0 is white and 1 is black.
func greyTile(pixels []float32) tile {
	return func(row, column int) color.Color {
		ink := min(max(float64(pixels[row*digits.Side+column]), 0), 1)
		return color.Gray{Y: uint8(math.Round(255 * (1 - ink)))}
	}
}

// hueTile shows angles in [0, 2π) on the colour wheel, where 0 and 2π meet in red.
func hueTile(phases []float32) tile {
	return func(row, column int) color.Color {
		return hue(float64(phases[row*digits.Side+column]) / (2 * math.Pi))
	}
}

// voteTile shows values in [-1, 1]: orange speaks for, blue against, white is silent.
func voteTile(votes []float32) tile {
	return func(row, column int) color.Color {
		v := min(max(float64(votes[row*digits.Side+column]), -1), 1)
		ink := inks[1]
		if v < 0 {
			ink, v = inks[0], -v
		}
		towards := func(c uint8) uint8 { return uint8(math.Round(255 + v*(float64(c)-255))) }
		return color.RGBA{towards(ink.R), towards(ink.G), towards(ink.B), 0xff}
	}
}

// hue is the fully saturated colour at a turn in [0, 1).
func hue(turn float64) color.Color {
	channel := func(offset float64) uint8 {
		k := math.Mod(offset+6*turn, 6)
		return uint8(math.Round(235 * (1 - max(0, min(k, 4-k, 1)))))
	}
	return color.RGBA{channel(5), channel(3), channel(1), 0xff}
}

// tileRow is a row of a grid, with what is written to its left.
type tileRow struct {
	caption string
	tiles   []tile
}

const (
	zoom = 10 // edge of a pixel of a digit, in pixels of the picture
	gap  = 12 // between two digits
)

// drawGrid writes a PNG of rows of images, the columns numbered from 0.
func drawGrid(w io.Writer, title string, rows []tileRow) error {
	const cell = digits.Side*zoom + gap
	columns := 0
	for _, row := range rows {
		columns = max(columns, len(row.tiles))
	}
	sheet := image.NewRGBA(image.Rect(0, 0, columns*cell, len(rows)*cell))
	for i := range sheet.Pix {
		sheet.Pix[i] = 0xff
	}
	var down, across []plot.Tick
	for r, row := range rows {
		down = append(down, plot.Tick{Value: float64(len(rows)-r) - 0.5, Label: row.caption})
		for c, t := range row.tiles {
			for y := range digits.Side * zoom {
				for x := range digits.Side * zoom {
					sheet.Set(c*cell+gap/2+x, r*cell+gap/2+y, t(y/zoom, x/zoom))
				}
			}
		}
	}
	for c := range columns {
		across = append(across, plot.Tick{Value: float64(c) + 0.5, Label: strconv.Itoa(c)})
	}

	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = vg.Points(6)
	p.Add(plotter.NewImage(sheet, 0, 0, float64(columns), float64(len(rows))))
	for axis, ticks := range map[*plot.Axis][]plot.Tick{&p.X: across, &p.Y: down} {
		axis.Tick.Marker = plot.ConstantTicks(ticks)
		axis.Tick.Length = 0
		axis.LineStyle.Width = 0
		axis.Padding = 0
	}
	// A cell takes 1.8 cm, and the captions, the title and the numbers take the rest.
	return writePlot(w, p, vg.Length(columns)*1.8*vg.Centimeter+2.6*vg.Centimeter,
		vg.Length(len(rows))*1.8*vg.Centimeter+1.5*vg.Centimeter)
}

func writePlot(w io.Writer, p *plot.Plot, width, height vg.Length) error {
	const margin = 4
	canvas := vgimg.New(width, height)
	p.BackgroundColor = color.White
	p.Draw(draw.Crop(draw.New(canvas), margin, -margin, margin, -margin))
	_, err := vgimg.PngCanvas{Canvas: canvas}.WriteTo(w)
	return err
}
