package k8s

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A SubPathTemplate is a path inside a claim with gaps for the user and the thread. Its zero value renders the claim's root.
type SubPathTemplate struct{ pieces []piece }

// A piece is literal text, or a gap.
type piece struct {
	text string
	gap  gap
}

type gap int

const (
	noGap gap = iota
	userGap
	threadGap
)

// ParseSubPathTemplate reads a template in the notation of Python's str.format: {user_id} and {thread_id} are gaps, {{ and }}
// stand for braces. It refuses what Kubernetes would refuse of every sandbox: an absolute path, and "..".
func ParseSubPathTemplate(s string) (SubPathTemplate, error) {
	var t SubPathTemplate
	for rest := s; rest != ""; {
		brace := strings.IndexAny(rest, "{}")
		if brace < 0 {
			t.pieces = append(t.pieces, piece{text: rest})
			break
		}
		if brace > 0 {
			t.pieces = append(t.pieces, piece{text: rest[:brace]})
		}
		rest = rest[brace:]
		switch {
		case strings.HasPrefix(rest, "{{"), strings.HasPrefix(rest, "}}"):
			t.pieces = append(t.pieces, piece{text: rest[:1]})
			rest = rest[2:]
		case strings.HasPrefix(rest, "{user_id}"):
			t.pieces = append(t.pieces, piece{gap: userGap})
			rest = strings.TrimPrefix(rest, "{user_id}")
		case strings.HasPrefix(rest, "{thread_id}"):
			t.pieces = append(t.pieces, piece{gap: threadGap})
			rest = strings.TrimPrefix(rest, "{thread_id}")
		case strings.HasPrefix(rest, "{") && strings.Contains(rest, "}"):
			return SubPathTemplate{}, fmt.Errorf("unknown placeholder %s; allowed are {user_id} and {thread_id}, and {{ for a brace",
				rest[:strings.Index(rest, "}")+1])
		default:
			return SubPathTemplate{}, errors.New("single brace; write {{ or }} for a brace")
		}
	}
	sample := t.Render("u", "t")
	if strings.HasPrefix(sample, "/") {
		return SubPathTemplate{}, errors.New("absolute path; it must be relative to the root of the claim")
	}
	if slices.Contains(strings.Split(sample, "/"), "..") {
		return SubPathTemplate{}, errors.New(`".." would leave the claim; write the path without it`)
	}
	return t, nil
}

// Render fills the gaps.
func (t SubPathTemplate) Render(userID, threadID string) string {
	var b strings.Builder
	for _, p := range t.pieces {
		switch p.gap {
		case userGap:
			b.WriteString(userID)
		case threadGap:
			b.WriteString(threadID)
		default:
			b.WriteString(p.text)
		}
	}
	return b.String()
}
