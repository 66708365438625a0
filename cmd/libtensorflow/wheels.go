package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// sitePackages is the environment's folder of installed packages.
func (t tree) sitePackages() (string, error) {
	found, err := filepath.Glob(filepath.Join(escapeGlob(t.path("venv", "lib")), "python3.*", "site-packages"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("%s has %d site-packages folders, not one", t.path("venv"), len(found))
	}
	return found[0], nil
}

func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// installed tells whether all packages of a pinned list are there in their versions.
func installed(site, requirements string) bool {
	for line := range strings.Lines(requirements) {
		name, version, pin := strings.Cut(line, "==")
		if !pin {
			continue // a hash or a comment
		}
		folder := strings.ReplaceAll(name, "-", "_") + "-" + strings.Fields(version)[0] + ".dist-info"
		if _, err := os.Stat(filepath.Join(site, folder, "RECORD")); err != nil {
			return false
		}
	}
	return true
}

// forgetBroken drops the records of packages that an interrupted pip left
// unfinished, so that pip, which believes the record's folder alone, installs
// them anew over what is left. It returns their names.
func forgetBroken(site string) ([]string, error) {
	records, err := filepath.Glob(filepath.Join(escapeGlob(site), "*.dist-info"))
	if err != nil {
		return nil, err
	}
	var broken []string
	for _, folder := range records {
		if verifyRecord(site, folder) == nil {
			continue
		}
		broken = append(broken, strings.TrimSuffix(filepath.Base(folder), ".dist-info"))
		if err := os.RemoveAll(folder); err != nil {
			return broken, err
		}
	}
	return broken, nil
}

// verifyRecord compares a package's files with the hashes in its RECORD.
func verifyRecord(site, folder string) error {
	file, err := os.Open(filepath.Join(folder, "RECORD"))
	if err != nil {
		return err
	}
	defer file.Close()
	rows := csv.NewReader(file)
	rows.FieldsPerRecord = 3
	count := 0
	for ; ; count++ {
		row, err := rows.Read()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		want, hashed := strings.CutPrefix(row[1], "sha256=")
		if !hashed {
			continue // compiled files and the record itself have none
		}
		path := row[0]
		if !filepath.IsAbs(path) {
			path = filepath.Join(site, path)
		}
		if err := verifyFile(path, want); err != nil {
			return err
		}
	}
	if count == 0 {
		return fmt.Errorf("%s is empty", file.Name())
	}
	return nil
}

func verifyFile(path, want string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return err
	}
	if got := base64.RawURLEncoding.EncodeToString(sum.Sum(nil)); got != want {
		return fmt.Errorf("%s has changed since it was installed", path)
	}
	return nil
}
