package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kill ends a Pod as the loss of its node would: its program gets no signal that it could act on, and the Pod is gone from the
// cluster.
func (s *suite) kill(pod *corev1.Pod, program string) error {
	if err := killProgram(string(pod.UID), program); err != nil {
		return err
	}
	now := int64(0)
	return s.kube.CoreV1().Pods(pod.Namespace).Delete(s.ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
}

// killProgram finds the program by the Pod's control group, which is one of this machine.
func killProgram(uid, program string) error {
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return err
	}
	for _, group := range groups {
		content, err := os.ReadFile(group)
		if err != nil || !strings.Contains(string(content), "pod"+uid) {
			continue // gone meanwhile, or somebody else's
		}
		process := filepath.Dir(group)
		name, err := os.ReadFile(filepath.Join(process, "comm"))
		if err != nil || strings.TrimSpace(string(name)) != program {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(process))
		if err != nil {
			return err
		}
		return syscall.Kill(pid, syscall.SIGKILL)
	}
	return fmt.Errorf("no process of the Pod %s runs %s", uid, program)
}
