package helm

import (
	_ "github.com/stretchr/testify/require"
	_ "helm.sh/helm/v3/pkg/action"
	_ "k8s.io/api/core/v1"
	_ "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	_ "k8s.io/cli-runtime/pkg/genericclioptions"
	_ "k8s.io/client-go/kubernetes"
	_ "sandbox-provisioner/internal/testenv"
	_ "sigs.k8s.io/yaml"
)
