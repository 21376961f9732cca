package faults_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"

	"sandbox-provisioner/internal/testenv"
)

// Everything breaks while secrets are about: keys, credentials of Kubernetes and NATS, those of a registry in what Kubernetes says.
// None of them is logged, at any level, and the outages are no flood of lines.
func TestTheLogOfAChaoticRunHoldsNoSecretsAndNoFlood(t *testing.T) {
	t.Parallel()
	const natsPassword, registryPassword, wrongKey = "nats-s3cret", "registry-s3cret", "wrong-s3cret"
	cluster, nats := testenv.Cluster(t), testenv.NATS(t)
	proxy := testenv.Proxy(t, cluster)
	d := testenv.Stack(t, testenv.ClusterIP(), testenv.APIs(2), testenv.Workers(2),
		testenv.APIThrough(1, proxy), testenv.WorkerThrough(0, proxy), testenv.WorkerThrough(1, proxy),
		testenv.NATSAt(strings.Replace(nats.URL(), "://", "://me:"+natsPassword+"@", 1)))
	unpullable := names("bad", 3)
	for _, id := range unpullable {
		d.Misbehave(id, testenv.Fault{
			Kind: testenv.ImagePullError, Message: "unauthorized: https://bob:" + registryPassword + "@registry.example/v2/",
		})
	}
	ask := func(round string) {
		inParallel(24, 8, func(i int) {
			c, id := d.APIs[i%2].Client(), fmt.Sprint(round, "-", i)
			switch i % 4 {
			case 0:
				c.Key = wrongKey
			case 1:
				id = unpullable[i%len(unpullable)]
			}
			c.Create(t.Context(), id, testenv.Prefer("wait=1"))
			c.Get(t.Context(), id)
			c.List(t.Context())
			c.Delete(t.Context(), id, testenv.Prefer("respond-async"))
		})
	}
	const down = `msg="part does not answer" part=`
	// told waits until programs have noticed an outage.
	told := func(part string, programs ...*testenv.Instance) {
		t.Helper()
		testenv.Until(t, 20*time.Second, func() error {
			for i, program := range programs {
				if !strings.Contains(program.Log(), down+part) {
					return fmt.Errorf("program %d of %d does not say that %s is down", i+1, len(programs), part)
				}
			}
			return nil
		})
	}
	ask("calm")
	nats.Stop()
	ask("without-nats")
	told("NATS", append(d.APIs, d.Workers...)...)
	nats.Start()
	proxy.Cut()
	ask("without-kubernetes")
	told("Kubernetes", d.APIs[1], d.Workers[0], d.Workers[1])
	proxy.Heal()
	d.Workers[0].Stop()
	d.Workers[0].Start()
	ask("calm-again")
	nats.WaitUntilQuiet(60 * time.Second)
	d.Client().Create(t.Context(), unpullable[0]).Want(t, http.StatusOK)
	testenv.Until(t, 20*time.Second, func() error {
		r := d.Client().Get(t.Context(), unpullable[0]).Want(t, http.StatusOK)
		require.NotContains(t, r.Raw, registryPassword)
		if !strings.Contains(r.Body.Message, "https://******@registry.example/v2/") {
			return fmt.Errorf("what the registry said is not there: %v", r)
		}
		return nil
	})

	secrets := map[string]string{
		"the key": testenv.Key, "a wrong key": wrongKey, "the password of NATS": natsPassword,
		"the password of a registry": registryPassword, "the path of a kubeconfig": cluster.Kubeconfig, "the path of the other": proxy.Kubeconfig,
	}
	config, err := clientcmd.LoadFromFile(cluster.Kubeconfig)
	require.NoError(t, err)
	for name, user := range config.AuthInfos {
		for what, value := range map[string]string{
			"token": user.Token, "password": user.Password,
			"certificate": base64.StdEncoding.EncodeToString(user.ClientCertificateData), "private key": base64.StdEncoding.EncodeToString(user.ClientKeyData),
			"path of the certificate": user.ClientCertificate, "path of the private key": user.ClientKey,
		} {
			if value != "" {
				secrets["the "+what+" of "+name] = value
			}
		}
	}
	require.Greater(t, len(secrets), 6, "Kubernetes wants credentials")
	for _, program := range append(d.APIs, d.Workers...) {
		log := program.Log()
		for what, secret := range secrets {
			if strings.Contains(log, secret) { // which is not shown once more
				t.Errorf("%s is in a log", what)
			}
		}
		require.Contains(t, log, "level=DEBUG", "even the finest level is looked at")
		// Two outages, of which each part may be told at its beginning and its end, and a few lines more for the start.
		require.Less(t, strings.Count(log, "level=WARN"), 12, log)
		require.LessOrEqual(t, strings.Count(log, down+"NATS"), 2)
		require.LessOrEqual(t, strings.Count(log, down+"Kubernetes"), 2)
	}
	require.Contains(t, d.APIs[0].Log(), "msg=audit")
	require.Contains(t, d.Workers[0].Log()+d.Workers[1].Log(), `msg="job finished"`)
}
