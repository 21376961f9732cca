package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"path"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"sandbox-provisioner/internal/sandbox"
)

func TestDecodeCreateAccepts(t *testing.T) {
	t.Parallel()
	defaults := func(change func(*createRequest)) createRequest {
		req := createRequest{ID: "a1", Spec: sandbox.Spec{ThreadID: "a1", UserID: "default", SkillsPath: sandbox.DefaultSkillsPath}}
		change(&req)
		return req
	}
	same := func(*createRequest) {}
	sessions := func(n int) func(*createRequest) {
		return func(r *createRequest) { r.Spec.MaxShellSessions = n }
	}
	long := strings.Repeat("x", sandbox.MaxIDLength)

	for name, tc := range map[string]struct {
		body string
		want func(*createRequest)
	}{
		"an id alone gets the defaults":        {`{"sandbox_id":"a1"}`, same},
		"space around the value is ignored":    {" \r\n\t{\"sandbox_id\":\"a1\"}\n ", same},
		"unknown fields are ignored":           {`{"sandbox_id":"a1","image":{"evil":[1e400,"\ud800"]}}`, same},
		"keys in another case are unknown":     {`{"sandbox_id":"a1","USER_ID":7,"Sandbox_Id":"b"}`, same},
		"of a repeated key the last one wins":  {`{"sandbox_id":5,"sandbox_id":"b","sandbox_id":"a1"}`, same},
		"a key may be written with escapes":    {`{"sandbox_\u0069d":"a1"}`, same},
		"include_legacy_skills has no effect":  {`{"sandbox_id":"a1","include_legacy_skills":true}`, same},
		"a null thread is the sandbox's":       {`{"sandbox_id":"a1","thread_id":null}`, same},
		"a null capacity is left to the image": {`{"sandbox_id":"a1","max_shell_sessions":null}`, same},
		"no mounts are as good as absent ones": {`{"sandbox_id":"a1","extra_mounts":[]}`, same},
		"an id of 51 characters fits": {`{"sandbox_id":"` + long + `"}`, func(r *createRequest) {
			r.ID, r.Spec.ThreadID = long, long
		}},
		"a gateway's id of 16 hex digits fits": {`{"sandbox_id":"19fa7291c0de4b1f","thread_id":null}`, func(r *createRequest) {
			r.ID, r.Spec.ThreadID = "19fa7291c0de4b1f", "19fa7291c0de4b1f"
		}},
		"thread and user are taken over": {`{"sandbox_id":"a1","thread_id":"T_9-x","user_id":"-U_1"}`, func(r *createRequest) {
			r.Spec.ThreadID, r.Spec.UserID = "T_9-x", "-U_1"
		}},
		"mounts are taken over as sent": {
			`{"sandbox_id":"a1","extra_mounts":[{"host_path":"/b/../c","container_path":"x/","read_only":"on","more":1},
				{"container_path":"","host_path":"/\ud83d\ude00"}]}`,
			func(r *createRequest) {
				r.Spec.ExtraMounts = []sandbox.Mount{
					{HostPath: "/b/../c", ContainerPath: "x/", ReadOnly: true},
					{HostPath: "/😀", ContainerPath: ""},
				}
			},
		},
		"the skills path is taken over": {`{"sandbox_id":"a1","skills_container_path":"/opt/skills"}`, func(r *createRequest) {
			r.Spec.SkillsPath = "/opt/skills"
		}},
		"the patterns are taken over": {
			`{"sandbox_id":"a1","provision_lark_cli_runtime":true,"provision_lark_cli_broker":1}`,
			func(r *createRequest) { r.Spec.LarkRuntime, r.Spec.LarkBroker = true, true },
		},
		"a capacity is a number":                     {`{"sandbox_id":"a1","max_shell_sessions":13}`, sessions(13)},
		"a capacity may be a whole float":            {`{"sandbox_id":"a1","max_shell_sessions":13.0}`, sessions(13)},
		"a capacity may have an exponent":            {`{"sandbox_id":"a1","max_shell_sessions":1.3e1}`, sessions(13)},
		"a capacity may be a string":                 {`{"sandbox_id":"a1","max_shell_sessions":"13"}`, sessions(13)},
		"a capacity may be a whole float's string":   {`{"sandbox_id":"a1","max_shell_sessions":"13.00"}`, sessions(13)},
		"a capacity may be a string as Python reads": {`{"sandbox_id":"a1","max_shell_sessions":"\u00a0 +01_3 \n"}`, sessions(13)},
		"a capacity of true is one":                  {`{"sandbox_id":"a1","max_shell_sessions":true}`, sessions(1)},
		"a capacity ends at 31 bits":                 {`{"sandbox_id":"a1","max_shell_sessions":2147483647}`, sessions(math.MaxInt32)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, errs := decodeCreate([]byte(tc.body))
			require.Empty(t, errs)
			require.Equal(t, defaults(tc.want), got)
		})
	}
}

func TestDecodeCreateReadsBooleansAsPydantic(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		`true`: "true", `1`: "true", `1.0`: "true", `1e0`: "true", `10E-1`: "true",
		`"1"`: "true", `"on"`: "true", `"T"`: "true", `"TRUE"`: "true", `"y"`: "true", `"Yes"`: "true", `"\u0079es"`: "true",
		`false`: "false", `0`: "false", `0.0`: "false", `-0`: "false", `-0.0`: "false", `0e9`: "false",
		`"0"`: "false", `"off"`: "false", `"F"`: "false", `"False"`: "false", `"n"`: "false", `"nO"`: "false",
		`2`: "bool_parsing", `-1`: "bool_parsing", `2.0`: "bool_parsing", `1e2`: "bool_parsing",
		`"maybe"`: "bool_parsing", `""`: "bool_parsing", `" true"`: "bool_parsing", `"1.0"`: "bool_parsing", `"tru"`: "bool_parsing",
		`null`: "bool_type", `[]`: "bool_type", `{}`: "bool_type", `[true]`: "bool_type", `1.5`: "bool_type",
		`1e400`: "bool_type", `-1e400`: "bool_type", `99999999999999999999`: "bool_type",
		`"\ud800"`: "string_unicode",
	} {
		t.Run(value+" is "+want, func(t *testing.T) {
			t.Parallel()
			for _, field := range []string{"include_legacy_skills", "provision_lark_cli_runtime", "provision_lark_cli_broker"} {
				req, errs := decodeCreate(fmt.Appendf(nil, `{"sandbox_id":"a1",%q:%s}`, field, value))
				if len(errs) > 0 {
					require.Len(t, errs, 1)
					require.Equal(t, want, errs[0].Type)
					require.Equal(t, []any{"body", field}, errs[0].Loc)
					require.Equal(t, value, string(errs[0].Input), "the input is echoed")
					continue
				}
				got := req.Spec.LarkRuntime || req.Spec.LarkBroker
				require.Equal(t, want == "true" && field != "include_legacy_skills", got)
			}
		})
	}
}

func TestDecodeCreateRefuses(t *testing.T) {
	t.Parallel()
	const (
		idRule     = `"msg":"String should match pattern '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'","ctx":{"pattern":"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}`
		threadRule = `"msg":"String should match pattern '^[A-Za-z0-9_-]{1,64}$'","ctx":{"pattern":"^[A-Za-z0-9_-]{1,64}$"}`
		userRule   = `"msg":"String should match pattern '^[A-Za-z0-9_\\-]+$'","ctx":{"pattern":"^[A-Za-z0-9_\\-]+$"}`
		notInt     = `"msg":"Input should be a valid integer, unable to parse string as an integer"`
		notObject  = `"msg":"Input should be a valid dictionary or object to extract fields from"`
		notText    = `"msg":"Input should be a valid string"`
		tooSmall   = `"type":"greater_than_equal","msg":"Input should be greater than or equal to 1","ctx":{"ge":1}`
		tooLarge   = `"type":"less_than_equal","msg":"Input should be less than or equal to 2147483647","ctx":{"le":2147483647}`
	)
	id := func(value string) string { return `{"sandbox_id":` + value + `}` }
	with := func(field, value string) string { return `{"sandbox_id":"a1","` + field + `":` + value + `}` }
	mismatch := func(field, rule, input string) string {
		return `[{"type":"string_pattern_mismatch","loc":["body","` + field + `"],"input":` + input + `,` + rule + `}]`
	}
	notJSON := func(at int, reason string) string {
		return fmt.Sprintf(`[{"type":"json_invalid","loc":["body",%d],"msg":"JSON decode error","input":{},"ctx":{"error":%q}}]`, at, reason)
	}
	sessions := func(rule, input string) string {
		return `[{"loc":["body","max_shell_sessions"],"input":` + input + `,` + rule + `}]`
	}
	text := func(n int) string { return `"` + strings.Repeat("é", n) + `"` }
	tooLong := func(field string, limit int, input string) string {
		return fmt.Sprintf(`[{"type":"string_too_long","loc":["body","%s"],"msg":"String should have at most %d characters",
			"input":%s,"ctx":{"max_length":%d}}]`, field, limit, input, limit)
	}

	for name, tc := range map[string]struct{ body, want string }{
		"an empty body": {"", `[{"type":"missing","loc":["body"],"msg":"Field required","input":null}]`},
		"a null body":   {" null\n", `[{"type":"missing","loc":["body"],"msg":"Field required","input":null}]`},
		"a list":        {`[{}]`, `[{"type":"model_attributes_type","loc":["body"],"input":[{}],` + notObject + `}]`},
		"a string":      {`"x"`, `[{"type":"model_attributes_type","loc":["body"],"input":"x",` + notObject + `}]`},
		"a number":      {` 5 `, `[{"type":"model_attributes_type","loc":["body"],"input":5,` + notObject + `}]`},
		"a boolean":     {`true`, `[{"type":"model_attributes_type","loc":["body"],"input":true,` + notObject + `}]`},

		"nothing but space":          {"  ", notJSON(2, "unexpected end of JSON input")},
		"an end that comes too soon": {`{"sandbox_id":"a1"`, notJSON(18, "unexpected end of JSON input")},
		"a string without its end":   {`{"a`, notJSON(3, "unexpected end of JSON input")},
		"a wrong last byte":          {`{"é":]`, notJSON(5, "invalid character ']' looking for beginning of value")},
		"text that is no JSON":       {`sandbox_id=a1`, notJSON(0, "invalid character 's' looking for beginning of value")},
		"a second value":             {`{"sandbox_id":"a1"} {}`, notJSON(20, "invalid character '{' after top-level value")},
		"a number behind null":       {`null5`, notJSON(4, "invalid character '5' after top-level value")},
		"NaN":                        {`{"max_shell_sessions":NaN}`, notJSON(22, "invalid character 'N' looking for beginning of value")},
		"a raw control character":    {"{\"a\":\"\x00\"}", notJSON(6, `invalid character '\x00' in string literal`)},
		"invalid UTF-8 in a string":  {"{\"é\":\"\xe9\"}", notJSON(6, "invalid UTF-8")},
		"an encoded surrogate":       {"{\"a\":\"\xed\xa0\x80\"}", notJSON(6, "invalid UTF-8")},
		"an unfinished UTF-8 letter": {"{}\xc3", notJSON(2, "invalid UTF-8")},
		"UTF-16":                     {"{\x00}\x00", notJSON(1, `invalid character '\x00' looking for beginning of object key string`)},
		"too deep a nesting": {
			strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1),
			notJSON(maxDepth, "nested more than 200 levels deep"),
		},

		"an empty object": {`{}`, `[{"type":"missing","loc":["body","sandbox_id"],"msg":"Field required","input":{}}]`},
		"an object without the id": {
			`{"user_id": "u", "x":[1, 2]}`,
			`[{"type":"missing","loc":["body","sandbox_id"],"msg":"Field required","input":{"user_id":"u","x":[1,2]}}]`,
		},
		"a null id":      {id(`null`), `[{"type":"string_type","loc":["body","sandbox_id"],"input":null,` + notText + `}]`},
		"a number as id": {id(`5`), `[{"type":"string_type","loc":["body","sandbox_id"],"input":5,` + notText + `}]`},
		"half a surrogate pair": {id(`"\ud800"`), `[{"type":"string_unicode","loc":["body","sandbox_id"],"input":"\ud800",
			"msg":"Input should be a valid string, unable to parse raw data as a unicode string"}]`},
		"an id of capitals":             {id(`"A_b"`), mismatch("sandbox_id", idRule, `"A_b"`)},
		"an id that starts with a dash": {id(`"-x"`), mismatch("sandbox_id", idRule, `"-x"`)},
		"an id that ends with a dash":   {id(`"x-"`), mismatch("sandbox_id", idRule, `"x-"`)},
		"an id with a dot":              {id(`"a.b"`), mismatch("sandbox_id", idRule, `"a.b"`)},
		"an empty id":                   {id(`""`), mismatch("sandbox_id", idRule, `""`)},
		"an id that climbs":             {id(`"../x"`), mismatch("sandbox_id", idRule, `"../x"`)},
		"an id beyond ASCII":            {id(`"é"`), mismatch("sandbox_id", idRule, `"é"`)},
		"an id with a line's end":       {id(`"abc\n"`), mismatch("sandbox_id", idRule, `"abc\n"`)},
		"an id with NUL":                {id(`"a\u0000"`), mismatch("sandbox_id", idRule, `"a\u0000"`)},
		"51 characters in 102 bytes":    {id(text(51)), mismatch("sandbox_id", idRule, text(51))},
		"an id of 52 characters":        {id(text(52)), tooLong("sandbox_id", 51, text(52))},

		"an empty thread":            {with("thread_id", `""`), mismatch("thread_id", threadRule, `""`)},
		"a thread with a slash":      {with("thread_id", `"a/b"`), mismatch("thread_id", threadRule, `"a/b"`)},
		"a thread of 65 characters":  {with("thread_id", text(65)), mismatch("thread_id", threadRule, text(65))},
		"a number as thread":         {with("thread_id", `1`), `[{"type":"string_type","loc":["body","thread_id"],"input":1,` + notText + `}]`},
		"a null user":                {with("user_id", `null`), `[{"type":"string_type","loc":["body","user_id"],"input":null,` + notText + `}]`},
		"a user with a slash":        {with("user_id", `"a/b"`), mismatch("user_id", userRule, `"a/b"`)},
		"an empty user":              {with("user_id", `""`), mismatch("user_id", userRule, `""`)},
		"a user that is no filename": {with("user_id", text(256)), tooLong("user_id", 255, text(256))},

		"null for the mounts": {with("extra_mounts", `null`),
			`[{"type":"list_type","loc":["body","extra_mounts"],"msg":"Input should be a valid list","input":null}]`},
		"an object for the mounts": {with("extra_mounts", `{"0":1}`),
			`[{"type":"list_type","loc":["body","extra_mounts"],"msg":"Input should be a valid list","input":{"0":1}}]`},
		"a string for a mount": {with("extra_mounts", `["/a:/b"]`),
			`[{"type":"model_attributes_type","loc":["body","extra_mounts",0],"input":"/a:/b",` + notObject + `}]`},
		"null and an empty object for mounts": {with("extra_mounts", `[null, {}]`),
			`[{"type":"model_attributes_type","loc":["body","extra_mounts",0],"input":null,` + notObject + `},
			{"type":"missing","loc":["body","extra_mounts",1,"host_path"],"msg":"Field required","input":{}},
			{"type":"missing","loc":["body","extra_mounts",1,"container_path"],"msg":"Field required","input":{}}]`},
		"wrong types in the second mount": {
			with("extra_mounts", `[{"host_path":"/a","container_path":"/b"},{"host_path":1,"container_path":null,"read_only":null}]`),
			`[{"type":"string_type","loc":["body","extra_mounts",1,"host_path"],"input":1,` + notText + `},
			{"type":"string_type","loc":["body","extra_mounts",1,"container_path"],"input":null,` + notText + `},
			{"type":"bool_type","loc":["body","extra_mounts",1,"read_only"],"msg":"Input should be a valid boolean","input":null}]`,
		},

		"a skills path of null": {with("skills_container_path", `null`),
			`[{"type":"string_type","loc":["body","skills_container_path"],"input":null,` + notText + `}]`},
		"a skills path that no kernel takes": {with("skills_container_path", text(4097)), tooLong("skills_container_path", 4096, text(4097))},

		"a capacity of zero":           {with("max_shell_sessions", `0`), sessions(tooSmall, `0`)},
		"a capacity of false":          {with("max_shell_sessions", `false`), sessions(tooSmall, `false`)},
		"a negative capacity":          {with("max_shell_sessions", `"-1_0.0"`), sessions(tooSmall, `"-1_0.0"`)},
		"a capacity below all ints":    {with("max_shell_sessions", `-1e300`), sessions(tooSmall, `-1e300`)},
		"a capacity of almost nothing": {with("max_shell_sessions", `1e-400`), sessions(tooSmall, `1e-400`)},
		"a capacity beyond 31 bits":    {with("max_shell_sessions", `2147483648`), sessions(tooLarge, `2147483648`)},
		"a capacity beyond 64 bits":    {with("max_shell_sessions", `36893488147419103233`), sessions(tooLarge, `36893488147419103233`)},
		"a capacity beyond 64 bits in a string": {with("max_shell_sessions", `"36893488147419103233"`),
			sessions(tooLarge, `"36893488147419103233"`)},
		"a float capacity beyond 64 bits": {with("max_shell_sessions", `1e300`), sessions(tooLarge, `1e300`)},
		"half a session": {with("max_shell_sessions", `13.5`),
			sessions(`"type":"int_from_float","msg":"Input should be a valid integer, got a number with a fractional part"`, `13.5`)},
		"half a session in a string":   {with("max_shell_sessions", `"13.5"`), sessions(`"type":"int_parsing",`+notInt, `"13.5"`)},
		"a word for the capacity":      {with("max_shell_sessions", `"x"`), sessions(`"type":"int_parsing",`+notInt, `"x"`)},
		"an empty string for it":       {with("max_shell_sessions", `""`), sessions(`"type":"int_parsing",`+notInt, `""`)},
		"other people's digits for it": {with("max_shell_sessions", `"٣"`), sessions(`"type":"int_parsing",`+notInt, `"٣"`)},
		"doubled underscores":          {with("max_shell_sessions", `"1__0"`), sessions(`"type":"int_parsing",`+notInt, `"1__0"`)},
		"half a surrogate pair for it": {with("max_shell_sessions", `"\udc00"`), sessions(`"type":"string_unicode",
			"msg":"Input should be a valid string, unable to parse raw data as a unicode string"`, `"\udc00"`)},
		"a list for the capacity":       {with("max_shell_sessions", `[]`), sessions(`"type":"int_type","msg":"Input should be a valid integer"`, `[]`)},
		"an object for the capacity":    {with("max_shell_sessions", `{}`), sessions(`"type":"int_type","msg":"Input should be a valid integer"`, `{}`)},
		"a capacity beyond all numbers": {with("max_shell_sessions", `1e400`), sessions(`"type":"finite_number","msg":"Input should be a finite number"`, `1e400`)},

		"several fields, named in their order": {
			`{"provision_lark_cli_broker":3,"max_shell_sessions":0,"extra_mounts":1,"user_id":"","sandbox_id":"A"}`,
			`[{"type":"string_pattern_mismatch","loc":["body","sandbox_id"],"input":"A",` + idRule + `},
			{"type":"string_pattern_mismatch","loc":["body","user_id"],"input":"",` + userRule + `},
			{"type":"list_type","loc":["body","extra_mounts"],"msg":"Input should be a valid list","input":1},
			{"loc":["body","max_shell_sessions"],"input":0,` + tooSmall + `},
			{"type":"bool_parsing","loc":["body","provision_lark_cli_broker"],"input":3,
				"msg":"Input should be a valid boolean, unable to interpret input"}]`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req, errs := decodeCreate([]byte(tc.body))
			require.Zero(t, req)
			requireSameJSON(t, tc.want, errs)
		})
	}
}

// requireSameJSON compares numbers as they are written, because some of them fit no float.
func requireSameJSON(t *testing.T, want string, got any) {
	t.Helper()
	decode := func(b []byte) (v any) {
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.UseNumber()
		require.NoError(t, dec.Decode(&v))
		return v
	}
	b, err := json.Marshal(got)
	require.NoError(t, err)
	require.Equal(t, decode([]byte(want)), decode(b))
}

func TestDecodeCreateRefusesASkillsPathInTheDomainsWords(t *testing.T) {
	t.Parallel()
	for _, p := range []string{"", "/", "skills", "/opt/skills/", "/mnt", "/mnt/user-data/x"} {
		_, want := sandbox.CheckSkillsPath(p)
		require.Error(t, want, p)
		_, errs := decodeCreate(fmt.Appendf(nil, `{"sandbox_id":"a1","skills_container_path":%q}`, p))
		require.Equal(t, []fieldError{{
			Type:  "value_error",
			Loc:   []any{"body", "skills_container_path"},
			Msg:   "Value error, " + want.Error(),
			Input: fmt.Appendf(nil, "%q", p),
			Ctx:   map[string]any{"error": want.Error()},
		}}, errs)
	}
}

// A body of the largest size is answered in time and in proportion, whatever is in it. Anything quadratic would take minutes.
func TestDecodeCreateBearsHostileBodies(t *testing.T) {
	t.Parallel()
	fill := func(before, unit, after string) []byte {
		n := (maxBody - len(before) - len(after)) / len(unit)
		return []byte(before + strings.Repeat(unit, n) + after)
	}
	for name, body := range map[string][]byte{
		"brackets":               fill("", "[", ""),
		"braces":                 fill("", `{"a":`, ""),
		"closing brackets":       fill("{}", "]", ""),
		"digits":                 fill(`{"sandbox_id":"a1","max_shell_sessions":`, "9", "}"),
		"digits in a string":     fill(`{"sandbox_id":"a1","max_shell_sessions":"`, "9_9", `"}`),
		"a long fraction":        fill(`{"sandbox_id":"a1","max_shell_sessions":1.5`, "9", "}"),
		"a long exponent":        fill(`{"sandbox_id":"a1","max_shell_sessions":1e`, "9", "}"),
		"a long id":              fill(`{"sandbox_id":"`, "a", `"}`),
		"an id of escapes":       fill(`{"sandbox_id":"`, `\ud800`, `"}`),
		"backslashes":            fill(`{"sandbox_id":"`, `\\`, `"}`),
		"a long user":            fill(`{"sandbox_id":"a1","user_id":"`, "a", `"}`),
		"empty mounts":           fill(`{"extra_mounts":[{}`, ",{}", `]}`),
		"numbers for mounts":     fill(`{"extra_mounts":[0`, ",0", `]}`),
		"one key again and over": fill(`{"sandbox_id":0`, `,"sandbox_id":0`, `}`),
		"continuation bytes":     fill("", "\x80", ""),
		"space":                  fill("", " ", ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, errs := decodeCreate(body)
			require.NotEmpty(t, errs)
			require.LessOrEqual(t, len(errs), maxFieldErrors+4)
			b, err := json.Marshal(errs)
			require.NoError(t, err)
			require.Less(t, len(b), 4*maxBody)
		})
	}
}

func FuzzDecodeCreate(f *testing.F) {
	for _, body := range []string{
		``, `null`, `{}`, `[]`, `{"sandbox_id":"a1"}`, `{"sandbox_id":"a1"}x`, `{"sandbox_id":"\ud83d\ude00\ud800"}`,
		`{"sandbox_id":"a1","thread_id":null,"user_id":"u","extra_mounts":[{"host_path":"/a","container_path":"/b","read_only":"yes"}]}`,
		`{"sandbox_id":"a1","skills_container_path":"/x/../y","max_shell_sessions":"1_3.0","provision_lark_cli_broker":1.0}`,
		`{"sandbox_id":"a1","max_shell_sessions":1e400,"include_legacy_skills":-0.0,"extra_mounts":[[],{}]}`,
		"{\"sandbox_id\":\"\xff\"}", `[[[[`, `{"a":NaN}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, errs := decodeCreate(body)
		if len(errs) > 0 {
			b, err := json.Marshal(errs)
			require.NoError(t, err)
			require.True(t, json.Valid(b) && utf8.Valid(b))
			require.Zero(t, req)
			for _, e := range errs {
				require.NotEmpty(t, e.Type)
				require.NotEmpty(t, e.Msg)
				require.Equal(t, "body", e.Loc[0])
			}
			return
		}
		require.True(t, json.Valid(body), "what is accepted is JSON")
		require.True(t, sandbox.ValidID(req.ID))
		require.Regexp(t, threadPattern, req.Spec.ThreadID)
		require.Regexp(t, userPattern, req.Spec.UserID)
		require.True(t, path.IsAbs(req.Spec.SkillsPath))
		require.Equal(t, path.Clean(req.Spec.SkillsPath), req.Spec.SkillsPath)
		require.GreaterOrEqual(t, req.Spec.MaxShellSessions, 0)
		require.LessOrEqual(t, req.Spec.MaxShellSessions, math.MaxInt32)
		for _, m := range req.Spec.ExtraMounts {
			require.True(t, utf8.ValidString(m.HostPath) && utf8.ValidString(m.ContainerPath))
		}
	})
}
