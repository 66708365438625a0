package demo

import (
	"bytes"
	"image/color"
	"image/png"
	"io"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// colours counts the pixels of each colour in a PNG.
func colours(t *testing.T, draw func(io.Writer) error) map[color.RGBA]int {
	t.Helper()
	var file bytes.Buffer
	require.NoError(t, draw(&file))
	picture, err := png.Decode(&file)
	require.NoError(t, err)
	count := map[color.RGBA]int{}
	for y := range picture.Bounds().Dy() {
		for x := range picture.Bounds().Dx() {
			count[color.RGBAModel.Convert(picture.At(x, y)).(color.RGBA)]++
		}
	}
	return count
}

func TestEveryCurveIsDrawnInItsOwnColour(t *testing.T) {
	up := curve{"up", 0, []float64{0, 0.5, 1}}
	down := curve{"down", 0, []float64{1, 0.5, 0}}
	one := colours(t, func(w io.Writer) error { return drawCurves(w, "one", "share", 0, 1, up) })
	two := colours(t, func(w io.Writer) error { return drawCurves(w, "two", "share", 0, 1, up, down) })
	assert.NotZero(t, one[inks[0]])
	assert.Zero(t, one[inks[1]])
	assert.NotZero(t, two[inks[0]])
	assert.NotZero(t, two[inks[1]])
}

func TestACurveThatIsNotANumberIsAnError(t *testing.T) {
	err := drawCurves(io.Discard, "lost", "loss", 0, 1, curve{"loss", 0, []float64{1, math.NaN()}})
	require.Error(t, err)
}

func TestTheGridShowsTheInkOfEveryDigit(t *testing.T) {
	black, white := make([]float32, 64), make([]float32, 64)
	for i := range black {
		black[i] = 1
	}
	ink := func(tiles ...tile) int {
		count := colours(t, func(w io.Writer) error {
			return drawGrid(w, "digits", []tileRow{{"row", tiles}})
		})
		return count[color.RGBA{0, 0, 0, 0xff}]
	}
	none := ink(greyTile(white), greyTile(white))
	half := ink(greyTile(black), greyTile(white))
	whole := ink(greyTile(black), greyTile(black))
	assert.Greater(t, half, none+2000)
	assert.InDelta(t, half-none, whole-half, 200)
}

func TestTiles(t *testing.T) {
	values := make([]float32, 64)
	values[9] = 1 // row 1, column 1
	values[10] = -1
	for name, c := range map[string]struct {
		tile        tile
		row, column int
		want        color.Color
	}{
		"paper is white":                {greyTile(values), 0, 0, color.Gray{Y: 255}},
		"ink is black":                  {greyTile(values), 1, 1, color.Gray{Y: 0}},
		"less than nothing is paper":    {greyTile(values), 1, 2, color.Gray{Y: 255}},
		"a silent vote is white":        {voteTile(values), 0, 0, color.RGBA{255, 255, 255, 255}},
		"a vote for is orange":          {voteTile(values), 1, 1, inks[1]},
		"a vote against is blue":        {voteTile(values), 1, 2, inks[0]},
		"phase zero is red":             {hueTile(values), 0, 0, color.RGBA{235, 0, 0, 255}},
		"a third of a turn is green":    {hueTile([]float32{2 * math.Pi / 3}), 0, 0, color.RGBA{0, 235, 0, 255}},
		"two thirds of a turn are blue": {hueTile([]float32{4 * math.Pi / 3}), 0, 0, color.RGBA{0, 0, 235, 255}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, c.tile(c.row, c.column)) })
	}
}
