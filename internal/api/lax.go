package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// What a field accepts, and in which words it is refused, follows pydantic v2 in its lax mode: clients of the Python
// provisioner rely on both. Its wording was taken from pydantic 2.13.

const (
	// maxDepth of nested JSON is that of pydantic's own parser. Beyond it a reply that echoes the input would be
	// unreadable for the client's parser in turn.
	maxDepth = 200
	// maxFieldErrors keeps the reply to a body of many tiny wrong items from growing to a hundred times its size.
	maxFieldErrors = 100
)

// A fieldError is one entry of the detail of a 422.
type fieldError struct {
	Type string `json:"type"`
	// Loc is the way to the field: "body", then names and list indices.
	Loc []any  `json:"loc"`
	Msg string `json:"msg"`
	// Input is what was sent, as it was sent; the object around it when the field is missing.
	Input json.RawMessage `json:"input"`
	Ctx   map[string]any  `json:"ctx,omitempty"`
}

// parseBody checks that body is one JSON value and returns it without the space around it.
func parseBody(body []byte) (json.RawMessage, *fieldError) {
	missing := &fieldError{Type: "missing", Loc: []any{"body"}, Msg: "Field required", Input: json.RawMessage("null")}
	if len(body) == 0 {
		return nil, missing
	}
	if at, reason := jsonFault(body); reason != "" {
		return nil, &fieldError{
			Type:  "json_invalid",
			Loc:   []any{"body", utf8.RuneCount(body[:at])},
			Msg:   "JSON decode error",
			Input: json.RawMessage("{}"),
			Ctx:   map[string]any{"error": reason},
		}
	}
	raw := json.RawMessage(bytes.Trim(body, " \t\r\n"))
	if isNull(raw) {
		return nil, missing
	}
	return raw, nil
}

// jsonFault returns the byte offset of the first thing that keeps body from being JSON, and its name; "" when it is JSON.
func jsonFault(body []byte) (int, string) {
	if at := invalidUTF8(body); at >= 0 {
		return at, "invalid UTF-8"
	}
	if at := tooDeep(body); at >= 0 {
		return at, fmt.Sprintf("nested more than %d levels deep", maxDepth)
	}
	var syntax *json.SyntaxError
	if !errors.As(json.Unmarshal(body, new(json.RawMessage)), &syntax) {
		return 0, ""
	}
	reason := syntax.Error()
	// A wrong last byte and an end that comes too soon are reported at the same offset. They differ once a byte follows.
	errors.As(json.Unmarshal(slices.Concat(body, []byte{0}), new(json.RawMessage)), &syntax)
	return int(syntax.Offset) - 1, reason
}

// invalidUTF8 returns the offset of the first byte that is not UTF-8, or -1. encoding/json would replace it silently.
func invalidUTF8(body []byte) int {
	for at := 0; at < len(body); {
		r, size := utf8.DecodeRune(body[at:])
		if r == utf8.RuneError && size == 1 {
			return at
		}
		at += size
	}
	return -1
}

// tooDeep returns the offset of the bracket that opens level maxDepth+1, or -1.
func tooDeep(body []byte) int {
	depth, quoted := 0, false
	for at := 0; at < len(body); at++ {
		switch c := body[at]; {
		case quoted && c == '\\':
			at++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return at
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return -1
}

// An object is a JSON object whose fields are read one after the other. What is wrong with them gathers in errs.
type object struct {
	raw    json.RawMessage
	fields map[string]json.RawMessage
	loc    []any
	errs   *[]fieldError
}

// newObject opens raw, a valid JSON value; false when it is not an object, which it has noted in errs then. Of a
// repeated key the last one counts, as in Python.
func newObject(raw json.RawMessage, errs *[]fieldError, loc ...any) (object, bool) {
	o := object{raw: raw, loc: loc, errs: errs}
	if raw[0] != '{' || json.Unmarshal(raw, &o.fields) != nil {
		*errs = append(*errs, fieldError{
			Type:  "model_attributes_type",
			Loc:   loc,
			Msg:   "Input should be a valid dictionary or object to extract fields from",
			Input: raw,
		})
		return object{}, false
	}
	return o, true
}

// allowNull makes a null in one of the fields as good as its absence.
func (o object) allowNull(names ...string) {
	for _, name := range names {
		if isNull(o.fields[name]) {
			delete(o.fields, name)
		}
	}
}

// A textRule passes a string on, perhaps in another form, or refuses it with Type, Msg and Ctx.
type textRule func(string) (string, *fieldError)

// text reads a string that must be there.
func (o object) text(name string, rules ...textRule) string {
	if _, ok := o.fields[name]; !ok {
		o.refuse(name, o.raw, &fieldError{Type: "missing", Msg: "Field required"})
		return ""
	}
	return o.textOr(name, "", rules...)
}

// textOr reads a string that may be absent.
func (o object) textOr(name, absent string, rules ...textRule) string {
	raw, ok := o.fields[name]
	if !ok {
		return absent
	}
	s, err := laxText(raw)
	for _, rule := range rules {
		if err != nil {
			break
		}
		s, err = rule(s)
	}
	if err != nil {
		o.refuse(name, raw, err)
		return ""
	}
	return s
}

// boolean reads a bool; false when it is absent.
func (o object) boolean(name string) bool {
	raw, ok := o.fields[name]
	if !ok {
		return false
	}
	b, err := laxBool(raw)
	if err != nil {
		o.refuse(name, raw, err)
	}
	return b
}

// integer reads an int from low to high; 0 when it is absent.
func (o object) integer(name string, low, high int) int {
	raw, ok := o.fields[name]
	if !ok {
		return 0
	}
	n, err := laxInt(raw)
	switch {
	case err != nil:
	case n < low:
		err = &fieldError{
			Type: "greater_than_equal",
			Msg:  fmt.Sprintf("Input should be greater than or equal to %d", low),
			Ctx:  map[string]any{"ge": low},
		}
	case n > high:
		err = &fieldError{
			Type: "less_than_equal",
			Msg:  fmt.Sprintf("Input should be less than or equal to %d", high),
			Ctx:  map[string]any{"le": high},
		}
	}
	if err != nil {
		o.refuse(name, raw, err)
		return 0
	}
	return n
}

// list reads a list of anything; nil when it is absent.
func (o object) list(name string) []json.RawMessage {
	raw, ok := o.fields[name]
	if !ok {
		return nil
	}
	var items []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &items) != nil {
		o.refuse(name, raw, &fieldError{Type: "list_type", Msg: "Input should be a valid list"})
		return nil
	}
	return items
}

func (o object) refuse(name string, input json.RawMessage, err *fieldError) {
	err.Loc = append(slices.Clone(o.loc), name)
	err.Input = input
	*o.errs = append(*o.errs, *err)
}

// maxLength counts characters, not bytes.
func maxLength(limit int) textRule {
	return func(s string) (string, *fieldError) {
		if utf8.RuneCountInString(s) <= limit {
			return s, nil
		}
		return "", &fieldError{
			Type: "string_too_long",
			Msg:  fmt.Sprintf("String should have at most %d characters", limit),
			Ctx:  map[string]any{"max_length": limit},
		}
	}
}

func matching(pattern *regexp.Regexp) textRule {
	return func(s string) (string, *fieldError) {
		if pattern.MatchString(s) {
			return s, nil
		}
		return "", &fieldError{
			Type: "string_pattern_mismatch",
			Msg:  fmt.Sprintf("String should match pattern '%s'", pattern),
			Ctx:  map[string]any{"pattern": pattern.String()},
		}
	}
}

// checked puts a function of the domain into the words of pydantic's custom validators.
func checked(check func(string) (string, error)) textRule {
	return func(s string) (string, *fieldError) {
		s, err := check(s)
		if err != nil {
			return "", &fieldError{
				Type: "value_error",
				Msg:  "Value error, " + err.Error(),
				Ctx:  map[string]any{"error": err.Error()},
			}
		}
		return s, nil
	}
}

func laxText(raw json.RawMessage) (string, *fieldError) {
	var s string
	if raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return "", &fieldError{Type: "string_type", Msg: "Input should be a valid string"}
	}
	if loneSurrogate(raw) {
		return "", &fieldError{
			Type: "string_unicode",
			Msg:  "Input should be a valid string, unable to parse raw data as a unicode string",
		}
	}
	return s, nil
}

// loneSurrogate tells whether a JSON string holds half of a surrogate pair, such as "\ud800". encoding/json makes it U+FFFD,
// so that what arrives would not be what was sent.
func loneSurrogate(raw json.RawMessage) bool {
	escape := func(at int) rune {
		if at+6 > len(raw) || raw[at] != '\\' || raw[at+1] != 'u' {
			return 0
		}
		r, _ := strconv.ParseUint(string(raw[at+2:at+6]), 16, 16) // checked by the parser already
		return rune(r)
	}
	for at := 0; at < len(raw); at++ {
		if raw[at] != '\\' {
			continue
		}
		if r := escape(at); utf16.IsSurrogate(r) {
			if utf16.DecodeRune(r, escape(at+6)) == utf8.RuneError {
				return true
			}
			at += 10
		}
		at++
	}
	return false
}

var laxBools = map[string]bool{
	"1": true, "on": true, "t": true, "true": true, "y": true, "yes": true,
	"0": false, "off": false, "f": false, "false": false, "n": false, "no": false,
}

func laxBool(raw json.RawMessage) (bool, *fieldError) {
	wrongType := &fieldError{Type: "bool_type", Msg: "Input should be a valid boolean"}
	wrongValue := &fieldError{Type: "bool_parsing", Msg: "Input should be a valid boolean, unable to interpret input"}
	switch c := raw[0]; {
	case c == 't' || c == 'f':
		return c == 't', nil
	case c == '"':
		s, err := laxText(raw)
		if err != nil {
			return false, err
		}
		b, ok := laxBools[strings.ToLower(s)]
		if !ok {
			return false, wrongValue
		}
		return b, nil
	case !isNumber(raw):
		return false, wrongType
	}
	// Whole numbers are wrong by their value, others by their type; so are those that pydantic cannot hold.
	f, err := strconv.ParseFloat(string(raw), 64)
	switch {
	case err != nil || f != math.Trunc(f) || math.Abs(f) >= math.MaxInt64:
		return false, wrongType
	case f != 0 && f != 1:
		return false, wrongValue
	}
	return f == 1, nil
}

var laxIntPattern = regexp.MustCompile(`^([+-]?[0-9]+(?:_[0-9]+)*)(?:\.0+)?$`)

// laxInt saturates: the callers' ranges are far inside that of an int.
func laxInt(raw json.RawMessage) (int, *fieldError) {
	switch c := raw[0]; {
	case c == 't':
		return 1, nil
	case c == 'f':
		return 0, nil
	case c == '"':
		s, err := laxText(raw)
		if err != nil {
			return 0, err
		}
		digits := laxIntPattern.FindStringSubmatch(strings.TrimSpace(s))
		if digits == nil {
			return 0, &fieldError{
				Type: "int_parsing",
				Msg:  "Input should be a valid integer, unable to parse string as an integer",
			}
		}
		return saturated(strings.ReplaceAll(digits[1], "_", "")), nil
	case !isNumber(raw):
		return 0, &fieldError{Type: "int_type", Msg: "Input should be a valid integer"}
	case isInteger(raw):
		return saturated(string(raw)), nil
	}
	f, _ := strconv.ParseFloat(string(raw), 64) // out of range is infinite
	switch {
	case math.IsInf(f, 0):
		return 0, &fieldError{Type: "finite_number", Msg: "Input should be a finite number"}
	case f != math.Trunc(f):
		return 0, &fieldError{
			Type: "int_from_float",
			Msg:  "Input should be a valid integer, got a number with a fractional part",
		}
	case f >= math.MaxInt:
		return math.MaxInt, nil
	case f <= math.MinInt:
		return math.MinInt, nil
	}
	return int(f), nil
}

// saturated reads decimal digits with or without a sign.
func saturated(digits string) int {
	n, _ := strconv.ParseInt(digits, 10, 64) // out of range is the nearest bound
	return int(max(math.MinInt, min(n, math.MaxInt)))
}

func isNull(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == 'n' }

func isNumber(raw json.RawMessage) bool { return raw[0] == '-' || ('0' <= raw[0] && raw[0] <= '9') }

// isInteger tells the numbers that Python reads as int from those that it reads as float.
func isInteger(number json.RawMessage) bool { return !bytes.ContainsAny(number, ".eE") }
