package api

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
)

// A preference is what the client asked for in its Prefer headers (RFC 7240), as far as we know it.
type preference struct {
	// Async is respond-async: answer as soon as the request is accepted.
	Async bool
	// Wait is how long the client is ready to wait, in whole seconds; it may be far more than we are.
	Wait    time.Duration
	HasWait bool
}

// parsePrefer reads all Prefer headers. Of a repeated preference the first counts; what is unknown or malformed is ignored.
func parsePrefer(header http.Header) preference {
	var p preference
	for _, line := range header.Values("Prefer") {
		for _, element := range splitQuoted(line, ',') {
			name, value, hasValue := strings.Cut(splitQuoted(element, ';')[0], "=")
			name, value = strings.TrimSpace(name), unquote(strings.TrimSpace(value))
			switch {
			case strings.EqualFold(name, "respond-async") && !hasValue:
				p.Async = true
			case strings.EqualFold(name, "wait") && !p.HasWait:
				p.Wait, p.HasWait = parseWait(value)
			}
		}
	}
	return p
}

// upTo is p with a wait of at most limit.
func (p preference) upTo(limit time.Duration) preference {
	p.Wait = min(p.Wait, limit)
	return p
}

// async tells whether acceptance is answer enough. It is to a client that does not want to wait at all.
func (p preference) async() bool { return p.Async || (p.HasWait && p.Wait == 0) }

// wait is how long to wait: usual, if the client says nothing about it.
func (p preference) wait(usual time.Duration) time.Duration {
	switch {
	case p.HasWait:
		return p.Wait
	case p.Async:
		return 0
	}
	return usual
}

// applied tells the client, with an answer of that status, which of its preferences counted.
func (p preference) applied(c *gin.Context, status int) {
	var names []string
	if p.Async && status == http.StatusAccepted {
		names = append(names, "respond-async")
	}
	if p.HasWait {
		names = append(names, "wait="+strconv.Itoa(int(p.Wait.Seconds())))
	}
	if len(names) > 0 {
		c.Header("Preference-Applied", strings.Join(names, ", "))
	}
}

// splitQuoted splits s at every sep outside of double quotes. It returns at least one element.
func splitQuoted(s string, sep byte) []string {
	var parts []string
	start, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == sep && !quoted:
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}
	return append(parts, s[start:])
}

// unquote takes the quotes off a quoted value. Values that we know need no escapes, so that those are left alone.
func unquote(s string) string {
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		return s[1 : len(s)-1]
	}
	return s
}

// parseWait reads digits as seconds. More than 32 bits of them, some 68 years, are as good as that.
func parseWait(s string) (time.Duration, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	seconds, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		seconds = math.MaxInt32
	}
	return time.Duration(seconds) * time.Second, true
}
