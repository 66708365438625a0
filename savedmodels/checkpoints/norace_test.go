//go:build !race

package checkpoints_test

const kills = 100
