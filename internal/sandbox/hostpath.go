package sandbox

import (
	"slices"
	"strings"
)

// A HostPath is a path on a node, in the style of Unix or of Windows whatever system this program runs on. It is
// normalised: "." and empty components are gone and ".." is resolved, as far as the text alone allows.
type HostPath struct {
	windows  bool
	volume   string // "C:" or `\\server\share`; Windows only
	absolute bool
	parts    []string
}

// ParseHostPath reads a path. It is of Windows style when it begins with a drive and a separator or holds a backslash, so
// that "C:/x", `C:\x` and `\\server\share\x` are, and "/x" is not.
func ParseHostPath(s string) HostPath {
	if !windowsStyle(s) {
		return HostPath{absolute: strings.HasPrefix(s, "/")}.Join(strings.Split(s, "/")...)
	}
	p := HostPath{windows: true}
	s = strings.ReplaceAll(s, "/", `\`)
	switch {
	case hasDrive(s):
		p.volume, s = s[:2], s[2:]
		p.absolute = strings.HasPrefix(s, `\`)
	case strings.HasPrefix(s, `\\`):
		server, rest, _ := strings.Cut(s[2:], `\`)
		share, rest, _ := strings.Cut(rest, `\`)
		if server != "" && share != "" {
			p.volume, p.absolute, s = `\\`+server+`\`+share, true, rest
		}
	}
	return p.Join(strings.Split(s, `\`)...)
}

func windowsStyle(s string) bool {
	return strings.Contains(s, `\`) || len(s) > 2 && hasDrive(s) && s[2] == '/'
}

func hasDrive(s string) bool {
	return len(s) >= 2 && s[1] == ':' && (s[0]|0x20 >= 'a' && s[0]|0x20 <= 'z')
}

// IsAbs tells whether the path means the same file wherever one stands.
func (p HostPath) IsAbs() bool { return p.absolute }

// IsRoot tells whether p is absolute and contains a whole file system of the node: "/" or `C:\`.
func (p HostPath) IsRoot() bool {
	return p.absolute && len(p.parts) == 0 && !strings.HasPrefix(p.volume, `\\`)
}

// Join appends components, in the style of p.
func (p HostPath) Join(parts ...string) HostPath {
	joined := make([]string, len(p.parts), len(p.parts)+len(parts))
	copy(joined, p.parts)
	for _, part := range parts {
		switch last := len(joined) - 1; {
		case part == "" || part == ".":
		case part != "..":
			joined = append(joined, part)
		case last >= 0 && joined[last] != "..":
			joined = joined[:last]
		case !p.absolute:
			joined = append(joined, part)
		}
	}
	p.parts = joined
	return p
}

// Within is the path of p below base, separated by slashes and empty when the two are the same. The comparison goes by
// component, so that "/base" does not contain "/baseful". It is false for what Windows or the kernel would resolve to
// another file than the text says.
func (p HostPath) Within(base HostPath) (rel string, ok bool) {
	if !p.absolute || !base.absolute || p.windows != base.windows || len(p.parts) < len(base.parts) || !p.same(p.volume, base.volume) {
		return "", false
	}
	below := p.parts[len(base.parts):]
	if !slices.EqualFunc(p.parts[:len(base.parts)], base.parts, p.same) || slices.ContainsFunc(below, p.treacherous) {
		return "", false
	}
	return strings.Join(below, "/"), true
}

// same compares two components. Windows ignores case; of that only the ASCII part, because Unicode folds letters that
// Windows keeps apart.
func (p HostPath) same(a, b string) bool {
	return a == b || p.windows && asciiLower(a) == asciiLower(b)
}

func asciiLower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// treacherous tells whether a component names another file than its text says: a NUL ends it, and Windows drops dots and
// spaces at its end and takes what follows a colon for a stream.
func (p HostPath) treacherous(part string) bool {
	if strings.Contains(part, "\x00") {
		return true
	}
	return p.windows && (strings.TrimRight(part, ". ") != part || strings.Contains(part, ":"))
}

// parent is the directory of p, and the name of p in it.
func (p HostPath) parent() (HostPath, string) {
	if len(p.parts) == 0 {
		return p, ""
	}
	name := p.parts[len(p.parts)-1]
	p.parts = p.parts[:len(p.parts)-1]
	return p, name
}

func (p HostPath) String() string {
	separator := "/"
	if p.windows {
		separator = `\`
	}
	s := p.volume
	if p.absolute {
		s += separator
	}
	s += strings.Join(p.parts, separator)
	if s == "" {
		return "."
	}
	return s
}
