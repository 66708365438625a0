package digits

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheFileIsTheOneThatTheLicenceNames(t *testing.T) {
	sum := sha256.Sum256(packed)
	assert.Equal(t, "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22", hex.EncodeToString(sum[:]))
	assert.Len(t, packed, 57523)
}

func TestLoad(t *testing.T) {
	train, test, err := Load()
	require.NoError(t, err)

	t.Run("1,438 to train on, 359 held out", func(t *testing.T) {
		assert.Equal(t, 1438, train.Len())
		assert.Equal(t, 359, test.Len())
		assert.Len(t, train.Images, 1438*Pixels)
		assert.Len(t, test.Images, 359*Pixels)
	})
	t.Run("pixels are in 0..1 and reach both ends", func(t *testing.T) {
		for _, set := range []Set{train, test} {
			low, high := set.Images[0], set.Images[0]
			for _, ink := range set.Images {
				low, high = min(low, ink), max(high, ink)
			}
			assert.Equal(t, float32(0), low)
			assert.Equal(t, float32(1), high)
		}
	})
	t.Run("every image of the file is in one part, with its label", func(t *testing.T) {
		all, err := decode(packed)
		require.NoError(t, err)
		type row struct {
			image [Pixels]float32
			label int32
		}
		count := map[row]int{}
		for i := range all.Len() {
			count[row{[Pixels]float32(all.Image(i)), all.Labels[i]}]++
		}
		for _, set := range []Set{train, test} {
			for i := range set.Len() {
				count[row{[Pixels]float32(set.Image(i)), set.Labels[i]}]--
			}
		}
		for _, n := range count {
			require.Zero(t, n)
		}
	})
	t.Run("the parts hold the digits in the same proportions", func(t *testing.T) {
		var inTrain, inTest [Classes]int
		for _, label := range train.Labels {
			inTrain[label]++
		}
		for _, label := range test.Labels {
			inTest[label]++
		}
		for class := range Classes {
			share := float64(inTrain[class]+inTest[class]) * Tests / Total
			assert.InDelta(t, share, inTest[class], 1, "digit %d", class)
		}
	})
	t.Run("loading again gives the same, in memory of its own", func(t *testing.T) {
		again, againTest, err := Load()
		require.NoError(t, err)
		assert.Equal(t, train, again)
		assert.Equal(t, test, againTest)
		before := train.Images[0]
		again.Images[0] = 7
		assert.Equal(t, before, train.Images[0])
	})
	t.Run("an image is a view that can't grow into its neighbour", func(t *testing.T) {
		assert.Equal(t, Pixels, cap(train.Image(0)))
	})
}

func TestADamagedFileIsAnErrorThatSaysWhere(t *testing.T) {
	pack := func(text string) []byte {
		var buffer bytes.Buffer
		w := gzip.NewWriter(&buffer)
		_, err := w.Write([]byte(text))
		require.NoError(t, err)
		require.NoError(t, w.Close())
		return buffer.Bytes()
	}
	row := func(ink, label string) string { return strings.Repeat(ink+",", Pixels) + label + "\n" }
	rows := func(first string) string { return first + strings.Repeat(row("0", "0"), Total-1) }

	for name, c := range map[string]struct {
		packed []byte
		want   string
	}{
		"not gzip":            {[]byte("plain"), "EOF"},
		"cut short":           {packed[:1000], "unexpected EOF"},
		"an image is missing": {pack(row("0", "0")), "1 images, expected 1797"},
		"a pixel too dark":    {pack(rows(row("17", "0"))), `line 1: pixel 0 is "17", expected 0 to 16`},
		"a pixel is a word":   {pack(rows(row("x", "0"))), `line 1: pixel 0 is "x"`},
		"a label too high":    {pack(rows(row("3", "10"))), `line 1: label is "10", expected 0 to 9`},
		"a column too few":    {pack(rows("1,2\n")), "wrong number of fields"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decode(c.packed)
			require.ErrorContains(t, err, c.want)
		})
	}
}
