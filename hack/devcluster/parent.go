package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"sandbox-provisioner/hack/devcluster/internal/controlplane"
)

// parentCheck is for systems whose kernel does not tell.
const parentCheck = time.Second

// withParent returns a context that ends when this process gets another parent. The kernel's signal comes when the
// thread that started us ends, which may be long before its process does; so it only makes us look.
func withParent(ctx context.Context, log *slog.Logger) (context.Context, context.CancelFunc, error) {
	parent := os.Getppid()
	look, err := controlplane.NotifyParentDeath()
	if err != nil {
		return nil, nil, fmt.Errorf("watch the parent process: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		ticker := time.NewTicker(parentCheck)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-look:
			case <-ticker.C:
			}
			if os.Getppid() != parent {
				log.Info("parent process is gone")
				cancel()
				return
			}
		}
	}()
	return ctx, cancel, nil
}
