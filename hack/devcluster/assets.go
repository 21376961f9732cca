package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"

	"sandbox-provisioner/hack/devcluster/asset"
	"sandbox-provisioner/hack/devcluster/program"
)

const (
	aboutAssets = "Gets kube-apiserver and etcd and prints the directory that holds them as the last line.\n" +
		"Looks at " + asset.EnvDir + ", then at --bin-dir; then downloads what setup-envtest would; then builds\n" +
		"both from their Go modules (minutes, once)."
	aboutBinDir = "directory for downloaded or built programs (default <repository>/bin/k8s-" + asset.Version + ")"
)

func runAssets(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("assets", flag.ContinueOnError)
	binDir := flags.String("bin-dir", "", aboutBinDir)
	if err := program.ParseAll(flags, name, aboutAssets, args); err != nil {
		return err
	}
	dir, err := asset.Finder{BinDir: *binDir, Log: program.NewLogger(slog.LevelInfo)}.Dir(ctx)
	if err != nil {
		return err
	}
	fmt.Println(dir)
	return nil
}
