package main

import (
	"io"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sluice-ml/sluice/bridge"
)

func TestTheLineIsFound(t *testing.T) {
	read, write, err := os.Pipe()
	require.NoError(t, err)
	stdout := os.Stdout
	os.Stdout = write
	main()
	os.Stdout = stdout
	require.NoError(t, write.Close())
	told, err := io.ReadAll(read)
	require.NoError(t, err)
	assert.Equal(t, "y = 2.00 x + 1.00\n", string(told))

	tensors, bytes := bridge.Live()
	assert.Zero(t, tensors, "tensors left, %d bytes", bytes)
}
