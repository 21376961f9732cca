package containers_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"sandbox-provisioner/internal/testenv"
)

// waitUntilLed waits until NATS servers have found each other and agreed on a leader.
func waitUntilLed(t *testing.T, url string) {
	t.Helper()
	testenv.Until(t, 30*time.Second, func() error {
		return withJetStream(url, func(js jetstream.JetStream) error {
			_, err := js.AccountInfo(t.Context())
			return err
		})
	})
}

// waitUntilCopied waits until every server has all that the streams hold: only then may the next one die.
func waitUntilCopied(t *testing.T, url string) {
	t.Helper()
	testenv.Until(t, 40*time.Second, func() error {
		return withJetStream(url, func(js jetstream.JetStream) error {
			for _, name := range []string{"SANDBOX_JOBS", "SANDBOX_OUTCOMES"} {
				stream, err := js.Stream(t.Context(), name)
				if err != nil {
					return err
				}
				if err := copied(name, stream.CachedInfo().Cluster); err != nil {
					return err
				}
			}
			consumer, err := js.Consumer(t.Context(), "SANDBOX_JOBS", "default")
			if err != nil {
				return err
			}
			return copied("the consumer", consumer.CachedInfo().Cluster)
		})
	})
}

func copied(name string, group *jetstream.ClusterInfo) error {
	if group == nil || group.Leader == "" || len(group.Replicas) != 2 {
		return fmt.Errorf("%s has no three servers: %+v", name, group)
	}
	for _, peer := range group.Replicas {
		if !peer.Current || peer.Offline || peer.Lag > 0 {
			return fmt.Errorf("%s is not complete on %s", name, peer.Name)
		}
	}
	return nil
}
