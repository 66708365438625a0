//go:build race

package savedmodels_test

// killsOfSave is how often the process that saves is killed. Under the race detector
// a process takes a second to start, and what a kill shows is of processes.
const killsOfSave = 3
