package k8s

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSubPathTemplate(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, template, want, wantErr string }{
		{"nothing is the root of the claim", "", "", ""},
		{"plain text stays", "skills/v1", "skills/v1", ""},
		{"user and thread", "users/{user_id}/threads/{thread_id}/skills", "users/alice/threads/t1/skills", ""},
		{"gaps side by side", "{user_id}{thread_id}{user_id}", "alicet1alice", ""},
		{"doubled braces are braces", "{{{user_id}}}/{{user_id}}", "{alice}/{user_id}", ""},
		{"dots in a name are no way up", "..{user_id}/...", "..alice/...", ""},
		{"an unknown placeholder", "users/{user}", "", "unknown placeholder {user}"},
		{"an empty placeholder", "users/{}", "", "unknown placeholder {}"},
		{"a conversion is a placeholder that we do not know", "{user_id!r}", "", "unknown placeholder {user_id!r}"},
		{"a space matters", "{ user_id }", "", "unknown placeholder { user_id }"},
		{"an opening brace alone", "users/{user_id", "", "single brace"},
		{"a closing brace alone", "users/user_id}", "", "single brace"},
		{"a closing brace after a gap", "{user_id}}", "", "single brace"},
		{"an absolute path", "/users/{user_id}", "", "absolute path"},
		{"a way out of the claim", "users/../{user_id}", "", `".."`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			template, err := ParseSubPathTemplate(tt.template)
			if tt.wantErr != "" {
				require.ErrorContains(t, err, tt.wantErr)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tt.want, template.Render("alice", "t1"))
		})
	}
}
