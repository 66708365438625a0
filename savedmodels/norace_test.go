//go:build !race

package savedmodels_test

// killsOfSave is how often the process that saves is killed.
const killsOfSave = 40
