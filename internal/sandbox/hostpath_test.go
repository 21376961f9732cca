package sandbox

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHostPathIsNormalisedInItsOwnStyle(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, path, want string
		absolute         bool
	}{
		{"a plain path stays", "/a/b", "/a/b", true},
		{"dots and double slashes go", "/a/./b//c/", "/a/b/c", true},
		{"dot dot is resolved", "/a/b/../c", "/a/c", true},
		{"dot dot stops at the root", "/../../etc", "/etc", true},
		{"a relative path keeps what leads out of it", "a/../../b", "../b", false},
		{"nothing is the current directory", "", ".", false},
		{"a drive with backslashes", `C:\a\..\b`, `C:\b`, true},
		{"a drive with slashes becomes backslashes", "c:/a/b", `c:\a\b`, true},
		{"a drive cannot be left", `C:\..\..\x`, `C:\x`, true},
		{"a drive alone is its root", `C:\`, `C:\`, true},
		{"a path relative to a drive is not absolute", `C:a\b`, `C:a\b`, false},
		{"a rooted path without a drive is not absolute", `\a\b`, `a\b`, false},
		{"a share", `\\server\share\a\..\b`, `\\server\share\b`, true},
		{"a share cannot be left", `\\server\share\..\..\x`, `\\server\share\x`, true},
		{"a server without a share is not absolute", `\\server`, `server`, false},
		{"a backslash makes it Windows, and relative", `/a\b`, `a\b`, false},
		{"a colon does not make a drive of a file name", "/c:/x", "/c:/x", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := ParseHostPath(tt.path)
			require.Equal(t, tt.want, p.String())
			require.Equal(t, tt.absolute, p.IsAbs())
		})
	}
}

func TestHostPathJoinKeepsTheStyleAndTheOriginal(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]string{
		"/.deer-flow":      "/.deer-flow/users/u1",
		"/":                "/users/u1",
		`C:\deer`:          `C:\deer\users\u1`,
		"C:/deer/":         `C:\deer\users\u1`,
		`\\nas\deer`:       `\\nas\deer\users\u1`,
		`\\nas\deer\state`: `\\nas\deer\state\users\u1`,
	} {
		p := ParseHostPath(base)
		before := p.String()
		require.Equal(t, want, p.Join("users", "u1").String())
		require.Equal(t, before, p.String())
	}
	user := ParseHostPath("/a/b/c").Join("..")
	one, two := user.Join("1"), user.Join("2")
	require.Equal(t, "/a/b/1", one.String(), "two paths from one base share memory")
	require.Equal(t, "/a/b/2", two.String())
}

func TestHostPathWithinComparesComponents(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, base, path, below string
		within                  bool
	}{
		{"a file below", "/base", "/base/users/x", "users/x", true},
		{"the base itself", "/base", "/base/", "", true},
		{"a longer name is another directory", "/base", "/baseful/x", "", false},
		{"dot dot leads out", "/base", "/base/../etc", "", false},
		{"dot dot may stay inside", "/base", "/base/a/../b", "b", true},
		{"above", "/base/x", "/base", "", false},
		{"relative to nothing", "/base", "base/x", "", false},
		{"nothing is within no base", "", "/x", "", false},
		{"case matters on Unix", "/base", "/BASE/x", "", false},
		{"a NUL ends a name early", "/base", "/base/x\x00/y", "", false},
		{"Windows below", `C:\deer`, `C:\deer\users\x`, "users/x", true},
		{"Windows with slashes", `C:\deer`, "C:/deer/users/x", "users/x", true},
		{"case does not matter on Windows", `C:\Deer`, `c:\dEER\users\X`, "users/X", true},
		{"but letters that only Unicode folds do", `C:\desk`, "C:\\des\u212a\\x", "", false},
		{"another drive", `C:\deer`, `D:\deer\x`, "", false},
		{"mixed separators lead out", `C:\deer`, `C:\deer/..\../Windows`, "", false},
		{"a longer name on Windows", `C:\deer`, `C:\deerful\x`, "", false},
		{"a share", `\\nas\deer`, `\\NAS\deer\users`, "users", true},
		{"another share", `\\nas\deer`, `\\nas\secret\users`, "", false},
		{"Windows drops trailing dots", `C:\deer`, `C:\deer\x. `, "", false},
		{"Windows reads a stream after a colon", `C:\deer`, `C:\deer\x:y`, "", false},
		{"a Unix path is not within a Windows base", `C:\deer`, "/deer/x", "", false},
		{"a Windows path is not within a Unix base", "/deer", `C:\deer\x`, "", false},
		{"a backslash on Unix is not a separator to be trusted", "/deer", `/deer/..\..\etc`, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			below, within := ParseHostPath(tt.path).Within(ParseHostPath(tt.base))
			require.Equal(t, tt.within, within)
			require.Equal(t, tt.below, below)
		})
	}
}
