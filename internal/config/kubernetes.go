package config

import (
	"fmt"
	"math"

	"sandbox-provisioner/internal/k8s"
)

// checkThrottle refuses what k8s would quietly take for no limit at all.
func checkThrottle(c k8s.Connection) error {
	if qps := float64(c.QPS); qps != -1 && (!(qps > 0) || math.IsInf(qps, 0)) {
		return fmt.Errorf("K8S_QPS=%v: must be -1 or above 0", c.QPS)
	}
	return nil
}
