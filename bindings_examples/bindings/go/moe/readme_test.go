package moe_test

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"libmoe.example/go/moe"
)

// ConvertRank writes one rank's part of a model, until Ctrl-C: then the error is context.Canceled.
func ConvertRank(threads *moe.Context, model *moe.Checkpoint, directory string) error {
	interrupt, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	control, err := moe.ControlFor(interrupt, func(done, total uint64) error { return nil }) // and Control.State
	if err != nil {
		return err
	}
	defer control.Close()
	return model.ConvertWith(threads, directory, moe.CheckpointConvertOptions{Control: control,
		Patch: `{"parallel": {"tp_size": 2, "tp_rank": 1, "enable_expert_parallel": true}}`})
}

// ConvertRank is the README's; a real Ctrl-C ends it.
func TestAFolderOfOneRank(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	check(t, err)
	source, err := os.ReadFile("readme_test.go")
	check(t, err)
	text := string(source)
	text = text[strings.Index(text, "// ConvertRank writes"):strings.Index(text, "\n// ConvertRank is")]
	if !strings.Contains(string(readme), "```go\n"+text+"```\n") {
		t.Error("README.md and ConvertRank differ")
	}
	model, target := openModel(t, writeModel(t, t.TempDir(), 1)), filepath.Join(t.TempDir(), "target")
	check(t, ConvertRank(nil, model, target))
	config, err := openModel(t, target).Config(0, "")
	check(t, err)
	if held, err := config.Int("/num_local_experts"); err != nil || held != modelExperts/2 {
		t.Errorf("%d experts, error %v", held, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	control, err := moe.ControlFor(ctx, func(done, total uint64) error {
		check(t, syscall.Kill(os.Getpid(), syscall.SIGINT))
		<-ctx.Done()
		return nil
	})
	check(t, err)
	err = model.ConvertWith(nil, filepath.Join(t.TempDir(), "other"), moe.CheckpointConvertOptions{Control: control})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("after Ctrl-C: %v", err)
	}
}
