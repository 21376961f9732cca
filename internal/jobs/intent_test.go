package jobs

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAnIntentIsReadBack(t *testing.T) {
	t.Parallel()
	v := View{ID: "a1", Stream: 100}
	for name, in := range map[string]Intent{
		"a create":                v.Create(bigSpec(), "r1", noon, time.Minute),
		"a delete":                v.Delete("r1", noon),
		"a create after a delete": absent(4, nil).Create(smallSpec(), "r1", noon, time.Minute),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := json.Marshal(in)
			require.NoError(t, err)
			got, err := decodeIntent(data, "a1")
			require.NoError(t, err)
			require.Equal(t, &in, got)
		})
	}
}

func TestWhatIsNoIntentIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ id, data, want string }{
		"an empty message":           {"a1", ``, "not an intent"},
		"no JSON":                    {"a1", `hello`, "not an intent"},
		"another kind of JSON":       {"a1", `[]`, "not an intent"},
		"a field of another type":    {"a1", `{"sandbox_id":"a1","op":"absent","fence":-1}`, "not an intent"},
		"nothing in it":              {"a1", `{}`, `intent about "" under the subject of "a1"`},
		"null":                       {"a1", `null`, `intent about "" under the subject of "a1"`},
		"another id":                 {"a1", `{"sandbox_id":"b2","op":"absent"}`, `intent about "b2" under the subject of "a1"`},
		"an id that cannot exist":    {"A1", `{"sandbox_id":"A1","op":"absent"}`, `intent about "A1"`},
		"a create without a spec":    {"a1", `{"sandbox_id":"a1","op":"present"}`, "intent without a spec"},
		"no op":                      {"a1", `{"sandbox_id":"a1"}`, `unknown op ""`},
		"an op of a later version":   {"a1", `{"sandbox_id":"a1","op":"pause"}`, `unknown op "pause"`},
		"a delete with a wrong case": {"a1", `{"sandbox_id":"a1","op":"Absent"}`, `unknown op "Absent"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in, err := decodeIntent([]byte(test.data), test.id)
			require.Nil(t, in)
			require.ErrorContains(t, err, test.want)
		})
	}
}
