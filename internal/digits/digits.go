// Package digits is the UCI set of handwritten digits: 1,797 images of 8×8 pixels,
// written by 13 people, carried in the program. LICENSE.txt has its source and licence.
package digits

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"strconv"
)

const (
	Side    = 8           // pixels along an edge
	Pixels  = Side * Side // pixels of an image, row by row
	Classes = 10
	Total   = 1797
	Tests   = 359 // a fifth, held out
)

const deepest = 16 // the darkest pixel in the file

//go:embed digits.csv.gz
var packed []byte

// Set is a number of images with the digit that each shows.
type Set struct {
	Images []float32 // [n, 64], 0 is paper and 1 is ink
	Labels []int32   // [n], 0 to 9
}

// Len is the number of images.
func (s Set) Len() int { return len(s.Labels) }

// Image is the i-th image, [64], a view into Images.
func (s Set) Image(i int) []float32 { return s.Images[i*Pixels : (i+1)*Pixels : (i+1)*Pixels] }

func (s *Set) add(image []float32, label int32) {
	s.Images = append(s.Images, image...)
	s.Labels = append(s.Labels, label)
}

// Load returns 1,438 images to train on and 359 to test with. The split is always the
// same, and both parts hold the ten digits in the same proportions. Nobody else holds the
// memory that is returned.
func Load() (train, test Set, err error) {
	all, err := decode(packed)
	if err != nil {
		return Set{}, Set{}, fmt.Errorf("digits: %w", err)
	}
	train, test = split(all)
	return train, test, nil
}

func decode(packed []byte) (Set, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return Set{}, err
	}
	rows := csv.NewReader(unpacked)
	rows.FieldsPerRecord = Pixels + 1
	records, err := rows.ReadAll()
	if err != nil {
		return Set{}, err
	}
	if len(records) != Total {
		return Set{}, fmt.Errorf("%d images, expected %d", len(records), Total)
	}
	set := Set{Images: make([]float32, 0, Total*Pixels), Labels: make([]int32, 0, Total)}
	image := make([]float32, Pixels)
	for i, record := range records {
		for j, field := range record[:Pixels] {
			ink, err := strconv.Atoi(field)
			if err != nil || ink < 0 || ink > deepest {
				return Set{}, fmt.Errorf("line %d: pixel %d is %q, expected 0 to %d", i+1, j, field, deepest)
			}
			image[j] = float32(ink) / deepest
		}
		label, err := strconv.Atoi(record[Pixels])
		if err != nil || label < 0 || label >= Classes {
			return Set{}, fmt.Errorf("line %d: label is %q, expected 0 to %d", i+1, record[Pixels], Classes-1)
		}
		set.add(image, int32(label))
	}
	return set, nil
}

// split walks the images in a fixed random order. After k of them, a class has been given
// its share of test images up to there, so the held-out fifth is stratified.
func split(all Set) (train, test Set) {
	order := rand.New(rand.NewPCG(1998, Total)).Perm(all.Len())
	var size, seen [Classes]int
	for _, label := range all.Labels {
		size[label]++
	}
	quota := quotas(size)
	for _, i := range order {
		label := all.Labels[i]
		before := seen[label] * quota[label] / size[label]
		seen[label]++
		after := seen[label] * quota[label] / size[label]
		if after > before {
			test.add(all.Image(i), label)
		} else {
			train.add(all.Image(i), label)
		}
	}
	return train, test
}

// quotas gives each class its part of the test images by the method of largest remainders.
func quotas(size [Classes]int) (quota [Classes]int) {
	left := Tests
	var remainder [Classes]int
	for class, n := range size {
		quota[class] = n * Tests / Total
		remainder[class] = n * Tests % Total
		left -= quota[class]
	}
	for ; left > 0; left-- {
		best := 0
		for class := range remainder {
			if remainder[class] > remainder[best] {
				best = class
			}
		}
		quota[best]++
		remainder[best] = -1
	}
	return quota
}
