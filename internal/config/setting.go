package config

import (
	"encoding"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Why not a library: sethvargo/go-envconfig turns a number, duration or boolean that is set but empty into zero without a
// word, expands $ in defaults, and stops at the first problem; caarlos0/env takes the default for a variable that is set
// but empty. Help and --print-config need a walk over the fields anyway.

// masked stands for a secret.
const masked = "******"

// A setting is one variable and the field that it fills.
type setting struct {
	group, name, preset, help string
	secret                    secrecy
	field                     reflect.Value
}

// secrecy is how much of a value must not be shown.
type secrecy string

const (
	public         secrecy = ""
	secretValue    secrecy = "true"
	secretUserinfo secrecy = "userinfo"
)

// settings lists the tagged fields of the groups of cfg, a pointer to a struct of structs, in the order of declaration. An
// error is a mistake in a tag.
func settings(cfg any) ([]setting, error) {
	var all []setting
	var mistakes []error
	for declared, group := range groups(cfg) {
		if group.Kind() != reflect.Struct {
			mistakes = append(mistakes, fmt.Errorf("%s of %T is not a group of settings", declared.Name, cfg))
			continue
		}
		for j := range group.NumField() {
			field := group.Type().Field(j)
			tag, tagged := field.Tag.Lookup("env")
			if !tagged {
				continue
			}
			name, preset, hasDefault := strings.Cut(tag, ",")
			preset, isDefault := strings.CutPrefix(strings.TrimSpace(preset), "default=")
			s := setting{
				group:  declared.Tag.Get("group"),
				name:   name,
				preset: preset,
				help:   field.Tag.Get("help"),
				secret: secrecy(field.Tag.Get("secret")),
				field:  group.Field(j),
			}
			if hasDefault != isDefault || !field.IsExported() || !s.secret.known() {
				mistakes = append(mistakes, fmt.Errorf("field %s of %s cannot be read from the environment: %s",
					field.Name, group.Type(), field.Tag))
			}
			all = append(all, s)
		}
	}
	return all, errors.Join(mistakes...)
}

// groups are the groups of settings of a program, those included that it has in common with others.
func groups(cfg any) iter.Seq2[reflect.StructField, reflect.Value] {
	root := reflect.ValueOf(cfg).Elem()
	return func(yield func(reflect.StructField, reflect.Value) bool) {
		for _, field := range reflect.VisibleFields(root.Type()) {
			if !field.Anonymous && !yield(field, root.FieldByIndex(field.Index)) {
				return
			}
		}
	}
}

// load fills the field. After a value that cannot be read it holds the default, so that the variable is complained about
// once and not again by a Validate that finds a zero.
func (s setting) load(lookup func(string) (string, bool)) error {
	if value, found := lookup(s.name); found {
		why := s.parse(value)
		if why == nil {
			return nil
		}
		if value == "" {
			why = fmt.Errorf("set but empty; %w", why)
		}
		return errors.Join(fmt.Errorf("%s=%s: %w", s.name, strconv.Quote(s.mask(value)), why), s.loadDefault())
	}
	return s.loadDefault()
}

func (s setting) loadDefault() error {
	if s.preset == "" && s.field.Kind() == reflect.String {
		s.field.SetString("")
		return nil
	}
	if err := s.parse(s.preset); err != nil {
		return fmt.Errorf("default of %s: %w", s.name, err)
	}
	return nil
}

// parse sets the field. The error says what is allowed.
func (s setting) parse(value string) error {
	if u, ok := s.field.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(value))
	}
	if s.field.Type() == reflect.TypeFor[time.Duration]() {
		d, err := time.ParseDuration(value)
		if err != nil {
			return errors.New("must be a duration, such as 500ms, 10s or 1h")
		}
		s.field.SetInt(int64(d))
		return nil
	}
	switch kind := s.field.Kind(); kind {
	case reflect.String:
		s.field.SetString(value)
	case reflect.Bool:
		b, err := strconv.ParseBool(value)
		if err != nil {
			return errors.New("must be true or false")
		}
		s.field.SetBool(b)
	case reflect.Int, reflect.Int32, reflect.Int64:
		n, err := strconv.ParseInt(value, 10, s.field.Type().Bits())
		if err != nil {
			return errors.New("must be a whole number")
		}
		s.field.SetInt(n)
	case reflect.Float32, reflect.Float64:
		f, err := strconv.ParseFloat(value, s.field.Type().Bits())
		if err != nil {
			return errors.New("must be a number")
		}
		s.field.SetFloat(f)
	default:
		return fmt.Errorf("a field of kind %s cannot be read from the environment", kind)
	}
	return nil
}

// effective is the value that the program works with, in the form in which the variable would give it.
func (s setting) effective() string {
	switch value := s.field.Interface().(type) {
	case encoding.TextMarshaler:
		text, err := value.MarshalText()
		if err != nil {
			return err.Error()
		}
		return string(text)
	default:
		return fmt.Sprint(value)
	}
}

// mask is value as it may be shown.
func (s setting) mask(value string) string {
	switch {
	case value == "" || s.secret == public:
		return value
	case s.secret == secretUserinfo:
		return maskUserinfo(value)
	}
	return masked
}

func (s secrecy) known() bool { return s == public || s == secretValue || s == secretUserinfo }

// maskUserinfo hides the credentials in a comma-separated list of URLs. It has to cope with what is not a URL: that is
// when the value is shown.
func maskUserinfo(list string) string {
	urls := strings.Split(list, ",")
	for i, url := range urls {
		at := strings.LastIndex(url, "@")
		if at < 0 {
			continue
		}
		scheme := 0
		if end := strings.Index(url[:at], "://"); end >= 0 {
			scheme = end + len("://")
		}
		urls[i] = url[:scheme] + masked + url[at:]
	}
	return strings.Join(urls, ",")
}

// A validator finds values that can be read but not used. Each of its errors is one line that begins with the variable
// and says what is allowed.
type validator interface{ Validate() error }

// validate asks the groups of cfg, a pointer to a struct of structs, and then cfg itself.
func validate(cfg any) error {
	var problems []error
	for _, group := range groups(cfg) {
		if v, ok := group.Addr().Interface().(validator); ok {
			problems = append(problems, v.Validate())
		}
	}
	if v, ok := cfg.(validator); ok {
		problems = append(problems, v.Validate())
	}
	return errors.Join(problems...)
}
