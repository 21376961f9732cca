package sandbox

import (
	"regexp"
	"strings"
	"unicode"
)

const (
	// MaxPlain bounds what Plain returns, in bytes.
	MaxPlain = 1024
	// maxRaw bounds what Plain looks at, so that a long text costs no more than a short one.
	maxRaw = 16 * MaxPlain

	masked = "******"
)

// What looks like a credential. Messages about images hold the credentials of registries in all of these forms.
var (
	// user:password@host, or token@host after a scheme. An image by tag and digest looks alike and is none.
	urlUser      = regexp.MustCompile(`://[^\s/"'<>]+@`)
	userPassword = regexp.MustCompile(`[^\s/@:="'<>(),]+:[^\s/@"'<>(),]+@(?:sha\d+:)?`)
	digest       = regexp.MustCompile(`@sha\d+:$`)
	// Authorization: Bearer …, and a token that stands alone.
	bearer = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[a-z0-9._~+/=-]{16,}`)
	jwt    = regexp.MustCompile(`\beyJ[\w-]+\.[\w-]+(?:\.[\w-]*)?`)
	// …password=…, as in queries and connection strings, and headers.
	assigned = regexp.MustCompile(`(?i)((?:password|passwd|secret|token|signature|credential|api[-_]?key|access[-_]?key|secret[-_]?key)=)[^\s"'&,;]+`)
	header   = regexp.MustCompile(`(?i)\b((?:x-api-key|authorization|cookie)["']?:\s*["']?)[^"',;]+`)
)

// Plain is the text of somebody else, such as Kubernetes or NATS, fit to be shown and logged: one line of printable
// characters, without what looks like a credential, of at most MaxPlain bytes.
func Plain(text string) string {
	text = oneLine(cut(text, maxRaw))
	text = urlUser.ReplaceAllString(text, "://"+masked+"@")
	text = userPassword.ReplaceAllStringFunc(text, func(found string) string {
		if digest.MatchString(found) {
			return found
		}
		return masked + "@"
	})
	text = bearer.ReplaceAllString(text, "$1 "+masked)
	text = jwt.ReplaceAllString(text, masked)
	text = assigned.ReplaceAllString(text, "${1}"+masked)
	text = header.ReplaceAllString(text, "${1}"+masked)
	return cut(text, MaxPlain)
}

// oneLine turns everything that is not printable into spaces, and several spaces into one.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return !unicode.IsPrint(r) || unicode.IsSpace(r) || r == unicode.ReplacementChar
	}), " ")
}

// cut shortens a text to at most n bytes, at the end of a character.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}
