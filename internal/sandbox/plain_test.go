package sandbox

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestAPlainTextHoldsNoCredentials(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ text, want string }{
		"a registry's user and password":  {`pull "bob:s3cret@registry.example/a:1"`, `pull "******@registry.example/a:1"`},
		"those in a URL":                  {`Get "https://bob:s3cret@registry.example/v2/": EOF`, `Get "https://******@registry.example/v2/": EOF`},
		"a token in a URL":                {"fetch https://s3cret@example.com/x", "fetch https://******@example.com/x"},
		"a password with an at sign":      {"https://bob:s3@cret@example.com", "https://******@example.com"},
		"a bearer token":                  {"Authorization: Bearer abcdef0123456789", "Authorization: ******"},
		"a bearer token without a header": {"sent bearer abcdef0123456789, refused", "sent bearer ******, refused"},
		"basic authentication":            {`{"Basic Ym9iOnMzY3JldDp4"}`, `{"Basic ******"}`},
		"a token that stands alone":       {"bad token eyJhbGciOi.eyJzdWIi.c2ln here", "bad token ****** here"},
		"a signed address":                {"GET https://s3.example/b?X-Amz-Credential=AKIA&X-Amz-Signature=ab12 403", "GET https://s3.example/b?X-Amz-Credential=******&X-Amz-Signature=****** 403"},
		"a connection string":             {"dsn host=db password=s3cret user=bob", "dsn host=db password=****** user=bob"},
		"our own header":                  {"x-api-key: s3cret", "x-api-key: ******"},

		"an image with tag and digest":  {`"registry:5000/a/b:1.2@sha256:0123abcd" not found`, `"registry:5000/a/b:1.2@sha256:0123abcd" not found`},
		"an image with a port":          {"registry.example:5000/a@sha256:01 gone", "registry.example:5000/a@sha256:01 gone"},
		"a Secret that is not there":    {`MountVolume.SetUp failed for volume "x" : secret "y" not found`, `MountVolume.SetUp failed for volume "x" : secret "y" not found`},
		"an identity":                   {`User "system:serviceaccount:ns:worker" cannot create pods`, `User "system:serviceaccount:ns:worker" cannot create pods`},
		"a challenge":                   {"basic authentication is required", "basic authentication is required"},
		"an address":                    {"dial tcp 10.0.0.1:6443: connect: connection refused", "dial tcp 10.0.0.1:6443: connect: connection refused"},
		"a taint":                       {"1 node(s) had untolerated taint {key=value: NoSchedule}", "1 node(s) had untolerated taint {key=value: NoSchedule}"},
		"what has been masked already":  {"https://******@example.com password=******", "https://******@example.com password=******"},
		"letters of all the world":      {"Größe 大 überschritten", "Größe 大 überschritten"},
		"line breaks and other control": {"one\r\n\ttwo\x00three\x1b[31m \u202e four\xff", "one two three [31m four"},
		"nothing":                       {" \n ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, Plain(tc.text))
		})
	}
}

func TestAPlainTextIsOneShortLine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ -~]{0,40}`), rapid.Just("大 "), rapid.Just("\xff\n"))
		text := Plain(strings.Repeat(part.Draw(t, "part"), rapid.SampledFrom([]int{1, 3, 600, 20_000}).Draw(t, "times")))
		if len(text) > MaxPlain || !utf8.ValidString(text) {
			t.Fatalf("%d bytes, valid: %v", len(text), utf8.ValidString(text))
		}
		if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("not printable: %q", text)
		}
	})
}

func TestATextIsCutAtTheEndOfACharacter(t *testing.T) {
	t.Parallel()
	require.Equal(t, strings.Repeat("x", MaxPlain-1), Plain(strings.Repeat("x", MaxPlain-1)+"大"))
	require.Equal(t, strings.Repeat("x", MaxPlain-3)+"大", Plain(strings.Repeat("x", MaxPlain-3)+"大大"))
}
