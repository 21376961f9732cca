package sandbox

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestValidID(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		id   string
		want bool
	}{
		"what the gateway sends":          {"0a1b2c3d4e5f6789", true},
		"one character":                   {"a", true},
		"hyphens inside":                  {"a--b-c", true},
		"as long as it may be":            {strings.Repeat("a", 51), true},
		"one character more":              {strings.Repeat("a", 52), false},
		"nothing":                         {"", false},
		"a hyphen at the beginning":       {"-a", false},
		"a hyphen at the end":             {"a-", false},
		"a capital":                       {"aB", false},
		"a dot, which divides subjects":   {"a.b", false},
		"a wildcard of NATS":              {"*", false},
		"the other wildcard of NATS":      {">", false},
		"an underscore":                   {"a_b", false},
		"a slash":                         {"a/b", false},
		"white space":                     {"a b", false},
		"a line break after the last one": {"a\n", false},
		"a letter of another script":      {"ä", false},
		"a zero byte":                     {"a\x00", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, ValidID(test.id))
		})
	}
}

func TestEveryValidIDNamesLegalObjects(t *testing.T) {
	t.Parallel()
	dnsLabel := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(IDPattern).Filter(ValidID).Draw(t, "id")
		require.Regexp(t, dnsLabel, PodName(id))
		require.Regexp(t, dnsLabel, ServiceName(id))
		require.LessOrEqual(t, len(Labels(id)[LabelID]), 63)
	})
}

func TestNamesAndLabelsAreThoseOfTheContract(t *testing.T) {
	t.Parallel()
	require.Equal(t, "sandbox-a1", PodName("a1"))
	require.Equal(t, "sandbox-a1-svc", ServiceName("a1"))
	require.Equal(t, map[string]string{
		"app": "deer-flow-sandbox", "sandbox-id": "a1",
		"app.kubernetes.io/name": "deer-flow", "app.kubernetes.io/component": "sandbox",
	}, Labels("a1"))
	require.Equal(t, map[string]string{
		"app.kubernetes.io/name": "deer-flow", "app.kubernetes.io/component": "sandbox",
	}, NamespaceLabels(), "a namespace is no sandbox")
}

func TestLabelsAreTheCallersOwn(t *testing.T) {
	t.Parallel()
	Labels("a1")[LabelID] = "changed"
	NamespaceLabels()[LabelName] = "changed"
	require.Equal(t, "a1", Labels("a1")[LabelID])
	require.Equal(t, "deer-flow", NamespaceLabels()[LabelName])
}
