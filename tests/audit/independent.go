// Checks cases from standard input with Go's own golang.org/x/mod/sumdb: one JSON list in, one list of verdicts out.
package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type Case struct {
	Type    string
	Key     string
	Note    string
	Index   int64
	Size    int64
	Old     int64
	New     int64
	Leaf    string   `json:"leaf_hash"`
	Root    string
	OldRoot string   `json:"old_root"`
	NewRoot string   `json:"new_root"`
	Proof   []string
}

func hash(text string) (found tlog.Hash) {
	bytes, err := hex.DecodeString(text)
	if err != nil || len(bytes) != len(found) {
		panic("a hash has 32 bytes")
	}
	copy(found[:], bytes)
	return found
}

func hashes(texts []string) (found []tlog.Hash) {
	for _, text := range texts {
		found = append(found, hash(text))
	}
	return found
}

// The size and root of a note that the key signed.
func open(key, text string) (int64, tlog.Hash, error) {
	var root tlog.Hash
	verifier, err := note.NewVerifier(key)
	if err != nil {
		return 0, root, err
	}
	opened, err := note.Open([]byte(text), note.VerifierList(verifier))
	if err != nil {
		return 0, root, err
	}
	lines := strings.Split(opened.Text, "\n")
	if len(lines) != 4 || lines[0] != verifier.Name() || lines[3] != "" {
		return 0, root, errors.New("no checkpoint")
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil || strconv.FormatInt(size, 10) != lines[1] {
		return 0, root, errors.New("no size")
	}
	bytes, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || len(bytes) != len(root) {
		return 0, root, errors.New("no root")
	}
	copy(root[:], bytes)
	return size, root, nil
}

func check(one Case) (err error) {
	defer func() {
		if recovered := recover(); recovered != nil {
			err = errors.New("refused")
		}
	}()
	switch one.Type {
	case "inclusion":
		return tlog.CheckRecord(hashes(one.Proof), one.Size, hash(one.Root), one.Index, hash(one.Leaf))
	case "inclusion_against_checkpoint":
		size, root, err := open(one.Key, one.Note)
		if err != nil {
			return err
		}
		return tlog.CheckRecord(hashes(one.Proof), size, root, one.Index, hash(one.Leaf))
	case "consistency":
		return tlog.CheckTree(hashes(one.Proof), one.New, hash(one.NewRoot), one.Old, hash(one.OldRoot))
	case "checkpoint":
		_, _, err := open(one.Key, one.Note)
		return err
	}
	return errors.New("unknown type")
}

func main() {
	var cases []Case
	if err := json.NewDecoder(os.Stdin).Decode(&cases); err != nil {
		panic(err)
	}
	verdicts := make([]bool, len(cases))
	for at, one := range cases {
		verdicts[at] = check(one) == nil
	}
	json.NewEncoder(os.Stdout).Encode(verdicts)
}
