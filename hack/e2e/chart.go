package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

const (
	release   = "sandboxes"
	chartPath = "deploy/helm/sandbox-provisioner"
	// releaseSpace is where the programs run, sandboxSpace where the sandboxes do.
	releaseSpace = "provisioner"
	sandboxSpace = "deer-flow"

	apiReplicas    = 2
	workerReplicas = 3
	serviceName    = "provisioner"
	apiURL         = "http://" + serviceName + "." + releaseSpace + ".svc.cluster.local:8002"
)

// values are what an operator sets here. All else is the chart's default.
func (s *suite) values() map[string]string {
	return map[string]string{
		"apiKey.value":            s.key,
		"image.tag":               imageTag,
		"api.replicas":            fmt.Sprint(apiReplicas),
		"api.service.name":        serviceName,
		"worker.replicas":         fmt.Sprint(workerReplicas),
		"sandbox.namespace":       sandboxSpace,
		"sandbox.image":           sandboxImage,
		"sandbox.hostBaseDir":     stateDir,
		"sandbox.threadsHostPath": stateDir + "/threads",
	}
}

// helm runs Helm on the node, with directories of its own.
func (s *suite) helm(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "bin/helm", append(args, "--namespace", releaseSpace)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.node.Kubeconfig)
	for _, kind := range []string{"CACHE", "CONFIG", "DATA"} {
		cmd.Env = append(cmd.Env, "HELM_"+kind+"_HOME="+filepath.Join(s.node.dir, "helm"))
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("helm %s: %w\n%s", args[0], err, bytes.TrimSpace(out))
	}
	return nil
}

// install is also the upgrade, with other values, and waits until all Pods are ready.
func (s *suite) install(ctx context.Context, more ...string) error {
	args := []string{"upgrade", release, chartPath, "--install", "--create-namespace", "--reset-values", "--wait", "--timeout", "3m"}
	for name, value := range s.values() {
		args = append(args, "--set", name+"="+value)
	}
	for _, value := range more {
		args = append(args, "--set", value)
	}
	return s.helm(ctx, args...)
}
