//go:build race

package checkpoints_test

// Under the race detector a process takes a second to start, and what a kill shows
// is of processes.
const kills = 5
