// Package examples_test holds the README to the programs in this folder.
package examples_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// flat is code without its indentation, which a README may show from any depth.
func flat(code string) string {
	lines := strings.Split(strings.TrimSpace(code), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}

func TestEveryLineOfGoInTheREADMEIsInATestedExample(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	programs, err := filepath.Glob("*/main.go")
	require.NoError(t, err)
	require.NotEmpty(t, programs)
	all := ""
	for _, path := range programs {
		program, err := os.ReadFile(path)
		require.NoError(t, err)
		all += flat(string(program)) + "\n"
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	require.GreaterOrEqual(t, len(blocks), 4)
	for _, block := range blocks {
		assert.True(t, strings.Contains(all, flat(block[1])), "not in any of %s:\n%s", programs, block[1])
	}
}

func TestTheFirstProgramOfTheREADMEIsTheWholeOfExamplesFirst(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	program, err := os.ReadFile("first/main.go")
	require.NoError(t, err)
	_, code, found := strings.Cut(string(program), "\npackage main\n")
	require.True(t, found)
	assert.Contains(t, string(readme), "```go\npackage main\n"+code+"```")
}

func TestWhatTheREADMEPointsToIsThere(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	prose := regexp.MustCompile("(?s)```.*?```").ReplaceAllString(string(readme), "")
	links := regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(prose, -1)
	require.NotEmpty(t, links)
	for _, link := range links {
		if !strings.Contains(link[1], "://") {
			assert.FileExists(t, filepath.Join("..", link[1]))
		}
	}
	for _, room := range regexp.MustCompile("(?m)^\\| `([a-z/]+)/`").FindAllStringSubmatch(string(readme), -1) {
		assert.DirExists(t, filepath.Join("..", room[1]))
	}
}
